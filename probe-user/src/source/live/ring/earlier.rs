//! Reads what was left by hooks that this agent's own hooks replace. Both run for a moment: the earlier hooks
//! report what happened before the change, and the new ones what happened after it.

use std::{collections::BTreeMap, mem, time::Duration};

use probe_common::tally::Ring;
use tracing::debug;

use super::{Batch, Loss, RecordBuffer, RingsRead, Taken, away, lost, poll_batch};
use crate::{
    engine::decode::decode,
    model::{
        fact::{Fact, Observation, Origin},
        time::Timestamp,
    },
    source::live::{
        attach::{Earlier, HookMaps, Rings},
        tally::Totals,
    },
};

/// A loss is normally reported within this time: the counters are read each second.
const NOTICED: Duration = Duration::from_secs(2);

/// Two hooks stamp one event within this time of each other.
const TWINS: Duration = Duration::from_millis(1);

/// Returns the hooks that the last agent read, if they are not this agent's `own`. Other hooks were left by
/// agents that died before they had read anything.
pub(super) fn followed(
    before: Option<RingsRead>,
    own: RingsRead,
    earlier: &mut [Earlier],
) -> Option<&mut HookMaps> {
    let left = earlier.iter().filter_map(|one| one.maps.as_ref()).map(HookMaps::begins);
    let hooks = choose(before, own, left)?;
    earlier.iter_mut().filter_map(|one| one.maps.as_mut()).find(|maps| maps.hooks == hooks)
}

/// Chooses which of the `left` hooks to read before this agent's `own`. If no agent saved how far it had
/// read, the oldest hooks saw everything that the others saw.
fn choose(
    before: Option<RingsRead>,
    own: RingsRead,
    mut left: impl Iterator<Item = RingsRead>,
) -> Option<u32> {
    match before {
        Some(before) if before.hooks == own.hooks => None,
        Some(before) => left.find(|begin| begin.hooks == before.hooks),
        None => left.min_by_key(|begin| begin.since).filter(|begin| begin.since < own.since),
    }
    .map(|begin| begin.hooks)
}

/// One set of earlier hooks, and how much of its records was reported before.
pub(super) struct Left<'a> {
    pub(super) hooks: &'a mut HookMaps,
    pub(super) reported: RingsRead,
}

impl Left<'_> {
    /// Adds the records that were not reported, up to a moment after `change`; and what was lost.
    pub(super) fn drain(&mut self, change: Timestamp, now: Timestamp, batch: &mut Batch) {
        for record in read_all(self.hooks) {
            if record.after <= position(&self.reported, record.ring) {
                continue;
            }
            match decode(&record.bytes) {
                Ok(seen) if seen.at < change + TWINS => batch.push(seen),
                Ok(_later) => {}
                Err(error) => {
                    debug!(%error, "record unreadable");
                    batch.push(lost(now, Loss::Record, 1));
                }
            }
        }
        match self.hooks.tally() {
            Ok(tally) => {
                let totals = Totals::new(tally, BTreeMap::new());
                let silent = self.hooks.page.silent_since(now);
                let times = Times { silent, since: waiting_since(batch, now), now };
                report_losses(&totals, &mut self.reported, times, batch);
            }
            Err(error) => debug!(%error, "counters of earlier hooks unreadable"),
        }
    }
}

/// Reads all complete records. They stay in the rings: this agent may die before it has saved their results.
fn read_all(hooks: &mut HookMaps) -> Vec<Taken> {
    let mut buffer = RecordBuffer::default();
    let mut records = Vec::new();
    if let Some(Rings { lifecycle, bulk }) = &mut hooks.rings {
        drop((lifecycle.hold(), bulk.hold()));
        while !poll_batch(lifecycle, bulk, &mut buffer, &mut records).both() {}
    }
    records
}

