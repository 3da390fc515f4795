//! The lines after the header.

use serde::{Deserialize, Serialize};

use super::{
    Call,
    fact::Observation,
    id::{Clock, Decimal, Text},
    mirror::Mirror,
};

#[expect(clippy::large_enum_variant, reason = "nearly all of them are the large one")]
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    Observe(Observation),
    Advance(Clock),
    /// The last line: so many calls were made.
    End(Decimal),
}

impl Line {
    pub(super) fn of(call: &Call) -> Self {
        match call {
            Call::Observe(seen) => Self::Observe(Observation::of(seen)),
            Call::Advance(now) => Self::Advance(Clock::of(now)),
        }
    }

    pub(super) fn end(calls: u64) -> Self {
        Self::End(Text(calls))
    }
}
