//! The numbers of a boot, of a restart of a daemon, and of several of them: times from the zero, and the
//! periods between these.

use std::array::from_fn;

use crate::model::recovery::TimedSource;

/// For a boot: kubelet start, first static pod, first service pod, last service pod. For a restart of a
/// daemon: the new process started, the daemon was ready, a first pod started, the node was as before.
pub const COLUMNS: usize = 4;

/// `None` where a number is not known.
pub type Row = [Option<Number>; COLUMNS];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number {
    pub ns: i64,
    /// It is less exact than an event's own time.
    pub is_inexact: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Times from the zero.
    pub columns: Row,
    /// Each column less the one before; the first less the zero, so only the first is as exact as that.
    pub periods: Row,
}

impl Numbers {
    /// `before_ns`: how long before the clock's zero the zero of the numbers is.
    pub(super) fn of(marks: [Option<TimedSource>; COLUMNS], before_ns: i64, is_zero_exact: bool) -> Self {
        let mut columns = marks.map(|mark| {
            let TimedSource { at, source } = mark?;
            let ns = i64::try_from(at.0).unwrap_or(i64::MAX).saturating_add(before_ns);
            Some(Number { ns, is_inexact: !source.is_exact() })
        });
        let [first, second, third, _] = columns;
        let zero = Number { ns: 0, is_inexact: !is_zero_exact };
        let periods = less(columns, [Some(zero), first, second, third]);
        columns.iter_mut().flatten().for_each(|number| number.is_inexact |= !is_zero_exact);
        Self { columns, periods }
    }

    /// Returns the time from the zero to the end.
    #[must_use]
    pub fn whole(&self) -> Option<Number> {
        self.columns[COLUMNS - 1]
    }

    /// Returns these numbers less those of another, where both have them.
    pub(super) fn less(&self, other: &Self) -> Self {
        Self { columns: less(self.columns, other.columns), periods: less(self.periods, other.periods) }
    }
}

pub(super) fn nth(row: &Row, n: usize) -> Option<Number> {
    row.get(n).copied().flatten()
}

fn less(one: Row, other: Row) -> Row {
    from_fn(|n| {
        let one = nth(&one, n)?;
        let other = nth(&other, n)?;
        Some(Number { ns: one.ns - other.ns, is_inexact: one.is_inexact || other.is_inexact })
    })
}