/// Returns the time of the oldest record if the records waited longer than usual: no agent ran for a while.
pub(super) fn waiting_since(batch: &Batch, now: Timestamp) -> Option<Timestamp> {
    let oldest = batch.iter().filter(|seen| seen.origin == Origin::Kernel).map(|seen| seen.at).min();
    oldest.filter(|oldest| *oldest + NOTICED < now)
}

/// The times of a report of losses.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// Since when the hooks did nothing, if no agent read.
    pub(super) silent: Timestamp,
    /// The time of the oldest record that waited with the losses; `None` if none waited for long.
    pub(super) since: Option<Timestamp>,
    pub(super) now: Timestamp,
}

/// Adds the losses since the last report. If the lifecycle ring was full, the time after the last record in
/// it is unknown; and so is the time in which the hooks did nothing.
pub(super) fn report_losses(totals: &Totals, reported: &mut RingsRead, times: Times, batch: &mut Batch) {
    let Times { silent, since, now } = times;
    let unread = mem::replace(&mut reported.unread, totals.unread()) < totals.unread();
    let losses = totals.tell_losses(reported);
    let is_full = losses.iter().any(|(what, _)| *what == Loss::LifecycleRing);
    let last = batch.iter().filter(|seen| seen.origin == Origin::Kernel).map(|seen| seen.at).max();
    for (what, count) in losses {
        let fact = Fact::Lost { what, count, since };
        batch.push(Observation { at: now, origin: Origin::Agent, fact });
    }
    let last = if is_full { last } else { None };
    let blind = [last, unread.then_some(silent)];
    if let Some(since) = blind.into_iter().flatten().min() {
        batch.push(away(now, since));
    }
}

/// Joins the records of earlier hooks with those of new ones. Each event is reported once: if one hook
/// stamped an event before the change and the other after it, the former's record is used.
pub(super) fn join(earlier: Batch, new: Batch, change: Timestamp) -> Batch {
    let (before, late): (Batch, Batch) =
        earlier.into_iter().partition(|seen| seen.origin == Origin::Agent || seen.at < change);
    let (early, own): (Batch, Batch) =
        new.into_iter().partition(|seen| seen.origin != Origin::Agent && seen.at < change);
    // Only few of thousands are this near.
    let early: Vec<&Observation> = early.iter().filter(|seen| are_near(seen.at, change)).collect();
    let near: Vec<&Observation> = before.iter().filter(|seen| are_near(seen.at, change)).collect();
    let late: Batch = late.into_iter().filter(|seen| has_twin(seen, &early, change)).collect();
    let own: Batch = own.into_iter().filter(|seen| !has_twin(seen, &near, change)).collect();
    [before, late, own].concat()
}

fn are_near(one: Timestamp, other: Timestamp) -> bool {
    one.0.abs_diff(other.0) < nanoseconds(TWINS)
}

