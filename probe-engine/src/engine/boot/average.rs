//! The means over several boots: of each column, and of its difference to the column before, which is the
//! mean period.
//!
//! **Invariant:** both sides of a difference are means over the same boots.

use std::array::from_fn;

use super::{
    comparable,
    numbers::{Number, Numbers, nth},
    report::RecoveryReport,
};
use crate::model::recovery::Recovered;

/// Mean times in nanoseconds, each column over the boots that have it, each period over those that have both
/// of its columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Average {
    /// The number of boots.
    pub boots: usize,
    /// The rule by which their pods count as back.
    pub recovered: Recovered,
    pub numbers: Numbers,
}

/// Returns the means over the boots that count ([`comparable::counted`]).
#[must_use]
pub fn average<'a>(reports: impl Iterator<Item = &'a RecoveryReport> + Clone) -> Average {
    let recovered = reports.clone().last().map(|report| report.recovered).unwrap_or_default();
    Average::of(recovered, &comparable::rows(reports))
}

impl Average {
    /// Averages comparable rows.
    pub(super) fn of(recovered: Recovered, rows: &[Numbers]) -> Self {
        let columns = from_fn(|n| mean(rows.iter().filter_map(|row| nth(&row.columns, n))));
        let periods = from_fn(|n| {
            let both = rows.iter().filter(|row| nth(&row.periods, n).is_some());
            let until = mean(both.clone().filter_map(|row| nth(&row.columns, n)))?;
            let since = match n.checked_sub(1) {
                Some(n) => mean(both.clone().filter_map(|row| nth(&row.columns, n)))?.ns,
                None => 0,
            };
            let period = mean(both.filter_map(|row| nth(&row.periods, n)))?;
            Some(Number { ns: until.ns - since, ..period })
        });
        Self { boots: rows.len(), recovered, numbers: Numbers { columns, periods } }
    }
}

/// Returns the mean, rounded to the nearest integer. It is inexact if any of the numbers is.
fn mean(numbers: impl Iterator<Item = Number> + Clone) -> Option<Number> {
    let is_inexact = numbers.clone().any(|it| it.is_inexact);
    let (sum, n) = numbers.fold((0_i128, 0_i128), |(sum, n), it| (sum + i128::from(it.ns), n + 1));
    if n == 0 {
        return None;
    }
    Some(Number { ns: i64::try_from((sum + n / 2).div_euclid(n)).ok()?, is_inexact })
}
