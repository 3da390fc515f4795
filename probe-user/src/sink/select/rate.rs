//! Limits the events a minute in the stream. A burst may use the whole minute at once.

use std::num::NonZero;

use crate::model::{
    change::{Change, ChangeKind},
    time::Timestamp,
};

/// Nanoseconds.
const MINUTE: u64 = 60_000_000_000;

#[derive(Debug)]
pub(crate) struct Rate {
    /// The time that an event uses up, in nanoseconds.
    cost: u64,
    /// The time that is left, in nanoseconds, at most a minute.
    left: u64,
    /// The latest event.
    at: Timestamp,
}

impl Rate {
    pub(crate) fn new(per_minute: NonZero<u32>) -> Self {
        let cost = MINUTE / u64::from(per_minute.get());
        Self { cost, left: MINUTE, at: Timestamp::ZERO }
    }

    /// Whether there would be room for an event.
    pub(crate) fn has_room(&self, now: Timestamp) -> bool {
        self.left.saturating_add(now.0.saturating_sub(self.at.0)) >= self.cost
    }

    /// Whether there is room for this event. There always is for findings and gaps, which are few.
    pub(crate) fn allows(&mut self, change: &Change) -> bool {
        is_free(&change.what) || self.take(change.at)
    }

    /// Takes the room for one more event. Returns whether there was room.
    pub(crate) fn take(&mut self, now: Timestamp) -> bool {
        self.left = self.left.saturating_add(now.0.saturating_sub(self.at.0)).min(MINUTE);
        self.at = self.at.max(now);
        let left = self.left.checked_sub(self.cost);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}

fn is_free(what: &ChangeKind) -> bool {
    matches!(
        what,
        ChangeKind::Gap { .. }
            | ChangeKind::FindingOpened(_)
            | ChangeKind::FindingConfirmed(_)
            | ChangeKind::FindingClosed(_)
    )
}
