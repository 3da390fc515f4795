//! An explanation for people: the verdict, the reason, the evidence in order, and what to do.

use std::{collections::BTreeSet, fmt::Write as _};

use crate::{
    cli::snapshot::AgentSnapshot,
    engine::incident::Incidents,
    known::{Catalogue, Explanation},
    model::{
        change::{Change, ChangeKind, CniCall, End, Evidence, Finding, Process},
        fact::Said,
        finding::{Kind, LeakedAddress, Stage},
        time::Timestamp,
    },
    sink::{
        escape::{brief, escaped, short_key},
        render::{
            evidence::{changes, left_out},
            phase::pod,
            text::{cut, detail},
            wall_clock::{Rfc3339, TimeOfDay},
        },
        span::span,
    },
    words::{count::counted, name::signal_number},
};

/// How many causes, and effects of one step, are named.
const SHOWN: usize = 16;

/// The width of sentences.
const WIDTH: usize = 100;

/// The width of an event's details. Longer ones, such as a runtime's arguments with long paths, are cut.
const DETAIL_WIDTH: usize = 110;

pub(in crate::cli) fn text(it: &Finding, incidents: &Incidents<'_>, snapshot: &AgentSnapshot) -> String {
    let explanation = Catalogue::current().explain(it, &snapshot.label.node);
    let mut text = format!("{}\n\n", escaped(&it.kind.explain().summary()));
    head(it, snapshot, &mut text);
    text += "\nWhy\n";
    wrap(explanation.cause, &mut text);
    if it.gapped {
        wrap("Records were lost while it was there: the cause may be another one.", &mut text);
    }
    incident(it, incidents, &mut text);
    let evidence = changes(it);
    timeline(&evidence, it, snapshot, &mut text);
    calls(&evidence, it, &mut text);
    killer(&evidence, &mut text);
    words(it, &mut text);
    versions(it, &mut text);
    known(&explanation, &mut text);
    text += "\nHow to repair\n";
    for line in &explanation.repair {
        _ = writeln!(text, "  {line}");
    }
    _ = write!(text, "\nMore: {}\n", it.kind.page());
    text
}

fn head(it: &Finding, snapshot: &AgentSnapshot, text: &mut String) {
    line("kind", it.kind.into_str(), text);
    line("stage", &format!("{}, severity {}", it.stage.into_str(), it.severity.into_str()), text);
    if let Some(of) = &it.pod {
        let uid = of.uid.as_ref().map(|uid| format!(" (uid {uid})")).unwrap_or_default();
        line("pod", &format!("{}{uid}", pod(of)), text);
    }
    if let Kind::LeakedAddress(LeakedAddress { many: Some(many), .. }) = &it.kind {
        let first: Vec<String> = many.first.iter().map(ToString::to_string).collect();
        line("addresses", &format!("{}, the first: {}", many.count, first.join(" ")), text);
    }
    for id in &it.sandboxes {
        line("sandbox", id.as_str(), text);
    }
    if it.since == Timestamp::ZERO {
        line("since", "before this boot", text);
    } else {
        line("since", &wall_time(it.since, snapshot), text);
    }
    line("opened", &wall_time(it.opened_at, snapshot), text);
    if let Some(confirmed) = it.confirmed_at {
        line("confirmed", &wall_time(confirmed, snapshot), text);
    }
    if let Some(closed) = it.closed_at {
        line("closed", &wall_time(closed, snapshot), text);
    }
    line("node", &escaped(&snapshot.label.node), text);
    line("key", &escaped(it.key.as_str()), text);
}

fn line(name: &str, what: &str, text: &mut String) {
    _ = writeln!(text, "  {name:10} {what}");
}

fn wall_time(at: Timestamp, snapshot: &AgentSnapshot) -> String {
    format!("{} ({} ago)", Rfc3339(snapshot.label.wall_ns(at)), span(snapshot.now.since(at)))
}

/// Wraps sentences, indented by two columns.
fn wrap(said: &str, text: &mut String) {
    let mut used = 0;
    for word in said.split_whitespace() {
        if used > 0 && used + 1 + word.len() > WIDTH {
            text.push('\n');
            used = 0;
        }
        let before = if used == 0 { "  " } else { " " };
        *text += before;
        *text += word;
        used += before.len() + word.len();
    }
    text.push('\n');
}

