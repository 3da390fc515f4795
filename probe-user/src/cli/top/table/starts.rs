//! The starts of pods: first those that go on, each with its present phase, then the others with their
//! slowest phase.

use std::{cmp::Reverse, time::Duration};

use super::{Column, Row, Table, Tone, age, cell, names, numbers, words};
use crate::{
    cli::{
        pods::SLOW,
        top::{
            model::{Data, Pod},
            query::{Pane, Query},
        },
    },
    model::{
        phase::{Kind, Start},
        time::Timestamp,
    },
    sink::{
        render::phase::{causes, marks, name, pod, summary, title},
        span::span,
    },
};

const COLUMNS: &[Column] = &[
    names("POD", 16, 52),
    numbers("ENDED", 6),
    numbers("TOOK", 7),
    words("PHASE", 12, 28),
    numbers("FOR", 7),
    words("WHY", 20, usize::MAX),
];

/// A row with what it is sorted by.
struct Sorted {
    goes_on: bool,
    took: Duration,
    begin: Timestamp,
    row: Row,
}

pub(super) fn table(data: &Data, query: &Query) -> Table {
    let starts = data.state.snapshot.starts.iter().map(|start| of_start(&data.as_of_now(start), data));
    let waiting = data.state.pods.iter().filter_map(|it| of_waiting(it, it.waiting_since?, data));
    let mut all: Vec<Sorted> = starts.chain(waiting).collect();
    let goes_on = all.iter().filter(|it| it.goes_on).count();
    let count = format!("{goes_on} now, {} past", all.len() - goes_on);
    all.retain(|it| it.row.matches(query));
    match query.order(Pane::Starts) {
        "newest" => all.sort_by_cached_key(|it| (Reverse(it.goes_on), Reverse(it.begin), pod_of(it))),
        "pod" => all.sort_by_cached_key(|it| (pod_of(it), Reverse(it.begin))),
        _ => all.sort_by_cached_key(|it| (Reverse(it.goes_on), Reverse(it.took), pod_of(it))),
    }
    let rows = all.into_iter().map(|it| it.row).collect();
    Table { count, columns: COLUMNS, rows, empty: "no start was seen since the agent began".to_owned() }
}

fn pod_of(it: &Sorted) -> Option<String> {
    it.row.cells.first().map(|cell| cell.text.clone())
}

fn of_start(start: &Start, data: &Data) -> Sorted {
    let phase = if start.waits { start.phases.last() } else { start.slowest() };
    let mut why: Vec<String> = phase.map(causes).unwrap_or_default();
    if !start.missing.is_empty() {
        why.push(format!("without {}", start.missing.join(", ")));
    }
    if !start.waits {
        why.extend(marks(start).into_iter().map(str::to_owned));
    }
    let name = pod(&start.pod);
    let (ended, tone) = if start.waits {
        ("now".to_owned(), Tone::Live)
    } else {
        let tone = if start.without_pulls() > SLOW { Tone::Warning } else { Tone::Plain };
        (age(data.now().since(start.end)), tone)
    };
    let said = match (start.waits, phase) {
        (true, Some(phase)) => {
            format!("{name} has been starting for {}, now in {} ", span(start.total()), title(phase))
        }
        (true, None) => format!("{name} has been starting for {}", span(start.total())),
        (false, _) => format!("{name} started {}", summary(start)),
    };
    let said = if why.is_empty() { said } else { format!("{}; {}", said.trim_end(), why.join("; ")) };
    let cells = [
        cell(&name, tone),
        cell(ended, tone),
        cell(span(start.total()), tone),
        cell(phase.map(title).unwrap_or_default(), tone),
        cell(phase.map(|phase| span(phase.took())).unwrap_or_default(), tone),
        cell(why.join("; "), tone),
    ];
    Sorted {
        goes_on: start.waits,
        took: start.total(),
        begin: start.begin,
        row: Row::new(start.sandbox.as_str(), cells, said.trim_end()),
    }
}

/// A pod without a sandbox has no start yet.
fn of_waiting(it: &Pod, since: Timestamp, data: &Data) -> Option<Sorted> {
    const WHY: &str = "it has no sandbox yet";
    let name_of = pod(&it.name);
    let took = data.now().since(since);
    let uid = it.name.uid.as_ref()?;
    let cells =
        [name_of.clone(), "now".to_owned(), span(took), name(&Kind::Prepare), span(took), WHY.to_owned()];
    let said = format!("{name_of} has been starting for {}: {WHY}", span(took));
    let row = Row::new(uid.as_str(), cells.map(|text| cell(text, Tone::Live)), said);
    Some(Sorted { goes_on: true, took, begin: since, row })
}
