//! Judges whether a recovery stayed within its target time.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::model::recovery::ns;

/// A recovery compared with its target time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pub span: Duration,
    pub outcome: Outcome,
    /// Nanoseconds over the target; negative: time left.
    pub over: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "BootTargetOutcome")]
pub enum Outcome {
    /// The last pod was back in time.
    Met,
    /// The last pod so far came too late, or none is back and the time is over.
    Missed,
    /// More pods may come, or are still missing.
    NotComplete,
    /// From the kernel's start it was in time, but not all of the time is known.
    OrderUnknown,
}

impl Target {
    /// `so_far`: nanoseconds from the zero to the last pod so far, or to now if no awaited pod is back.
    /// `is_from_order`: the zero is the order of the restart.
    pub(super) fn of(span: Duration, is_from_order: bool, so_far: Option<i64>, is_closed: bool) -> Self {
        let over = so_far.map(|so_far| so_far.saturating_sub(ns(span)));
        let outcome = match over {
            // Later pods and the unknown time before the kernel's start can only make it longer.
            Some(1..) => Outcome::Missed,
            Some(_) if is_closed && is_from_order => Outcome::Met,
            Some(_) if is_closed => Outcome::OrderUnknown,
            Some(_) | None => Outcome::NotComplete,
        };
        Self { span, outcome, over }
    }
}
