//! How much was lost of late: verdicts on that time are weaker.

use crate::engine::{
    time::Timestamp,
    world::{World, attachment::LATELY},
};

/// Losses that follow each other within [`LATELY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Losses {
    pub count: u64,
    pub since: Timestamp,
    pub last_at: Timestamp,
}

impl World {
    pub(super) fn losses_grow(&mut self, at: Timestamp, count: u64) {
        let before = self.losses.filter(|it| at < it.last_at + LATELY);
        let Losses { count: known, since, last_at } =
            before.unwrap_or(Losses { count: 0, since: at, last_at: at });
        self.losses = Some(Losses { count: known.saturating_add(count), since, last_at: last_at.max(at) });
    }
}
