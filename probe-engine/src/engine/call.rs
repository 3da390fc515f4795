//! The calls into the engine: a recording is a list of them, and a replay makes them again.

use super::world::CheckpointEntry;
use crate::model::{fact::Observation, time::Timestamp};

/// One call into the engine ([`Engine::call`](super::Engine::call)).
#[expect(clippy::large_enum_variant, reason = "nearly all of them are the large one")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A source says something.
    Observe(Observation),
    /// Time has passed, and deadlines up to this one fall due.
    Advance(Timestamp),
    /// An earlier engine believed this; only before anything else.
    Restore(Box<CheckpointEntry>),
}

impl Call {
    /// The time that it carries; `None`: it is of no time.
    #[must_use]
    pub fn at(&self) -> Option<Timestamp> {
        match self {
            Self::Observe(seen) => Some(seen.at),
            Self::Advance(now) => Some(*now),
            Self::Restore(_) => None,
        }
    }
}
