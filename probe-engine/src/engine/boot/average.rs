//! The means over several boots: of each column, and of its difference to the column before, which is the
//! mean period.
//!
//! **Invariant:** both sides of a difference are means over the same boots.

use super::{
    column::{COLUMNS, Row},
    comparable,
    inexact::Inexact,
    report::RecoveryReport,
};
use crate::model::recovery::Recovered;

/// Mean times in nanoseconds, each column over the boots that have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Average {
    /// The number of boots.
    pub boots: usize,
    /// The rule by which their pods count as back.
    pub recovered: Recovered,
    pub columns: [Option<i64>; COLUMNS],
    /// The periods: each column less the one before (the first less the zero), over the boots that have both
    /// columns.
    pub differences: [Option<i64>; COLUMNS],
    /// From the zero to the last pod.
    pub whole: Option<i64>,
    pub inexact: Inexact,
}

/// Returns the means over the boots that count ([`comparable::counted`]).
#[must_use]
pub fn average<'a>(reports: impl Iterator<Item = &'a RecoveryReport> + Clone) -> Average {
    let recovered = reports.clone().last().map(|report| report.recovered).unwrap_or_default();
    Average::of(recovered, comparable::rows(reports))
}

impl Average {
    /// Averages comparable rows.
    pub(super) fn of(recovered: Recovered, rows: Vec<(Row, Inexact)>) -> Self {
        let (rows, inexact): (Vec<Row>, Vec<Inexact>) = rows.into_iter().unzip();
        let columns: Row =
            std::array::from_fn(|n| mean(rows.iter().filter_map(|row| row.get(n).copied().flatten())));
        Self {
            boots: rows.len(),
            recovered,
            columns,
            differences: std::array::from_fn(|n| {
                let both = rows.iter().filter_map(|row| {
                    let before = n.checked_sub(1).map_or(Some(0), |n| row.get(n).copied().flatten());
                    Some((before?, row.get(n).copied().flatten()?))
                });
                Some(mean(both.clone().map(|(_, it)| it))? - mean(both.map(|(before, _)| before))?)
            }),
            whole: columns[COLUMNS - 1],
            inexact: inexact.into_iter().fold(Inexact::default(), Inexact::or),
        }
    }
}

/// Returns the mean, rounded to the nearest integer.
fn mean(values: impl Iterator<Item = i64>) -> Option<i64> {
    let (sum, n) = values.fold((0_i128, 0_i128), |(sum, n), value| (sum + i128::from(value), n + 1));
    if n == 0 { None } else { i64::try_from((sum + n / 2).div_euclid(n)).ok() }
}