/// Writes what led to the finding, and what it led to.
fn incident(it: &Finding, incidents: &Incidents<'_>, text: &mut String) {
    let Some(place) = incidents.place(&it.key).filter(|it| it.is_effect() || !it.effects.is_empty()) else {
        return;
    };
    let mut lines = String::new();
    for cause in place.causes.iter().take(SHOWN) {
        related("caused by", cause.finding, Some(cause.why), &mut lines);
    }
    unnamed(place.causes.len(), &mut lines);
    if let Some(with) = place.with {
        related("of the same sandbox as", with, None, &mut lines);
    }
    // The rest of the chain, up to its root.
    let mut above = place.causes.last().map(|cause| cause.finding).or(place.with);
    while let Some(place) = above.and_then(|it| incidents.place(&it.key)) {
        let cause = place.causes.last();
        if let Some(cause) = cause {
            related("which was caused by", cause.finding, Some(cause.why), &mut lines);
        }
        above = cause.map(|cause| cause.finding);
    }
    // What it led to, what that led to, and so on, each once.
    let mut effects = place.effects.clone();
    let mut seen_effects = BTreeSet::new();
    let mut how = "led to";
    while !effects.is_empty() {
        effects.retain(|it| seen_effects.insert(&it.key));
        effects.iter().take(SHOWN).for_each(|effect| related(how, effect, None, &mut lines));
        unnamed(effects.len(), &mut lines);
        effects =
            effects.iter().filter_map(|it| incidents.place(&it.key)).flat_map(|it| it.effects).collect();
        how = "which led to";
    }
    _ = write!(text, "\nIncident {}\n{lines}", short_key(&place.root.key));
}

/// Writes a finding that led to another one, or came of it.
fn related(how: &str, other: &Finding, why: Option<&str>, lines: &mut String) {
    let is_over = if other.stage == Stage::Closed { " (closed)" } else { "" };
    _ = writeln!(lines, "  {how} {}{is_over}", short_key(&other.key));
    _ = writeln!(lines, "      {}", brief(&other.kind.explain().summary()));
    if let Some(why) = why {
        _ = writeln!(lines, "      so: {why}");
    }
}

/// Writes how many of `count` findings are not named.
fn unnamed(count: usize, lines: &mut String) {
    if count > SHOWN {
        _ = writeln!(lines, "      and {} more", count - SHOWN);
    }
}

/// The errors that the runtime and the kubelet logged about it.
fn words(it: &Finding, text: &mut String) {
    if it.kind.said().is_empty() {
        return;
    }
    *text += "\nWhat was said\n";
    for Said { by, text: said, at, source } in it.kind.said() {
        _ = writeln!(text, "  {} by the {}, in {}", escaped(at), by.into_str(), escaped(source));
        _ = writeln!(text, "      {}", escaped(said));
    }
}

fn timeline(evidence: &[Change], it: &Finding, snapshot: &AgentSnapshot, text: &mut String) {
    let Some(first) = evidence.first() else {
        *text += "\nEvidence\n  ";
        *text += match it.stage {
            Stage::Closed => {
                "none is kept: it was found in records alone, or many findings have closed since\n"
            }
            Stage::Candidate | Stage::Confirmed if !it.kind.said().is_empty() => {
                "no event of its sandboxes is known, but what was said\n"
            }
            Stage::Candidate | Stage::Confirmed => {
                "no event of its sandboxes is known: it was found in records alone\n"
            }
        };
        return;
    };
    let hole = match left_out(it) {
        0 => String::new(),
        count => format!("; {} between the first and the last ones are not kept", counted(count, "event")),
    };
    _ = write!(text, "\nEvidence (+0 is {} UTC{hole})\n", TimeOfDay(snapshot.label.wall_ns(first.at)));
    let several = evidence.iter().any(|it| it.context.sandbox != first.context.sandbox);
    let rows: Vec<_> = evidence.iter().map(|it| (offset(it.at, first.at), it)).collect();
    let width = rows.iter().map(|(offset, _)| offset.chars().count()).max().unwrap_or(0);
    let names = rows.iter().map(|(_, it)| it.what.into_str().len()).max().unwrap_or(0);
    for (offset, it) in rows {
        let whose = match &it.context.sandbox {
            Some(id) if several => format!("{}  ", id.short()),
            Some(_) | None => String::new(),
        };
        let line = format!(
            "  {offset:>width$}  {}{:names$}  {}",
            whose,
            it.what.into_str(),
            cut(&brief(&detail(it)), DETAIL_WIDTH)
        );
        *text += line.trim_end();
        text.push('\n');
    }
}

fn offset(at: Timestamp, first: Timestamp) -> String {
    if at == first { "+0".to_owned() } else { format!("+{}", span(at.since(first))) }
}

