//! The mean of a group of boots.

use serde::Serialize;

use super::{
    Mean,
    numbers::{self, Columns, Periods},
};
use crate::{
    engine::boot::{
        group::{Group, groups},
        numbers::Numbers,
        report::NodeBoot,
    },
    model::recovery::Grouping,
    sink::{jsonl::scalar::Decimal, recovery::summary},
};

/// The boots of one group (docs/boot.md).
#[derive(Serialize)]
pub(super) struct GroupLine<'a> {
    /// What the boots are grouped by.
    by: String,
    /// What the boots have in common; absent: the boots where it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    average: Mean,
    /// The mean minus the mean of the first group.
    #[serde(skip_serializing_if = "Option::is_none")]
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
    pub(super) fn all(rows: &[NodeBoot<'a>], grouping: &Grouping) -> Vec<Self> {
        let groups = groups(rows.iter().map(|row| (grouping.of(row.recovery), row.report)));
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
    fn of(numbers: &Numbers) -> Self {
        Self {
            columns: numbers.columns.into(),
            periods: Periods::of(numbers.periods),
            whole_ns: numbers::whole(numbers),
            inexact: numbers::inexact(numbers::COLUMN_NAMES, numbers),
        }
    }
}
