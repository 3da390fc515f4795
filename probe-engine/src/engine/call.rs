//! The calls into the engine. A recording is a list of them, and a replay makes them again.

use super::world::CheckpointEntry;
use crate::model::{fact::Observation, time::Timestamp};

/// One call into the engine ([`Engine::call`](super::Engine::call)).
#[expect(clippy::large_enum_variant, reason = "nearly all of them are the large one")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A source reports a fact.
    Observe(Observation),
    /// Time has passed; deadlines up to this time are due.
    Advance(Timestamp),
    /// Part of the state of an earlier engine; only before other calls.
    Restore(Box<CheckpointEntry>),
}

impl Call {
    /// Returns the time of the call, if it has one.
    #[must_use]
    pub fn at(&self) -> Option<Timestamp> {
        match self {
            Self::Observe(seen) => Some(seen.at),
            Self::Advance(now) => Some(*now),
            Self::Restore(_) => None,
        }
    }
}
