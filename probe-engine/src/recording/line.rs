//! The lines after the header.

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

use crate::{
    engine::{Call, world::CheckpointEntry},
    model::{
        fact::Observation,
        time::{Timestamp, on_the_clock},
    },
};

/// One line. It owns its observation or entry when it is read, and borrows it when it is written.
#[serde_as]
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line<O = Observation, E = Box<CheckpointEntry>> {
    Observe(O),
    Advance(#[serde(deserialize_with = "on_the_clock")] Timestamp),
    Restore(E),
    /// The last line: the number of calls.
    End(#[serde_as(as = "DisplayFromStr")] u64),
}

impl<'a> Line<&'a Observation, &'a CheckpointEntry> {
    pub(super) fn of(call: &'a Call) -> Self {
        match call {
            Call::Observe(seen) => Self::Observe(seen),
            Call::Advance(now) => Self::Advance(*now),
            Call::Restore(entry) => Self::Restore(entry),
        }
    }
}
