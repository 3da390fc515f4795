//! The mean of a group of boots.

use serde::Serialize;

use super::{
    Mean, Told,
    numbers::{self, Columns, Periods},
};
use crate::{
    engine::boot::group::{Difference, Group, groups},
    model::recovery::Grouping,
    sink::{jsonl::scalar::Decimal, recovery::summary},
};

/// The boots of one group (docs/boot.md).
#[serde_with::skip_serializing_none]
#[derive(Serialize)]
pub(super) struct GroupLine<'a> {
    /// What the boots are grouped by.
    by: String,
    /// What the boots have in common; absent: the boots where it is unknown.
    name: Option<&'a str>,
    average: Mean,
    /// The mean minus the mean of the first group.
    difference: Option<DifferenceLine>,
    /// The name of the row.
    title: &'a str,
}

#[derive(Serialize)]
struct DifferenceLine {
    columns: Columns,
    periods: Periods,
    #[serde(skip_serializing_if = "Option::is_none")]
    whole_ns: Option<Decimal<i64>>,
    inexact: Vec<&'static str>,
}

impl<'a> GroupLine<'a> {
    /// A line for each group.
    pub(super) fn all(rows: &[Told<'a>], grouping: &Grouping) -> Vec<Self> {
        let groups = groups(rows.iter().map(|row| (grouping.of(row.recovery), row.study)));
        groups.into_iter().map(|group| Self::of(group, grouping)).collect()
    }

    fn of(group: Group<'a>, grouping: &Grouping) -> Self {
        let title = summary::group_name(&group);
        let Group { name, average, difference } = group;
        let difference = difference.as_ref().map(DifferenceLine::of);
        Self { by: grouping.to_string(), name, average: Mean::new(average), difference, title }
    }
}

impl DifferenceLine {
    fn of(Difference { columns, periods, whole, inexact }: &Difference) -> Self {
        Self {
            columns: Columns::of(*columns),
            periods: Periods::of(*periods),
            whole_ns: whole.map(Decimal),
            inexact: numbers::inexact(numbers::COLUMN_NAMES, *inexact, columns, periods),
        }
    }
}
