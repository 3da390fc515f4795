//! What `run` prints on standard error around the stream: which hook sees which signal, and at the end the
//! totals.

use std::{path::Path, sync::atomic::Ordering, time::Duration};

use probe_common::tally::Ring;

use crate::{
    cli::{
        args::STATE_DIR,
        on_node::{doctor, node::hooks::Hooks},
    },
    recording::Header,
    session::Session,
    sink::{escape::escaped, shell::quoted, span::span},
    source::{
        live::{
            attach::{HookReport, Pinning},
            tally::Totals,
        },
        node::{cgroup::Hierarchy, missing_right::Privileges},
    },
};

/// Returns a line for each signal, and one for each better way that did not work.
pub(super) fn start(header: &Header, hooks: &Hooks, hierarchy: &Hierarchy) -> String {
    let hierarchy = match hierarchy.id {
        0 => "the v2 hierarchy".to_owned(),
        id => format!("v1 hierarchy {id}"),
    };
    let here = Privileges::find();
    let cure = doctor::cure(hooks, here);
    let mut text = format!(
        "sandprobe {} on {} (Linux {}), cgroups by {hierarchy}; hooks {} in {}, tested in {}\n",
        header.made_by,
        header.node,
        header.kernel,
        begun(hooks.drain.probe().pinning()),
        span(hooks.took),
        span(hooks.test.took)
    );
    for report in &hooks.reports {
        text += &format!("  {:14}  {}\n", report.signal.into_str(), how(report));
        for (mechanism, why) in &report.missed {
            text += &format!("  {:14}    not {}: {why}\n", "", mechanism.into_str());
        }
        let lacks = here.named(&report.lacks);
        if !lacks.is_empty() {
            text += &format!("  {:14}    it needs {lacks}\n", "");
        }
    }
    if let Some(cure) = cure {
        text += &format!("to see more: {cure}\n");
    }
    text
}

fn begun(pinning: &Pinning) -> &'static str {
    match pinning {
        Pinning::Pinned { is_taken_over: true, .. } => "taken over from the last agent",
        Pinning::Off | Pinning::Failed(_) | Pinning::Pinned { .. } => "attached",
    }
}

/// Printed after the first write. If that failed, the log has the reason.
pub(super) fn kept(dir: &Path) -> String {
    let name = dir.display().to_string();
    let flag = if dir == Path::new(STATE_DIR) {
        String::new()
    } else {
        format!(" --state-dir {}", quoted(&name).as_deref().unwrap_or("DIR"))
    };
    format!("findings are stored in {}: list them with sandprobe findings{flag}\n", escaped(&name))
}

fn how(report: &HookReport) -> String {
    let Some(mechanism) = report.mechanism else { return "not seen".to_owned() };
    let programs = report.programs.join(", ");
    let by = format!("{} {programs}", mechanism.into_str());
    let by = by.trim_end();
    if report.note.is_empty() { by.to_owned() } else { format!("{by}; degraded: {}", report.note) }
}

pub(super) fn end(session: &Session, totals: &Totals, ran: Duration) -> String {
    let mut text = session.summary().text(ran);
    match session.left_out().load(Ordering::Relaxed) {
        0 => {}
        n => text += &format!("  events that --event-rate left out of the stream: {n}\n"),
    }
    let (version, status) = totals.cni_not_streamed();
    if version + status > 0 {
        text += &format!("  CNI calls counted only: {version} VERSION, {status} STATUS\n");
    }
    for (name, ring) in [("lifecycle", Ring::Lifecycle), ("bulk", Ring::Bulk)] {
        let cpus = totals.lost_by_cpu(ring);
        if cpus.iter().any(|lost| *lost > 0) {
            text += &format!("  lost in the {name} ring, by CPU: {cpus:?}\n");
        }
    }
    let skipped = totals.skipped_by_program();
    if !skipped.is_empty() {
        let each: Vec<String> = skipped.iter().map(|(name, count)| format!("{name} {count}")).collect();
        text += &format!("  runs that the kernel skipped, by program: {}\n", each.join(", "));
    }
    match totals.env_truncated() {
        0 => {}
        n => text += &format!("  environments longer than is searched for CNI variables: {n}\n"),
    }
    match totals.netns_untracked() {
        0 => {}
        n => text += &format!("  network namespaces whose end no hook could report: {n}\n"),
    }
    match totals.not_kept() {
        0 => {}
        n => text += &format!("  entries that the programs' tables had no room for: {n}\n"),
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{STATE_DIR, kept};

    #[test]
    fn the_command_that_lists_findings_reads_where_they_are() {
        for (dir, command) in [
            (STATE_DIR, "sandprobe findings\n"),
            ("/my state", "sandprobe findings --state-dir '/my state'\n"),
            ("/a\nb", "sandprobe findings --state-dir DIR\n"),
        ] {
            assert!(kept(Path::new(dir)).ends_with(&format!(": list them with {command}")), "{dir:?}");
        }
    }
}
