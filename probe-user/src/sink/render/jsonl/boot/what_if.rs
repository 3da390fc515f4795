//! A boot as it would have been with a change (`sandprobe boot --what-if`).

use serde::Serialize;

use super::{
    super::scalar::{Decimal, nanos},
    ClosedBy, CountsFrom, closed_by,
    numbers::Columns,
    zero,
};
use crate::{
    engine::boot::{report::NodeBoot, what_if::WhatIf},
    sink::render::recovery,
};

#[derive(Serialize)]
pub(crate) struct WhatIfLine<'a> {
    node: &'a str,
    boot_id: &'a str,
    change: &'a str,
    zero: CountsFrom,
    close: ClosedBy,
    missing: Option<Vec<String>>,
    columns: Columns,
    earliest: Columns,
    latest: Columns,
    savings: Vec<SavingLine>,
    unknown: Vec<String>,
}

#[derive(Serialize)]
struct SavingLine {
    pod: String,
    boot_ns: Decimal<u64>,
    least_ns: Decimal<u128>,
    most_ns: Decimal<u128>,
}

impl<'a> WhatIfLine<'a> {
    pub(crate) fn of(boot: &NodeBoot<'a>, change: &'a str, it: &WhatIf) -> Self {
        let savings = it.savings.iter().map(|saving| SavingLine {
            pod: recovery::name(&saving.pod),
            boot_ns: Decimal(saving.back.0),
            least_ns: nanos(saving.saves.least),
            most_ns: nanos(saving.saves.most),
        });
        let (close, missing) = closed_by(&boot.report.close);
        Self {
            node: boot.node,
            boot_id: boot.recovery.boot.as_ref().map(|boot| boot.boot_id.as_str()).unwrap_or_default(),
            change,
            zero: zero(boot.report).0,
            close,
            missing,
            columns: boot.report.numbers.columns.into(),
            earliest: it.most.numbers.columns.into(),
            latest: it.least.numbers.columns.into(),
            savings: savings.collect(),
            unknown: it.unknown.iter().map(recovery::name).collect(),
        }
    }
}
