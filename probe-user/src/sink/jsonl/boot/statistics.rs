//! The percentiles over several boots: the minimum, p50, p90 and the maximum.

use schemars::JsonSchema;
use serde::Serialize;

use super::numbers::{COLUMN_NAMES, Columns, NumbersLine};
use crate::{
    engine::boot::{
        comparable::Counted,
        numbers::Numbers,
        report::NodeBoot,
        spread::{Rank, spread},
    },
    sink::recovery::summary::{self, Targets},
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
        let out = left_out.iter().filter(|it| !it.counted.is_in()).count();
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
    fn of(it: &summary::LeftOut<'a>) -> Self {
        let boot = it.boot.recovery.boot.as_ref();
        Self {
            boot_id: boot.map(|boot| boot.boot_id.as_str()).unwrap_or_default(),
            why: it.counted,
            title: format!("{}: {}", summary::name(&it.boot), summary::why(it.counted)),
        }
    }
}
