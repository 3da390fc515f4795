//! Marks the numbers of a row that are less exact than an event's own time.

use super::column::{COLUMNS, Row, differences};
use crate::model::recovery::Source;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inexact {
    pub columns: [bool; COLUMNS],
    /// A period is the difference of two columns, so the zero matters only for the first period.
    pub periods: [bool; COLUMNS],
}

impl Inexact {
    /// Takes the source of each column. A column that is not known is not inexact.
    #[must_use]
    pub(crate) fn of(is_zero_exact: bool, columns: [Option<Source>; COLUMNS]) -> Self {
        let own = columns.map(|source| source.is_some_and(|source| !source.is_exact()));
        Self {
            columns: columns.map(|source| source.is_some_and(|source| !is_zero_exact || !source.is_exact())),
            periods: std::array::from_fn(|n| {
                let before =
                    n.checked_sub(1).map_or(!is_zero_exact, |n| own.get(n).copied().unwrap_or_default());
                before || own.get(n).copied().unwrap_or_default()
            }),
        }
    }

    /// Keeps the marks of the columns that are known here, and of the periods between two of them.
    #[must_use]
    pub(crate) fn among(self, columns: &[Option<i64>; COLUMNS]) -> Self {
        Self { columns: and(self.columns, *columns), periods: and(self.periods, differences(columns)) }
    }

    /// Marks what is marked in either. A mean is inexact where any of its rows is.
    #[must_use]
    pub(crate) fn or(self, other: Self) -> Self {
        Self { columns: or(self.columns, other.columns), periods: or(self.periods, other.periods) }
    }
}

fn and(mut marks: [bool; COLUMNS], known: Row) -> [bool; COLUMNS] {
    marks.iter_mut().zip(known).for_each(|(it, known)| *it &= known.is_some());
    marks
}

fn or(mut one: [bool; COLUMNS], other: [bool; COLUMNS]) -> [bool; COLUMNS] {
    one.iter_mut().zip(other).for_each(|(it, other)| *it |= other);
    one
}
