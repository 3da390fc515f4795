//! Starts of pods as a picture: a row for each start, a bar for each phase.

use std::{collections::BTreeSet, time::Duration};

use super::{Bar, Chart, Row, Series, Table};
use crate::{
    engine::{share::Share, view::PodView},
    model::{
        change::ContainerRef,
        phase::{Kind, Listening, Phase, Start},
    },
    sink::{
        Label,
        render::{
            phase::{causes, marks, name, pod, socket, title, title_of},
            wall_clock::Rfc3339,
        },
        span::span,
    },
};

/// Draws a row for each start, in this order. A note names those of `pods` that have no start.
#[must_use]
pub fn chart(label: &Label, starts: &[Start], shares: &[Share], pods: &[PodView]) -> Chart {
    let slowest = starts.iter().map(Start::total).max();
    let mut rows: Vec<Row> = starts.iter().map(row).collect();
    if let Some(row) = rows.iter_mut().find(|row| Some(row.took) == slowest) {
        row.is_open = true;
    }
    Chart {
        title: "How pods started",
        noun: "pod",
        about: vec![
            ("node", label.node.clone()),
            ("boot", label.boot_id.clone()),
            ("booted", Rfc3339(i128::from(label.boot_wall_ns)).to_string()),
            ("starts", starts.len().to_string()),
            ("times", "of kernel events, from each start's beginning (docs/phases.md)".to_owned()),
        ],
        tables: table(shares).into_iter().collect(),
        rows: rows.into_iter().zip(starts).map(|(row, start)| dated(row, start, label)).collect(),
        notes: unseen(pods, starts).into_iter().collect(),
    }
}

fn row(start: &Start) -> Row {
    Row {
        name: pod(&start.pod),
        marks: marks(start),
        begin: Duration::from_nanos(start.begin.0),
        took: start.total(),
        bars: bars(start),
        ..Row::default()
    }
}

fn dated(mut row: Row, start: &Start, label: &Label) -> Row {
    row.facts.push(("began", Rfc3339(label.wall_ns(start.begin)).to_string()));
    row.facts.push(("sandbox", start.sandbox.to_string()));
    if let Some(uid) = &start.pod.uid {
        row.facts.push(("uid", uid.to_string()));
    }
    row
}

/// The phases; after the last phase of each container the time until it listened.
fn bars(start: &Start) -> Vec<Bar> {
    let mut bars: Vec<Bar> = start.phases.iter().map(|phase| bar(start, phase)).collect();
    for it in &start.listening {
        let beyond = beyond(start, it);
        let last = bars.iter().rposition(|bar| bar.lane == beyond.lane);
        bars.insert(last.map_or(bars.len(), |last| last + 1), beyond);
    }
    bars
}

fn beyond(start: &Start, it: &Listening) -> Bar {
    let marks = [(it.gapped, "gapped"), (it.suspended, "suspended")];
    Bar {
        lane: lane(&it.container),
        name: title_of(&Kind::Listening, &it.container),
        tone: Series::Listening,
        at: it.begin.since(start.begin),
        took: Some(it.took()),
        is_part: false,
        marks: marks.into_iter().filter_map(|(is_so, mark)| is_so.then_some(mark)).collect(),
        notes: vec![socket(it.socket)],
    }
}

fn lane(container: &ContainerRef) -> String {
    match &container.name {
        Some(name) => format!("container {name}"),
        None => container.id.short().to_owned(),
    }
}

fn bar(start: &Start, phase: &Phase) -> Bar {
    let lane = phase.container.as_ref().map_or_else(|| "sandbox".to_owned(), lane);
    let mut marks = Vec::new();
    if matches!(phase.kind, Kind::Init | Kind::PostStart) {
        marks.push("inferred");
    }
    if phase.gapped {
        marks.push("gapped");
    }
    Bar {
        lane,
        name: title(phase),
        tone: tone(&phase.kind),
        at: phase.begin.since(start.begin),
        took: Some(phase.took()),
        is_part: true,
        marks,
        notes: causes(phase),
    }
}

/// The meaning of each phase's bar.
#[must_use]
pub(crate) fn meaning(kind: &Kind) -> &'static str {
    tone(kind).meaning()
}

fn tone(kind: &Kind) -> Series {
    match kind {
        Kind::Prepare => Series::Prepare,
        Kind::Retry => Series::Retry,
        Kind::Netns => Series::Netns,
        Kind::Cni { .. } => Series::Cni,
        Kind::Between => Series::Between,
        Kind::Pause => Series::Pause,
        Kind::Image => Series::Image,
        Kind::Runtime => Series::Runtime,
        Kind::Cgroup => Series::Cgroup,
        Kind::PostStart | Kind::Init => Series::Init,
        Kind::Listening => Series::Listening,
    }
}

fn table(shares: &[Share]) -> Option<Table> {
    if shares.is_empty() {
        return None;
    }
    let mut rows = Vec::with_capacity(shares.len());
    for it in shares {
        let phase = it.kind.as_ref().map_or_else(|| "whole start".to_owned(), name);
        rows.push(vec![phase, it.starts.to_string(), span(it.p50), span(it.p90), span(it.p99)]);
    }
    Some(Table {
        title: "Each phase on this node, of the starts that were seen whole",
        headings: vec!["phase", "starts", "p50", "p90", "p99"],
        rows,
    })
}

/// Names the pods that started before the agent did.
fn unseen(pods: &[PodView], starts: &[Start]) -> Option<String> {
    let seen: BTreeSet<_> = starts.iter().filter_map(|start| start.pod.uid.as_ref()).collect();
    let names: Vec<String> = pods
        .iter()
        .filter(|it| it.start.is_none() && !it.uid.as_ref().is_some_and(|uid| seen.contains(uid)))
        .map(|it| pod(&it.named()))
        .collect();
    (!names.is_empty()).then(|| format!("No start was seen of {}: {}", names.len(), names.join(", ")))
}