/// Writes each call of a plugin, with all its arguments, as it was known when the finding was last reported.
fn calls(evidence: &[Change], it: &Finding, text: &mut String) {
    let Some(first) = evidence.first() else { return };
    let mut lines = String::new();
    for (place, change) in evidence.iter().enumerate() {
        let at = offset(change.at, first.at);
        match &change.what {
            ChangeKind::CniFinished { call, end, duration } => {
                let how = end.as_ref().map_or_else(|| "its end was not seen".to_owned(), ended);
                let said = called(call);
                _ = writeln!(lines, "  {said}\n      ended at {at}: {how}, after {}", span(*duration));
            }
            ChangeKind::CniStarted { call } if !is_finished(call, evidence) => {
                let reported_at = it.closed_at.or(it.confirmed_at).unwrap_or(it.opened_at);
                let until = offset(reported_at.max(change.at), first.at);
                // Events left out before the call began, or of another sandbox, cannot have its end.
                let may_be_left_out = of_sandbox(it, place).any(|later| later.event.left_out > 0);
                let how = if may_be_left_out {
                    "its end is not among the events that are kept".to_owned()
                } else {
                    format!("no end was seen by {until}")
                };
                _ = writeln!(lines, "  {}\n      began at {at}: {how}", called(call));
            }
            _ => {}
        }
    }
    if !lines.is_empty() {
        *text += "\nCNI calls\n";
        *text += &lines;
    }
}

/// Returns the evidence from this place on that is about the same sandbox.
fn of_sandbox(it: &Finding, place: usize) -> impl Iterator<Item = &Evidence> {
    let all = it.evidence.get(place..).unwrap_or_default();
    all.iter().filter(|later| later.sandbox == all[0].sandbox)
}

fn is_finished(of: &CniCall, evidence: &[Change]) -> bool {
    evidence.iter().any(|it| match &it.what {
        ChangeKind::CniFinished { call, .. } => call.process.key == of.process.key,
        _ => false,
    })
}

fn called(call: &CniCall) -> String {
    let netns = match call.netns.as_deref() {
        None => "CNI_NETNS not set".to_owned(),
        Some("") => "CNI_NETNS empty".to_owned(),
        Some(path) => format!("CNI_NETNS={}", escaped(path)),
    };
    let mut text = format!("{} {}: {netns}", escaped(&call.command), escaped(&call.plugin));
    if let Some(ifname) = &call.ifname {
        _ = write!(text, ", CNI_IFNAME={}", escaped(ifname));
    }
    _ = write!(text, ", process {}", call.process.key.pid);
    if let Some(by) = &call.called_by {
        _ = write!(text, ", called by {}", escaped(by));
    }
    text
}

fn ended(end: &End) -> String {
    match end.signal {
        None => format!("exit {}", end.code),
        Some(number) => {
            let name = signal_number(number).map_or_else(|| number.to_string(), str::to_owned);
            let by = end.killer.as_ref().map(|by| format!(" from {}", named(by))).unwrap_or_default();
            format!("killed by {name}{by}")
        }
    }
}

fn named(process: &Process) -> String {
    format!("{}[{}], child of {}", escaped(&process.comm), process.key.pid, process.parent.pid)
}

/// Writes which processes killed parts of the sandboxes. The end of a container's first process is an event
/// of the process and of the container, but one line here.
fn killer(evidence: &[Change], text: &mut String) {
    let mut lines = String::new();
    let mut seen = BTreeSet::new();
    for change in evidence {
        if let ChangeKind::ProcessExit { process, end } | ChangeKind::ContainerExited { process, end, .. } =
            &change.what
            && (end.killer.is_some() || end.oom)
            && seen.insert(process.key)
        {
            let why = if end.oom { " (out of memory)" } else { "" };
            let name = escaped(&process.comm).into_owned();
            _ = writeln!(lines, "  {name}[{}]: {}{why}", process.key.pid, ended(end));
        }
    }
    if !lines.is_empty() {
        *text += "\nKilled\n";
        *text += &lines;
    }
}

fn versions(it: &Finding, text: &mut String) {
    if it.programs.is_empty() {
        return;
    }
    *text += "\nPrograms\n";
    let paths: Vec<_> = it.programs.iter().map(|it| escaped(&it.path)).collect();
    let width = paths.iter().map(|path| path.chars().count()).max().unwrap_or(0);
    for (program, path) in it.programs.iter().zip(&paths) {
        let version = program.version.as_deref().unwrap_or("version not known");
        _ = writeln!(text, "  {path:width$}  {}", escaped(version));
    }
}

