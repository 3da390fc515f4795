//! The numbers of a boot and of the mean: the columns and the periods of the report.

use schemars::JsonSchema;
use serde::Serialize;
use serde_with::skip_serializing_none;

use crate::{
    engine::boot::{column::COLUMNS, inexact::Inexact},
    sink::jsonl::scalar::Decimal,
};

/// The members of a boot's `columns`, and of `periods`, in their order.
pub(super) const COLUMN_NAMES: [&str; COLUMNS] =
    ["kubelet_ns", "static_pod_ns", "first_service_ns", "last_service_ns"];
const PERIOD_NAMES: [&str; COLUMNS] = ["first_ns", "second_ns", "third_ns", "fourth_ns"];

#[skip_serializing_none]
#[derive(Serialize, JsonSchema)]
pub(super) struct Columns {
    kubelet_ns: Option<Decimal<i64>>,
    static_pod_ns: Option<Decimal<i64>>,
    first_service_ns: Option<Decimal<i64>>,
    last_service_ns: Option<Decimal<i64>>,
}

#[skip_serializing_none]
#[derive(Serialize, JsonSchema)]
pub(super) struct Periods {
    first_ns: Option<Decimal<i64>>,
    second_ns: Option<Decimal<i64>>,
    third_ns: Option<Decimal<i64>>,
    fourth_ns: Option<Decimal<i64>>,
}

impl Columns {
    pub(super) fn of(columns: [Option<i64>; COLUMNS]) -> Self {
        let [kubelet_ns, static_pod_ns, first_service_ns, last_service_ns] =
            columns.map(|ns| ns.map(Decimal));
        Self { kubelet_ns, static_pod_ns, first_service_ns, last_service_ns }
    }
}

impl Periods {
    pub(super) fn of(periods: [Option<i64>; COLUMNS]) -> Self {
        let [first_ns, second_ns, third_ns, fourth_ns] = periods.map(|ns| ns.map(Decimal));
        Self { first_ns, second_ns, third_ns, fourth_ns }
    }
}

/// The members that have a value that is not exact.
pub(super) fn inexact(
    column_names: [&'static str; COLUMNS],
    inexact: Inexact,
    columns: &[Option<i64>; COLUMNS],
    periods: &[Option<i64>; COLUMNS],
) -> Vec<&'static str> {
    let of_columns = column_names.into_iter().zip(inexact.columns).zip(columns);
    let of_periods = PERIOD_NAMES.into_iter().zip(inexact.periods).zip(periods);
    let all = of_columns.chain(of_periods);
    all.filter(|((_, is_inexact), ns)| *is_inexact && ns.is_some()).map(|((name, _), _)| name).collect()
}
