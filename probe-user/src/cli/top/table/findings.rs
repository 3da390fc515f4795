//! What is wrong, the most severe first, each effect below its cause: as `sandprobe findings` lists it.

use std::cmp::Reverse;

use super::{Cell, Column, Row, Table, Tone, age, cell, names, numbers, words};
use crate::{
    cli::{
        finding::list::{Listed, because, listed, row},
        top::{
            model::Data,
            query::{Pane, Query},
        },
    },
    engine::incident::{Incident, Incidents},
    model::{
        change::Finding,
        finding::{Severity, Stage},
        time::Timestamp,
    },
    sink::{escape::short_key, phase::pod, select::sort_incidents},
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
    let is_open = |it: &Finding| it.stage != Stage::Closed;
    let keeps = |it: &Finding| (query.closed || is_open(it)) && matches(it, query);
    let mut rows: Vec<(&Finding, Row)> = Vec::new();
    match query.order(Pane::Findings) {
        "severity" => {
            for it in all.iter().flat_map(|incident| listed(incident, keeps)) {
                rows.push((it.member.finding, row_of(&it, data)));
            }
        }
        // In any other order an effect does not stand below its cause.
        order => {
            let each = snapshot.findings.iter().filter(|it| keeps(it));
            for finding in each {
                let alone = all.iter().flat_map(|incident| listed(incident, |it| it.key == finding.key));
                rows.extend(alone.map(|it| (finding, row_of(&it, data))));
            }
            if order == "newest" {
                rows.sort_by_key(|(it, _)| (Reverse(it.since), it.key.clone()));
            } else {
                rows.sort_by_key(|(it, _)| (it.pod.as_ref().map_or_else(String::new, pod), it.key.clone()));
            }
        }
    }
    let open = snapshot.findings.iter().filter(|it| is_open(it)).count();
    let closed = snapshot.findings.len() - open;
    Table {
        count: if query.closed { format!("{open}, {closed} closed") } else { open.to_string() },
        columns: COLUMNS,
        rows: rows.into_iter().map(|(_, row)| row).collect(),
        empty: nothing(data),
    }
}

/// That nothing was found says something only if everything is seen.
fn nothing(data: &Data) -> String {
    match data.doctor.agent.reasons.first() {
        None => "nothing is wrong".to_owned(),
        Some(reason) => format!("nothing was found, but not all can be seen: {reason}"),
    }
}

fn matches(it: &Finding, query: &Query) -> bool {
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

/// A question mark behind what may yet come right by itself.
fn severity_of(it: &Finding, severity: &str) -> Cell {
    match (it.stage, it.severity) {
        (Stage::Closed, _) => cell("closed", Tone::Faint),
        (Stage::Candidate, _) => cell(format!("{severity}?"), Tone::Faint),
        (Stage::Confirmed, Severity::Critical) => cell(severity, Tone::Bad),
        (Stage::Confirmed, Severity::Warning) => cell(severity, Tone::Warning),
        (Stage::Confirmed, Severity::Info) => cell(severity, Tone::Plain),
    }
}
