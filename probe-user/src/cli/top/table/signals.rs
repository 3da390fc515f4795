//! How each signal is seen: by which mechanism, and which of them are seen less well than could be.

use std::cmp::Reverse;

use super::{Column, Row, Table, Tone, cell, words};
use crate::cli::top::{
    model::{Data, Grade, Signal},
    query::{Pane, Query},
};

const COLUMNS: &[Column] = &[
    words("SIGNAL", 16, 20),
    words("SEEN", 8, 8),
    words("MECHANISM", 14, 24),
    words("NOTE", 18, usize::MAX),
];

pub(super) fn table(data: &Data, query: &Query) -> Table {
    let mut signals: Vec<&Signal> = data.doctor.signals.iter().collect();
    match query.order(Pane::Signals) {
        "name" => signals.sort_by_key(|it| &it.signal),
        // Signals of one grade stay in the agent's order, which is that of a pod's life.
        _ => signals.sort_by_key(|it| (it.mechanism.is_some(), Reverse(it.grade))),
    }
    let full = signals.iter().filter(|it| it.grade == Grade::Full).count();
    let count = match signals.len() - full {
        0 => full.to_string(),
        less => format!("{}, {less} degraded", signals.len()),
    };
    let rows = signals.iter().map(|it| row(it)).filter(|row| row.matches(query)).collect();
    Table { count, columns: COLUMNS, rows, empty: "the agent names no signal".to_owned() }
}

/// Returns how well the signal is seen, in words.
pub(in crate::cli::top) fn seen(it: &Signal) -> (&'static str, Tone) {
    match (&it.mechanism, it.grade) {
        (None, _) => ("not seen", Tone::Bad),
        (Some(_), Grade::Full) => ("full", Tone::Good),
        (Some(_), Grade::Degraded | Grade::Cannot) => ("degraded", Tone::Warning),
    }
}

fn row(it: &Signal) -> Row {
    let (seen, tone) = seen(it);
    let mechanism = it.mechanism.as_deref().unwrap_or("-");
    let note = match (&it.mechanism, it.lacks.as_str()) {
        (None, "") => {
            it.missed.first().map(|it| format!("not {}: {}", it.mechanism, it.why)).unwrap_or_default()
        }
        (None, lacks) => format!("it needs {lacks}"),
        (Some(_), _) => it.note.clone(),
    };
    let said = if note.is_empty() {
        format!("{}: {seen}, by {mechanism} ({})", it.signal, it.programs.join(", "))
    } else {
        format!("{}: {seen}; {note}", it.signal)
    };
    let cells = [
        cell(&it.signal, Tone::Plain),
        cell(seen, tone),
        cell(mechanism, Tone::Plain),
        cell(&note, Tone::Plain),
    ];
    Row::new(&it.signal, cells, said)
}