/// Returns whether the other hook has recorded the same event around the change.
fn has_twin(seen: &Observation, others: &[&Observation], change: Timestamp) -> bool {
    are_near(seen.at, change)
        && others.iter().any(|other| seen.fact == other.fact && are_near(seen.at, other.at))
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the position in a ring up to which it was read.
pub(super) fn position(read: &RingsRead, ring: Ring) -> u64 {
    match ring {
        Ring::Lifecycle => read.lifecycle.position,
        Ring::Bulk => read.bulk.position,
    }
}

pub(super) fn position_mut(read: &mut RingsRead, ring: Ring) -> &mut u64 {
    match ring {
        Ring::Lifecycle => &mut read.lifecycle.position,
        Ring::Bulk => &mut read.bulk.position,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use probe_common::{
        event::kind,
        tally::{Ring, Tally},
    };

    use super::{Batch, Loss, RingsRead, Times, choose, join, report_losses, waiting_since};
    use crate::{
        model::{
            fact::{Fact, Observation, Origin},
            id::NetnsKey,
            time::Timestamp,
        },
        source::live::tally::Totals,
    };

    fn freed(at: u64, inode: u32) -> Observation {
        let fact = Fact::NetnsFreed { netns: NetnsKey::new(inode, 0) };
        Observation { at: Timestamp(at), origin: Origin::Kernel, fact }
    }

    const CHANGE: u64 = 10_000_000;

    fn begin(hooks: u32, since: u64) -> RingsRead {
        RingsRead { hooks, since: Timestamp(since), ..RingsRead::default() }
    }

    #[test]
    fn without_a_kept_position_the_oldest_hooks_are_followed() {
        let left = || [begin(8, 20), begin(9, 30)].into_iter();
        // This agent's own hooks are new, or were left by a first agent that died before it had saved
        // anything.
        assert_eq!(choose(None, begin(10, 40), left()), Some(8));
        assert_eq!(choose(None, begin(7, 10), left()), None);
        assert_eq!(choose(None, begin(10, 40), [].into_iter()), None);
        // An agent that saved a position read one of them.
        assert_eq!(choose(Some(begin(9, 30)), begin(10, 40), left()), Some(9));
        assert_eq!(choose(Some(begin(7, 10)), begin(7, 10), left()), None);
        assert_eq!(choose(Some(begin(6, 5)), begin(7, 10), left()), None);
    }

    #[test]
    fn each_event_around_the_change_is_told_once() {
        let (just, much) = (CHANGE - 100, CHANGE - 5_000_000);
        // Both sets of hooks see 2 to 4. Only the earlier hooks see 1, which was before, and only the new
        // ones see 5.
        let earlier = vec![freed(much, 1), freed(just, 2), freed(just, 3), freed(CHANGE + 50, 4)];
        let new =
            vec![freed(just + 1, 2), freed(CHANGE + 20, 3), freed(CHANGE - 1, 4), freed(CHANGE + 60, 5)];
        let joined = join(earlier, new, Timestamp(CHANGE));
        let told: Vec<u64> = joined.iter().map(|seen| seen.at.0).collect();
        assert_eq!(told, [much, just, just, CHANGE + 50, CHANGE + 60]);
    }

    #[test]
    fn equal_events_that_are_apart_are_two() {
        let joined =
            join(vec![freed(CHANGE - 900_000, 1)], vec![freed(CHANGE + 900_000, 1)], Timestamp(CHANGE));
        assert_eq!(joined.len(), 2);
    }

    fn losses(lost: u64, unread: u64, told: &mut RingsRead) -> Batch {
        let mut tally = Tally::ZERO;
        tally.lost[Ring::Lifecycle as usize][usize::from(kind::EXIT)] = lost;
        tally.unread = unread;
        let totals = Totals::new(vec![tally], BTreeMap::new());
        let mut batch = vec![freed(7, 1)];
        let times = Times { silent: Timestamp(9), since: Some(Timestamp(7)), now: Timestamp(20) };
        report_losses(&totals, told, times, &mut batch);
        batch.split_off(1)
    }

    #[test]
    fn a_loss_is_as_old_as_the_records_that_waited_with_it() {
        let minute = Timestamp(60_000_000_000);
        let late = vec![freed(5, 1), freed(6, 2)];
        let soon = vec![freed(minute.0 - 1_000_000_000, 1)];
        assert_eq!(waiting_since(&late, minute), Some(Timestamp(5)));
        assert_eq!((waiting_since(&soon, minute), waiting_since(&Batch::new(), minute)), (None, None));
    }

    #[test]
    fn a_full_ring_is_told_with_its_size_and_since_when() {
        let mut told = RingsRead::default();
        let facts = |batch: Batch| batch.into_iter().map(|seen| seen.fact).collect::<Vec<_>>();
        let count = Fact::Lost { what: Loss::LifecycleRing, count: 3, since: Some(Timestamp(7)) };
        assert_eq!(facts(losses(3, 0, &mut told)), [count, Fact::AgentAway { since: Timestamp(7) }]);
        assert_eq!(facts(losses(3, 0, &mut told)), []);
        assert_eq!(facts(losses(3, 5, &mut told)), [Fact::AgentAway { since: Timestamp(9) }]);
    }
}
