//! The spread over boots: the minimum, the median, the 90th percentile and the maximum of each number.
//!
//! Each number is ranked by itself: the numbers of one rank are from different boots, so periods do not add
//! up.

use std::array::from_fn;

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    comparable,
    numbers::{COLUMNS, Number, Numbers, Row, nth},
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

/// The numbers at each rank, each over the boots that have it. Empty if no boot counts.
pub type Spread = Vec<(Rank, Numbers)>;

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

/// Ranks the boots that count in the mean ([`comparable::counted`]), by nearest rank.
#[must_use]
pub fn spread<'a>(reports: impl Iterator<Item = &'a RecoveryReport> + Clone) -> Spread {
    of_rows(&comparable::rows(reports))
}

/// Ranks comparable rows.
pub(super) fn of_rows(rows: &[Numbers]) -> Spread {
    if rows.is_empty() {
        return Vec::new();
    }
    let columns = sorted(rows.iter().map(|row| row.columns));
    let periods = sorted(rows.iter().map(|row| row.periods));
    Rank::ALL
        .map(|at| {
            let columns = columns.each_ref().map(|numbers| rank(numbers, at.percent()));
            let periods = periods.each_ref().map(|numbers| rank(numbers, at.percent()));
            (at, Numbers { columns, periods })
        })
        .into()
}

/// Returns the sorted numbers of each column.
fn sorted(rows: impl Iterator<Item = Row> + Clone) -> [Vec<Number>; COLUMNS] {
    from_fn(|n| {
        let mut numbers: Vec<Number> = rows.clone().filter_map(|row| nth(&row, n)).collect();
        numbers.sort_unstable();
        numbers
    })
}
