//! The percentiles over several boots: the minimum, p50, p90 and the maximum.

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Told,
    numbers::{self, Columns, Periods},
};
use crate::{
    engine::boot::{
        comparable::Counted,
        spread::{Rank, Spread, spread},
    },
    sink::{
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
    targets: TargetCounts,
    /// How many boots count, and which do not, in words for people.
    notes: Vec<String>,
}

/// How many boots met their targets.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BootTargets")]
struct TargetCounts {
    met: usize,
    missed: usize,
    /// Boots that are not complete, and boots whose order is not known.
    not_known: usize,
}

/// A percentile by nearest rank. Each number is computed from the boots that have it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BootRank")]
struct RankLine {
    rank: Rank,
    columns: Columns,
    periods: Periods,
    #[serde(skip_serializing_if = "Option::is_none")]
    whole_ns: Option<Decimal<i64>>,
    inexact: Vec<&'static str>,
    /// The name of the row.
    title: &'static str,
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
    pub fn of(rows: &[Told<'a>]) -> Self {
        let boots = rows.iter().map(|row| (row.recovery, row.study));
        let left_out = summary::left_out(boots.clone());
        let Targets { met, missed, not_known } = Targets::of(rows.iter().map(|row| row.study));
        let out = left_out.iter().filter(|it| !it.counted.is_in()).count();
        Self {
            boots: rows.len() - out,
            ranks: spread(rows.iter().map(|row| row.study)).iter().map(RankLine::of).collect(),
            left_out: left_out.iter().map(LeftOut::of).collect(),
            targets: TargetCounts { met, missed, not_known },
            notes: summary::notes(boots),
        }
    }
}

impl RankLine {
    fn of(spread: &Spread) -> Self {
        let Spread { rank, columns, periods, whole, inexact } = spread;
        Self {
            rank: *rank,
            columns: Columns::of(*columns),
            periods: Periods::of(*periods),
            whole_ns: whole.map(Decimal),
            inexact: numbers::inexact(numbers::COLUMN_NAMES, *inexact, columns, periods),
            title: summary::rank(*rank),
        }
    }
}

impl<'a> LeftOut<'a> {
    fn of(it: &summary::LeftOut<'a>) -> Self {
        let boot = it.recovery.boot.as_ref();
        Self {
            boot_id: boot.map(|boot| boot.boot_id.as_str()).unwrap_or_default(),
            why: it.counted,
            title: format!("{}: {}", summary::name(it.recovery, it.report), summary::why(it.counted)),
        }
    }
}
