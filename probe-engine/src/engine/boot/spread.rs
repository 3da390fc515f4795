//! How far boots are from each other: the least, the median, the ninth in ten, and the most of each number.
//!
//! Each number stands by itself: those of one rank are of different boots, so that periods do not add up.

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

/// The numbers of a rank, nanoseconds; of each among the boots that have it.
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

    /// So many in a hundred are not above it.
    fn percent(self) -> usize {
        match self {
            Self::Min => 0,
            Self::P50 => 50,
            Self::P90 => 90,
            Self::Max => 100,
        }
    }
}

/// Of the boots that count in the mean ([`comparable::counted`]); nearest rank. Empty if none does.
#[must_use]
pub fn spread<'a>(studies: impl Iterator<Item = &'a RecoveryReport> + Clone) -> Vec<Spread> {
    of_rows(&comparable::rows(studies))
}

/// Of comparable rows.
pub(super) fn of_rows(rows: &[(Row, Inexact)]) -> Vec<Spread> {
    if rows.is_empty() {
        return Vec::new();
    }
    let columns = sorted(rows.iter().map(|(row, inexact)| (*row, inexact.columns)));
    let periods = sorted(rows.iter().map(|(row, inexact)| (differences(row), inexact.periods)));
    let of = |at: Rank| {
        let pick = |numbers: &[Vec<(i64, bool)>; COLUMNS]| {
            numbers.each_ref().map(|numbers| rank(numbers, at.percent()))
        };
        let (columns, periods) = (pick(&columns), pick(&periods));
        let value = |number: Option<(i64, bool)>| number.map(|(ns, _)| ns);
        let is_inexact = |number: Option<(i64, bool)>| number.is_some_and(|(_, is_inexact)| is_inexact);
        let inexact = Inexact { columns: columns.map(is_inexact), periods: periods.map(is_inexact) };
        let columns = columns.map(value);
        Spread { rank: at, columns, periods: periods.map(value), whole: columns[COLUMNS - 1], inexact }
    };
    Rank::ALL.map(of).into()
}

/// The numbers of each column, each with whether it is not exact, in order.
fn sorted(rows: impl Iterator<Item = (Row, [bool; COLUMNS])> + Clone) -> [Vec<(i64, bool)>; COLUMNS] {
    std::array::from_fn(|n| {
        let of_row = |(row, inexact): (Row, [bool; COLUMNS])| {
            let ns = row.get(n).copied().flatten()?;
            Some((ns, inexact.get(n).copied().unwrap_or_default()))
        };
        let mut numbers: Vec<_> = rows.clone().filter_map(of_row).collect();
        numbers.sort_unstable();
        numbers
    })
}