/// Writes which known problems it is or may be, and the programs whose later versions do not have them.
fn known(it: &Explanation<'_>, text: &mut String) {
    for (number, it) in it.fixed_in.iter().enumerate() {
        if number == 0 {
            *text += "\nFixed in a later version upstream (a distribution may have it in an older one)\n";
        }
        _ = writeln!(text, "  {} {}: fixed in {}", escaped(it.path), escaped(it.version), it.fixed);
        _ = writeln!(text, "      {}: {}", escaped(it.what), escaped(it.source));
    }
    for (number, it) in it.known.iter().enumerate() {
        if number == 0 {
            *text += "\nKnown as\n";
        }
        _ = writeln!(text, "  {} ({})", it.title, it.id);
        for link in it.links {
            _ = writeln!(text, "      {link}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::text;
    use crate::{
        cli::{ExitStatus, snapshot::AgentSnapshot},
        engine::incident::Incidents,
        model::{
            change::{ChangeKind, CniCall, End, Evidence, EvidenceEvent, Finding, Process},
            fact::{NodeFolders, Origin, PodName, ProgramFound, Said, Speaker},
            finding::{DaemonFailing, Key, Kind, OutOfOrder, Severity, Stage, TeardownOutOfOrder},
            id::{ContainerId, TaskKey},
            time::Timestamp,
        },
        sink::Label,
    };

    fn process(pid: u32, comm: &str) -> Process {
        Process { key: TaskKey::new(pid, 1), parent: TaskKey::new(1, 1), comm: comm.to_owned() }
    }

    fn snapshot() -> AgentSnapshot {
        let label = Label { node: "node-1".to_owned(), boot_id: "b".to_owned(), boot_wall_ns: 0 };
        AgentSnapshot {
            label,
            findings: Vec::new(),
            starts: Vec::new(),
            shares: Vec::new(),
            pods: Vec::new(),
            now: Timestamp(63_000_000_000),
            caveats: Vec::new(),
            done: ExitStatus::Ok,
        }
    }

    fn finding() -> Finding {
        let sandbox = ContainerId::parse("e6f3").expect("an id");
        let killer = process(77, "sh\x1b[2J");
        let call = |netns: Option<&str>| CniCall {
            command: "DEL".to_owned(),
            plugin: "bridge".to_owned(),
            netns: netns.map(str::to_owned),
            ifname: Some("eth0".to_owned()),
            process: process(80, "bridge"),
            called_by: None,
            delegated: false,
        };
        let end = End { code: 137, signal: Some(9), killer: Some(killer.clone()), oom: false };
        let told = [
            (1_000, ChangeKind::SandboxCreated),
            (1_250, ChangeKind::ProcessExit { process: process(50, "pause"), end: end.clone() }),
            (1_250, ChangeKind::ContainerExited { process: process(50, "pause"), end, ran: None }),
            (1_300, ChangeKind::CniStarted { call: call(Some("")).into() }),
            (
                1_340,
                ChangeKind::CniFinished {
                    call: call(Some("")).into(),
                    end: Some(End::default()),
                    duration: Duration::from_millis(40),
                },
            ),
        ];
        let evidence = told.map(|(ms, what)| Evidence {
            sandbox: sandbox.clone(),
            event: EvidenceEvent {
                at: Timestamp(ms * 1_000_000),
                origin: Origin::Kernel,
                container: None,
                netns: None,
                cgroup: None,
                what,
                left_out: 0,
            },
        });
        Finding {
            key: Key::parse("teardown_out_of_order/e6f3").expect("a key"),
            kind: Kind::TeardownOutOfOrder(TeardownOutOfOrder {
                how: OutOfOrder::PauseKilled,
                killer: Some(killer),
                signal: Some(9),
            }),
            severity: Severity::Warning,
            stage: Stage::Confirmed,
            since: Timestamp(1_250_000_000),
            opened_at: Timestamp(2_000_000_000),
            confirmed_at: Some(Timestamp(3_000_000_000)),
            closed_at: None,
            pod: Some(PodName {
                namespace: Some("default".to_owned()),
                name: Some("web-0".to_owned()),
                uid: None,
            }),
            sandboxes: vec![sandbox],
            gapped: true,
            evidence: evidence.to_vec(),
            programs: Vec::new(),
            runtimes: Vec::new(),
            folders: NodeFolders::default(),
        }
    }

    #[test]
    fn the_evidence_is_told_from_its_first_event_on() {
        let finding = finding();
        let said = text(&finding, &Incidents::of([&finding]), &snapshot());
        for part in [
            "  pod        default/web-0\n",
            "  since      1970-01-01T00:00:01.250000000Z (1m01s ago)\n",
            "Records were lost",
            "Evidence (+0 is 00:00:01.000000 UTC)\n       +0  sandbox.created   e6f3\n",
            "  +250 ms  container.exited",
            "DEL bridge: CNI_NETNS empty, CNI_IFNAME=eth0, process 80\n      ended at +340 ms: exit 0, after 40.0 ms\n",
            "  pause[50]: killed by SIGKILL from sh\\u{1b}[2J[77], child of 1\n",
        ] {
            assert!(said.contains(part), "no {part:?} in\n{said}");
        }
        assert_eq!(said.matches("DEL bridge: CNI_NETNS").count(), 1, "a call that ended is told once");
        assert_eq!(said.matches("pause[50]: killed").count(), 1, "a kill is told once");
        assert!(!said.contains('\x1b'));
    }

    #[test]
    fn versions_stand_in_one_column_behind_paths_that_are_escaped() {
        let program = |path: &str| ProgramFound { path: path.to_owned(), version: Some("v1".to_owned()) };
        let programs = vec![program("/opt/cni/bin/a\u{202e}\n"), program("/opt/cni/bin/bridge")];
        let finding = Finding { programs, ..finding() };
        let said = text(&finding, &Incidents::of([&finding]), &snapshot());
        let part = "\nPrograms\n  /opt/cni/bin/a\\u{202e}\\n  v1\n  /opt/cni/bin/bridge       v1\n";
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }

    /// Words of a log are evidence of their own, and may be anything.
    #[test]
    fn what_was_said_is_told_with_its_time_and_its_file() {
        let kind = Kind::DaemonFailing(DaemonFailing {
            daemon: "kubelet".to_owned(),
            plugins: Vec::new(),
            plugin_pod: None,
            count: 3,
            lasted: Duration::from_secs(9),
            down: false,
            killer: None,
            exit_code: 1,
            signal: None,
            oom: false,
            said: vec![Said {
                by: Speaker::Kubelet,
                text: "no\x1b[2J".to_owned(),
                at: "2026-11-25T09:29:07Z".to_owned(),
                source: "/var/log/kubelet.log".to_owned(),
            }],
            unsaid: None,
        });
        let finding = Finding { kind, evidence: Vec::new(), sandboxes: Vec::new(), ..finding() };
        let said = text(&finding, &Incidents::of([&finding]), &snapshot());
        for part in [
            "\nEvidence\n  no event of its sandboxes is known, but what was said\n",
            "\nWhat was said\n  2026-11-25T09:29:07Z by the kubelet, in /var/log/kubelet.log\n      no\\u{1b}[2J\n",
        ] {
            assert!(said.contains(part), "no {part:?} in\n{said}");
        }
    }

    /// The call may have ended since.
    #[test]
    fn a_call_without_an_end_is_told_with_the_time_up_to_which_it_had_none() {
        let mut finding = finding();
        finding.evidence.pop();
        for (closed_at, until) in [(None, "+2.00 s"), (Some(Timestamp(5_000_000_000)), "+4.00 s")] {
            finding.closed_at = closed_at;
            let said = text(&finding, &Incidents::of([&finding]), &snapshot());
            let part = format!("process 80\n      began at +300 ms: no end was seen by {until}\n");
            assert!(said.contains(&part), "no {part:?} in\n{said}");
        }
    }

    /// Its end may be one of the events that are not kept.
    #[test]
    fn beside_a_hole_in_the_evidence_no_call_is_told_to_have_no_end() {
        let mut finding = finding();
        finding.evidence.pop();
        let last = finding.evidence.len() - 1;
        finding.evidence[last].event.left_out = 12;
        let said = text(&finding, &Incidents::of([&finding]), &snapshot());
        for part in [
            "(+0 is 00:00:01.000000 UTC; 12 events between the first and the last ones are not kept)\n",
            "process 80\n      began at +300 ms: its end is not among the events that are kept\n",
        ] {
            assert!(said.contains(part), "no {part:?} in\n{said}");
        }
        // A call that began after the hole cannot have its end in it.
        finding.evidence[last].event.left_out = 0;
        finding.evidence[0].event.left_out = 12;
        let said = text(&finding, &Incidents::of([&finding]), &snapshot());
        assert!(said.contains("process 80\n      began at +300 ms: no end was seen by "), "{said}");
    }
}
