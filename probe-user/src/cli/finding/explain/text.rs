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
        *text += "\nEvidence\n";
        wrap(&without_events(it, snapshot.now), text);
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

/// Returns what a finding rests on that has no events of sandboxes.
fn without_events(it: &Finding, now: Timestamp) -> String {
    let lasted = it.closed_at.unwrap_or(now).since(it.since);
    if let Some(evidence) = it.kind.explain().rests_on(lasted) {
        return evidence;
    }
    let what = match it.stage {
        Stage::Closed if it.sandboxes.is_empty() => "no sandbox of it is known",
        Stage::Closed => "none is kept: its sandboxes had no events, or many findings have closed since",
        Stage::Candidate | Stage::Confirmed if !it.kind.said().is_empty() => {
            "no event of its sandboxes is known, but what was said"
        }
        Stage::Candidate | Stage::Confirmed if it.sandboxes.is_empty() => "no sandbox of it is known",
        Stage::Candidate | Stage::Confirmed => {
            "no event of its sandboxes is known: it was found by reading the node or the runtime's list"
        }
    };
    what.to_owned()
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
mod tests;
