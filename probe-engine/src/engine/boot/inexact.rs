//! Which numbers of a row are known less well than an event's own time.

use super::column::{COLUMNS, differences};
use crate::model::recovery::Source;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inexact {
    pub columns: [bool; COLUMNS],
    /// Each is the difference of two columns: from where both count has no part in it, but in the first.
    pub periods: [bool; COLUMNS],
}

impl Inexact {
    /// By how the zero and each column are known; a column that is not known is not known inexactly either.
    #[must_use]
    pub(crate) fn of(is_zero_exact: bool, columns: [Option<Source>; COLUMNS]) -> Self {
        let is_inexact = |source: Source| !source.is_exact();
        let of_zero = !is_zero_exact;
        let own = columns.map(|source| source.is_some_and(is_inexact));
        let of_both = |n: usize| {
            let before = n.checked_sub(1).map_or(of_zero, |n| own.get(n).copied().unwrap_or_default());
            before || own.get(n).copied().unwrap_or_default()
        };
        Self {
            columns: columns.map(|source| source.is_some_and(|source| of_zero || is_inexact(source))),
            periods: std::array::from_fn(of_both),
        }
    }

    /// Those of the columns that are known here, and of the periods between two of them.
    #[must_use]
    pub(crate) fn among(self, columns: &[Option<i64>; COLUMNS]) -> Self {
        let and = |marks: [bool; COLUMNS], known: [Option<i64>; COLUMNS]| {
            let mut both = marks;
            both.iter_mut().zip(known).for_each(|(it, known)| *it &= known.is_some());
            both
        };
        Self { columns: and(self.columns, *columns), periods: and(self.periods, differences(columns)) }
    }

    /// Of a mean: what is in any of the rows that it is made of.
    #[must_use]
    pub(crate) fn or(self, other: Self) -> Self {
        let or = |one: [bool; COLUMNS], other: [bool; COLUMNS]| {
            let mut both = one;
            both.iter_mut().zip(other).for_each(|(it, other)| *it |= other);
            both
        };
        Self { columns: or(self.columns, other.columns), periods: or(self.periods, other.periods) }
    }
}
