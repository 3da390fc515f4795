//! Decides when the records outside of the kernel are read again.

use std::time::Duration;

use crate::{
    engine::{
        timer,
        world::{World, lookup, table::record::Waiting},
    },
    model::{change::Question, time::Timestamp},
};

/// An operation of CNI shows on disk after this time.
const SETTLE: Duration = Duration::from_secs(1);

/// The records are not read more often than this, because reading a large store takes a while.
pub(crate) const BETWEEN: Duration = Duration::from_secs(5);

/// How often the records are read while a sandbox waits for them.
pub(crate) const POLL: Duration = Duration::from_secs(60);

/// The records are read less often for each such number of attachments.
const MUCH: usize = 8192;

/// The times above are multiplied by at most this.
const RAREST: usize = 5;

/// Reads the records again soon, because something changed that they will show.
pub(crate) fn soon(world: &mut World, at: Timestamp) {
    let soonest = world.records.asked_at.map_or(at, |asked| asked + BETWEEN * factor(world));
    world.timers.arm_earlier(timer::Name::Records, (at + SETTLE).max(soonest));
}

/// Reads the records from time to time while a sandbox waits for them, until a runtime forgets it, and while
/// a store is to be repaired.
pub(crate) fn poll(world: &mut World, now: Timestamp, waiting: &Waiting) {
    let again = world.records.asked_at.unwrap_or(now) + POLL * factor(world);
    if !waiting.holding.is_empty()
        || world.records.stores.values().any(|(_, read)| read.ownerless().next().is_some())
    {
        world.timers.arm_earlier(timer::Name::Records, again);
    }
    if let Some(due) = lookup::abandoned::due(world, &waiting.making) {
        let is_asked = world.records.asked_at.is_some_and(|asked| asked >= due);
        world.timers.arm_earlier(timer::Name::Records, if is_asked { again } else { due.max(now) });
    }
}

/// Returns the factor by which the records are read less often, because there are many.
fn factor(world: &World) -> u32 {
    let times = (1 + world.attachments.len() / MUCH).min(RAREST);
    u32::try_from(times).unwrap_or(1)
}

/// Asks for a reading of the records.
pub(crate) fn ask(world: &mut World, now: Timestamp) {
    world.records.asked_at = Some(now);
    world.ask(Question::Records);
}
