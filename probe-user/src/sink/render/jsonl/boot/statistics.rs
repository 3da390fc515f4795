//! The percentiles over several boots (the minimum, p50, p90 and the maximum), and the means of their groups.

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Mean,
    numbers::{self, COLUMN_NAMES, Columns, NumbersLine, Periods},
};
use crate::{
    engine::boot::{
        comparable::Counted,
        group::{Group, groups},
        numbers::Numbers,
        report::NodeBoot,
        spread::{Rank, spread},
    },
    model::recovery::Grouping,
    sink::render::{
        jsonl::scalar::Decimal,
        recovery::summary::{self, Targets},
    },
};

/// The boots that count in the mean, number by number (docs/boot.md).
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BootStatistics")]
pub struct Statistics<'a> {
    /// The number of boots that count.
    boots: usize,
    ranks: Vec<RankLine>,
    left_out: Vec<LeftOut<'a>>,
    /// The targets of all boots that have one.
    targets: Targets,
    /// How many boots count, and which do not, in words for people.
    notes: Vec<String>,
}

/// A percentile by nearest rank. Each number is computed from the boots that have it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BootRank")]
struct RankLine {
    rank: Rank,
    #[serde(flatten)]
    numbers: NumbersLine<Columns>,
}

/// A boot that does not count, or whose last pod does not count.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BootLeftOut")]
struct LeftOut<'a> {
    boot_id: &'a str,
    why: Counted,
    /// The boot's title and the reason.
    title: String,
}

impl<'a> Statistics<'a> {
    #[must_use]
    pub fn of(rows: &[NodeBoot<'a>]) -> Self {
        let left_out = summary::left_out(rows);
        let out = left_out.iter().filter(|(_, counted)| !counted.is_in()).count();
        Self {
            boots: rows.len() - out,
            ranks: spread(summary::reports(rows)).into_iter().map(RankLine::of).collect(),
            left_out: left_out.iter().map(LeftOut::of).collect(),
            targets: Targets::of(summary::reports(rows)),
            notes: summary::notes(rows),
        }
    }
}

impl RankLine {
    fn of((rank, numbers): (Rank, Numbers)) -> Self {
        Self { rank, numbers: NumbersLine::new(COLUMN_NAMES, &numbers, summary::rank(rank).to_owned()) }
    }
}

impl<'a> LeftOut<'a> {
    fn of((it, why): &(NodeBoot<'a>, Counted)) -> Self {
        let boot = it.recovery.boot.as_ref();
        Self {
            boot_id: boot.map(|boot| boot.boot_id.as_str()).unwrap_or_default(),
            why: *why,
            title: format!("{}: {}", summary::name(it), summary::why(*why)),
        }
    }
}

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
            inexact: numbers::inexact(COLUMN_NAMES, numbers),
        }
    }
}
