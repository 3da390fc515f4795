//! What is wrong, the most severe first, each effect below its cause: as `sandprobe findings` lists it.

use std::cmp::Reverse;

use super::{Cell, Column, Row, Table, Tone, age, cell, names, numbers, words};
use crate::{
    cli::{
        finding::list::{Listed, because, listed, row},
        top::{
            model::{Data, Doctor},
            query::{Pane, Query},
        },
    },
    engine::incident::{Incident, Incidents},
    model::{
        change::Finding,
        finding::{Severity, Stage},
        time::Timestamp,
    },
    sink::{
        escape::{escaped, short_key},
        render::phase::pod,
        select::findings::sort_incidents,
    },
};

const COLUMNS: &[Column] = &[
    words("SEVERITY", 8, 8),
    words("KIND", 20, 34),
    names("POD", 14, 48),
    numbers("AGE", 6),
    words("SUMMARY", 24, usize::MAX),
];

pub(super) fn table(data: &Data, query: &Query) -> Table {
    let snapshot = &data.state.snapshot;
    let incidents = Incidents::of(&snapshot.findings);
    let mut all: Vec<Incident<'_>> = incidents.all();
    sort_incidents(&mut all);
    let mut rows: Vec<(&Finding, Row)> = Vec::new();
    match query.order(Pane::Findings) {
        "severity" => {
            for it in all.iter().flat_map(|incident| listed(incident, |it| keeps(it, query))) {
                rows.push((it.member.finding, row_of(&it, data)));
            }
        }
        // In any other order an effect is not below its cause.
        order => {
            let members = all.iter().flat_map(|incident| &incident.members);
            for member in members.filter(|it| keeps(it.finding, query)) {
                rows.push((member.finding, row_of(&Listed::alone(member), data)));
            }
            if order == "newest" {
                rows.sort_by_key(|(it, _)| (Reverse(it.since), &it.key));
            } else {
                rows.sort_by_cached_key(|(it, _)| (it.pod.as_ref().map(pod).unwrap_or_default(), &it.key));
            }
        }
    }
    let open = snapshot.findings.iter().filter(|it| it.stage != Stage::Closed).count();
    let closed = snapshot.findings.len() - open;
    Table {
        count: if query.closed { format!("{open}, {closed} closed") } else { open.to_string() },
        columns: COLUMNS,
        rows: rows.into_iter().map(|(_, row)| row).collect(),
        empty: nothing(data),
    }
}

/// Returns the text for no findings: it says that nothing is wrong only if everything is seen, and was seen.
fn nothing(data: &Data) -> String {
    let Doctor { agent, signals, .. } = &data.doctor;
    let unseen: Vec<&str> =
        signals.iter().filter(|it| it.mechanism.is_none()).map(|it| it.signal.as_str()).collect();
    let lost = agent.lost();
    let mut why = agent.reasons.iter().take(1).cloned().collect::<Vec<_>>();
    // The reason may be such a signal.
    if why.is_empty() && !unseen.is_empty() {
        why.push(format!("{} not seen", unseen.join(", ")));
    }
    if lost > 0 {
        why.push(format!("{lost} {} lost", if lost == 1 { "record" } else { "records" }));
    }
    if why.is_empty() {
        return "nothing is wrong".to_owned();
    }
    escaped(&format!("nothing was found, but not all can be seen: {}", why.join(", "))).into_owned()
}

fn keeps(it: &Finding, query: &Query) -> bool {
    (query.closed || it.stage != Stage::Closed) && matches(it, query)
}

fn matches(it: &Finding, query: &Query) -> bool {
    if query.filter.is_empty() {
        // No text has to be made.
        return true;
    }
    let pod = it.pod.as_ref().map(pod).unwrap_or_default();
    let summary = it.kind.explain().summary();
    query.matches([it.key.as_str(), it.kind.into_str(), it.severity.into_str(), &pod, &summary])
}

fn row_of(listed: &Listed<'_, '_>, data: &Data) -> Row {
    let it = listed.member.finding;
    let [stage, severity, kind, pod, _, summary, _] = row(listed, data.now());
    let because = because(listed).map(|because| format!("; {because}")).unwrap_or_default();
    let said = format!("{summary}{because} ({stage}, {})", short_key(&it.key));
    let since = match it.since {
        Timestamp::ZERO => "boot".to_owned(),
        since => age(data.now().since(since)),
    };
    let tone = if it.stage == Stage::Closed { Tone::Faint } else { Tone::Plain };
    let cells = [
        severity_of(it, &severity),
        cell(kind, tone),
        cell(pod, tone),
        cell(since, tone),
        cell(summary, tone),
    ];
    Row::new(it.key.as_str(), cells, said)
}

/// Returns the severity, with a question mark if it may yet come right by itself.
fn severity_of(it: &Finding, severity: &str) -> Cell {
    match (it.stage, it.severity) {
        (Stage::Closed, _) => cell("closed", Tone::Faint),
        (Stage::Candidate, _) => cell(format!("{severity}?"), Tone::Faint),
        (Stage::Confirmed, Severity::Critical) => cell(severity, Tone::Bad),
        (Stage::Confirmed, Severity::Warning) => cell(severity, Tone::Warning),
        (Stage::Confirmed, Severity::Info) => cell(severity, Tone::Plain),
    }
}
