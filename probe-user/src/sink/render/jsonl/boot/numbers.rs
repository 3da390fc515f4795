//! The numbers of a boot and of the mean: the columns and the periods of the report.

use schemars::JsonSchema;
use serde::Serialize;
use serde_with::skip_serializing_none;

use crate::{
    engine::boot::numbers::{COLUMNS, Number, Numbers, Row},
    sink::render::jsonl::scalar::Decimal,
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

// A mean or a percentile, with the columns of boots or of restarts. The schema has the latter by this name.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RestartNumbers")]
pub(super) struct NumbersLine<C> {
    columns: C,
    periods: Periods,
    #[serde(skip_serializing_if = "Option::is_none")]
    whole_ns: Option<Decimal<i64>>,
    inexact: Vec<&'static str>,
    /// The name of the row.
    title: String,
}

impl<C: From<Row>> NumbersLine<C> {
    pub(super) fn new(column_names: [&'static str; COLUMNS], numbers: &Numbers, title: String) -> Self {
        Self {
            columns: numbers.columns.into(),
            periods: Periods::of(numbers.periods),
            whole_ns: whole(numbers),
            inexact: inexact(column_names, numbers),
            title,
        }
    }
}

impl From<Row> for Columns {
    fn from(columns: Row) -> Self {
        let [kubelet_ns, static_pod_ns, first_service_ns, last_service_ns] = columns.map(decimal);
        Self { kubelet_ns, static_pod_ns, first_service_ns, last_service_ns }
    }
}

impl Periods {
    pub(super) fn of(periods: Row) -> Self {
        let [first_ns, second_ns, third_ns, fourth_ns] = periods.map(decimal);
        Self { first_ns, second_ns, third_ns, fourth_ns }
    }
}

pub(super) fn decimal(number: Option<Number>) -> Option<Decimal<i64>> {
    number.map(|it| Decimal(it.ns))
}

pub(super) fn whole(numbers: &Numbers) -> Option<Decimal<i64>> {
    decimal(numbers.whole())
}

/// The members that have a value that is not exact.
pub(super) fn inexact(column_names: [&'static str; COLUMNS], numbers: &Numbers) -> Vec<&'static str> {
    let names = column_names.into_iter().chain(PERIOD_NAMES);
    let all = names.zip(numbers.columns.into_iter().chain(numbers.periods));
    all.filter(|(_, number)| number.is_some_and(|it| it.is_inexact)).map(|(name, _)| name).collect()
}
