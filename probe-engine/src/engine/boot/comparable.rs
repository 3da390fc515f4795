//! Decides which boots are comparable, so that means and percentiles can be computed over them.
//!
//! **Invariant:** times that count from the order and times that count from the kernel's start are never
//! mixed, and neither are boots whose pods are back by different rules.

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    numbers::{COLUMNS, Numbers},
    report::RecoveryReport,
};

/// What counts of a boot among others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Counted {
    /// Each number that it has.
    Whole,
    /// All but the last pod, since more may come.
    NotComplete,
    /// All but the last pod, since not all pods were kept.
    Truncated,
    /// Nothing: its pods are back by another rule than those of the last boot.
    OtherRule,
    /// Nothing: its order is not known, and that of others is.
    OrderUnknown,
}

impl Counted {
    /// Whether any of its numbers count.
    #[must_use]
    pub fn is_in(self) -> bool {
        match self {
            Self::Whole | Self::NotComplete | Self::Truncated => true,
            Self::OtherRule | Self::OrderUnknown => false,
        }
    }
}

/// Returns what counts of each boot. A boot counts if its pods are back by the same rule as the last boot's,
/// and if its order is known or no such boot's order is.
#[must_use]
pub fn counted<'a>(reports: impl Iterator<Item = &'a RecoveryReport> + Clone) -> Vec<Counted> {
    let recovered = reports.clone().last().map(|report| report.recovered).unwrap_or_default();
    let any_order = reports.clone().any(|report| report.recovered == recovered && report.zero.is_order());
    reports
        .map(|report| {
            if report.recovered != recovered {
                Counted::OtherRule
            } else if any_order && !report.zero.is_order() {
                Counted::OrderUnknown
            } else if !report.is_closed() {
                Counted::NotComplete
            } else if report.is_truncated {
                Counted::Truncated
            } else {
                Counted::Whole
            }
        })
        .collect()
}

/// Returns the numbers that count.
pub(super) fn row(report: &RecoveryReport, counted: Counted) -> Option<Numbers> {
    let mut numbers = report.numbers;
    if counted != Counted::Whole {
        numbers.columns[COLUMNS - 1] = None;
        numbers.periods[COLUMNS - 1] = None;
    }
    counted.is_in().then_some(numbers)
}

/// Returns the rows of the boots that count.
pub(super) fn rows<'a>(reports: impl Iterator<Item = &'a RecoveryReport> + Clone) -> Vec<Numbers> {
    let all = reports.clone().zip(counted(reports));
    all.filter_map(|(report, counted)| row(report, counted)).collect()
}
