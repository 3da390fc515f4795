//! What a restart of only a runtime or the kubelet cost: the columns and periods of its row, and statistics
//! over all restarts of a program.
//!
//! The columns: the new process started, the daemon was ready, a first pod started, the node was as before.
//! They count from the end of the old process.

use super::{
    average::Average,
    column::{COLUMNS, Row, differences},
    inexact::Inexact,
    spread::{Spread, of_rows},
};
use crate::model::{
    recovery::{Recovered, Restart, RestartClose, TimedSource},
    time::Timestamp,
};

/// The times of a restart in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartReport {
    pub columns: [Option<i64>; COLUMNS],
    pub periods: [Option<i64>; COLUMNS],
    /// The time until the node was as before.
    pub whole: Option<i64>,
    pub inexact: Inexact,
    /// Whether the end of the old process was seen. If not, the times count from the start of the new
    /// process.
    pub is_end_seen: bool,
}

/// The restarts of one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartStatistics<'a> {
    pub comm: &'a str,
    /// The number of restarts, including those that do not count in the average.
    pub all: usize,
    pub average: Average,
    pub spread: Vec<Spread>,
}

impl<'a> RestartStatistics<'a> {
    /// Returns the statistics of a program without restarts.
    #[must_use]
    pub fn none(comm: &'a str) -> Self {
        Self { comm, all: 0, average: Average::of(Recovered::default(), Vec::new()), spread: Vec::new() }
    }
}

impl RestartReport {
    #[must_use]
    pub fn of(restart: &Restart) -> Self {
        let zero = restart.zero();
        let is_zero_exact =
            restart.ended.is_some() || restart.started.is_none_or(|mark| mark.source.is_exact());
        let first_pod = restart.first_pod.as_ref().map(|pod| TimedSource::hooked(pod.at));
        let marks = [restart.started, restart.ready(), first_pod, restart.as_before()];
        let columns: Row = marks.map(|mark| Some(since(zero, mark?.at)));
        Self {
            columns,
            periods: differences(&columns),
            whole: columns[COLUMNS - 1],
            inexact: Inexact::of(is_zero_exact, marks.map(|mark| mark.map(|mark| mark.source))),
            is_end_seen: restart.ended.is_some(),
        }
    }
}

/// Returns the statistics of each program, in the order of their first restarts. A restart counts if its
/// beginning was seen and the node was as before afterwards.
#[must_use]
pub fn statistics<'a>(restarts: impl Iterator<Item = &'a Restart>) -> Vec<RestartStatistics<'a>> {
    let mut programs: Vec<Program<'a>> = Vec::new();
    for restart in restarts {
        let report = RestartReport::of(restart);
        let counts = report.is_end_seen && restart.close == Some(RestartClose::AsBefore);
        let row = counts.then_some((report.columns, report.inexact));
        match programs.iter_mut().find(|it| it.comm == restart.comm) {
            Some(known) => {
                known.all += 1;
                known.rows.extend(row);
            }
            None => programs.push(Program { comm: &restart.comm, all: 1, rows: row.into_iter().collect() }),
        }
    }
    programs
        .into_iter()
        .map(|Program { comm, all, rows }| RestartStatistics {
            comm,
            all,
            spread: of_rows(&rows),
            average: Average::of(Recovered::default(), rows),
        })
        .collect()
}

/// A program, the number of its restarts, and the rows of those that count.
struct Program<'a> {
    comm: &'a str,
    all: usize,
    rows: Vec<(Row, Inexact)>,
}

fn since(zero: Timestamp, at: Timestamp) -> i64 {
    let at = i64::try_from(at.0).unwrap_or(i64::MAX);
    at.saturating_sub(i64::try_from(zero.0).unwrap_or(i64::MAX))
}
