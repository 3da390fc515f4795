//! Which boots are comparable, so that a mean or a percentile can be made of them.
//!
//! **Invariant:** times that count from the order and times that count from the kernel's start are never mixed, nor are
//! those of pods that are back by one rule and by another.

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    column::{COLUMNS, Row},
    inexact::Inexact,
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

    fn has_last(self) -> bool {
        match self {
            Self::Whole => true,
            Self::NotComplete | Self::Truncated | Self::OtherRule | Self::OrderUnknown => false,
        }
    }
}

/// What counts of each: of the boots whose pods are back by the same rule as the last one's, and of these of those whose
/// order is known, if there are any.
#[must_use]
pub fn counted<'a>(studies: impl Iterator<Item = &'a RecoveryReport> + Clone) -> Vec<Counted> {
    let recovered = studies.clone().last().map(|study| study.recovered).unwrap_or_default();
    let is_from_order = |study: &RecoveryReport| study.zero.is_order();
    let any = studies.clone().any(|study| study.recovered == recovered && is_from_order(study));
    let of = |study: &RecoveryReport| {
        if study.recovered != recovered {
            Counted::OtherRule
        } else if any && !is_from_order(study) {
            Counted::OrderUnknown
        } else if !study.is_closed() {
            Counted::NotComplete
        } else if study.is_truncated {
            Counted::Truncated
        } else {
            Counted::Whole
        }
    };
    studies.map(of).collect()
}

/// The columns that count, and which of them are not exact.
pub(super) fn row(study: &RecoveryReport, counted: Counted) -> Option<(Row, Inexact)> {
    let mut columns = study.columns;
    columns[COLUMNS - 1].take_if(|_| !counted.has_last());
    counted.is_in().then(|| (columns, study.inexact.among(&columns)))
}

/// The rows of the boots that count.
pub(super) fn rows<'a>(studies: impl Iterator<Item = &'a RecoveryReport> + Clone) -> Vec<(Row, Inexact)> {
    let all = studies.clone().zip(counted(studies));
    all.filter_map(|(study, counted)| row(study, counted)).collect()
}
