//! The spread over boots: the minimum, the median, the 90th percentile and the maximum of each number.
//!
//! Each number is ranked by itself: the numbers of one rank are from different boots, so periods do not add
//! up.

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    column::{COLUMNS, Row, differences},
    comparable,
    inexact::Inexact,
    report::RecoveryReport,
};
use crate::engine::share::rank;

/// The place among the numbers of all boots, the smallest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rank {
    Min,
    P50,
    P90,
    Max,
}

/// The numbers at one rank in nanoseconds, each over the boots that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    pub rank: Rank,
    pub columns: [Option<i64>; COLUMNS],
    pub periods: [Option<i64>; COLUMNS],
    /// From the zero to the last pod.
    pub whole: Option<i64>,
    pub inexact: Inexact,
}

impl Rank {
    pub const ALL: [Self; 4] = [Self::Min, Self::P50, Self::P90, Self::Max];

    /// Returns the percentile: this percentage of the numbers is not above it.
    fn percent(self) -> usize {
        match self {
            Self::Min => 0,
            Self::P50 => 50,
            Self::P90 => 90,
            Self::Max => 100,
        }
    }
}

/// Ranks the boots that count in the mean ([`comparable::counted`]), by nearest rank. Empty if none counts.
#[must_use]
pub fn spread<'a>(reports: impl Iterator<Item = &'a RecoveryReport> + Clone) -> Vec<Spread> {
    of_rows(&comparable::rows(reports))
}

/// Ranks comparable rows.
pub(super) fn of_rows(rows: &[(Row, Inexact)]) -> Vec<Spread> {
    if rows.is_empty() {
        return Vec::new();
    }
    let columns = sorted(rows.iter().map(|(row, inexact)| (*row, inexact.columns)));
    let periods = sorted(rows.iter().map(|(row, inexact)| (differences(row), inexact.periods)));
    Rank::ALL
        .map(|at| {
            let columns = columns.each_ref().map(|numbers| rank(numbers, at.percent()));
            let periods = periods.each_ref().map(|numbers| rank(numbers, at.percent()));
            let inexact = Inexact { columns: columns.map(is_inexact), periods: periods.map(is_inexact) };
            let columns = columns.map(|number| Some(number?.0));
            let periods = periods.map(|number| Some(number?.0));
            Spread { rank: at, columns, periods, whole: columns[COLUMNS - 1], inexact }
        })
        .into()
}

fn is_inexact(number: Option<(i64, bool)>) -> bool {
    number.is_some_and(|(_, is_inexact)| is_inexact)
}

/// Returns the sorted numbers of each column, each with whether it is inexact.
fn sorted(rows: impl Iterator<Item = (Row, [bool; COLUMNS])> + Clone) -> [Vec<(i64, bool)>; COLUMNS] {
    std::array::from_fn(|n| {
        let numbers = rows.clone().filter_map(|(row, inexact)| {
            let ns = row.get(n).copied().flatten()?;
            Some((ns, inexact.get(n).copied().unwrap_or_default()))
        });
        let mut numbers: Vec<_> = numbers.collect();
        numbers.sort_unstable();
        numbers
    })
}
