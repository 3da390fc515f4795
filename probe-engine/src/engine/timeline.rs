//! Puts kernel records in order. Many CPUs write into one ring, and a second ring is read after the first. So
//! records wait until the watermark says that nothing earlier can come.
//!
//! Netlink's notifications are put among the records by their time, though no watermark covers them: they
//! hold nothing back, and wait for the watermark a moment at most. Addresses that a listing found while
//! records wait are put among them too, and the end of that listing: the watch of a new namespace begins with
//! a listing, and the records of the call that added the address may be waiting.
//!
//! **Invariant:** nothing else of a listing is held, because it was true when it was read.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use crate::model::{
    fact::{Fact, List, Observation, Origin, SIGKILL},
    time::Timestamp,
};

/// At most this many records wait. If there are more, the oldest takes effect without the watermark.
const CAPACITY: usize = 65_536;

/// Space for this many records is kept while none waits.
const ROOM: usize = 1024;

/// A notification, or a verdict, waits at most this long for what happened before it. On a node where nothing
/// else happens the watermark does not move.
const MAX_WAIT: Duration = Duration::from_millis(100);

/// A kill by the OOM killer may be reported this long after its victim's end.
pub(super) const OOM_BEHIND: Duration = Duration::from_millis(100);

/// The part of a status that is the signal's number (`wait(2)`).
const SIGNAL: u32 = 0x7f;

/// By time, then by arrival.
type Place = (Timestamp, u64);

#[derive(Debug, Default)]
pub(crate) struct Timeline {
    /// The records that came in their order, as nearly all do.
    line: VecDeque<(Place, Observation)>,
    /// The records that came after a later one.
    strays: BTreeMap<Place, Observation>,
    /// Which of them are notifications.
    notifications: BTreeSet<Place>,
    arrivals: u64,
    watermark: Timestamp,
}

/// What to do with an observation now.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it lives for one call")]
pub(crate) enum Placed {
    /// It waits for the watermark.
    Kept,
    /// It waits, and now more records wait than may.
    Full,
    /// It is a duplicate of a record that waits.
    Duplicate,
    /// It is to be applied now; `late` if later things have been applied already.
    Now { seen: Observation, late: bool },
}

impl Timeline {
    pub(crate) fn place(&mut self, seen: Observation) -> Placed {
        let source = source(&seen);
        if source == Source::Listing || source == Source::Found && self.len() == 0 {
            return Placed::Now { seen, late: false };
        }
        if seen.at <= self.watermark {
            return Placed::Now { seen, late: source == Source::Ring };
        }
        let is_latest =
            self.strays.is_empty() && self.line.back().is_none_or(|((last, _), _)| *last < seen.at);
        if !is_latest && self.at(seen.at).any(|other| *other == seen) {
            return Placed::Duplicate;
        }
        self.keep(seen);
        if self.len() > CAPACITY { Placed::Full } else { Placed::Kept }
    }

    /// Takes a record in without asking where the watermark is.
    pub(crate) fn keep(&mut self, seen: Observation) {
        let place = (seen.at, self.arrivals);
        self.arrivals += 1;
        if matches!(source(&seen), Source::Notification | Source::Found) {
            self.notifications.insert(place);
        }
        if self.line.back().is_none_or(|(last, _)| *last < place) {
            self.line.push_back((place, seen));
        } else {
            self.strays.insert(place, seen);
        }
    }

    /// Notes that nothing earlier than `at` can come any more.
    pub(crate) fn pass(&mut self, at: Timestamp) {
        self.watermark = self.watermark.max(at);
    }

    /// Returns the time before which nothing is awaited any more.
    #[must_use]
    pub(crate) fn settled(&self, now: Timestamp) -> Timestamp {
        self.watermark.max(now.saturating_sub(MAX_WAIT)).min(now)
    }

    /// Returns when a time is settled, if no watermark passes it before.
    #[must_use]
    pub(crate) fn settles(&self, at: Timestamp) -> Timestamp {
        if at <= self.watermark { at } else { at + MAX_WAIT }
    }

    #[must_use]
    pub(crate) fn watermark(&self) -> Timestamp {
        self.watermark
    }

    /// Takes the next record that is due by `now`: the watermark has passed it, or too many wait, or it is a
    /// notification that has waited long enough.
    pub(crate) fn pop(&mut self, now: Timestamp) -> Option<Observation> {
        let first = self.first()?;
        let is_due = first.0 <= self.watermark || self.len() > CAPACITY;
        let place = if is_due {
            first
        } else if self.is_overdue(now) {
            self.notifications.first().copied()?
        } else {
            return None;
        };
        if let Some(cause) = self.take_oom_kill(place) {
            return Some(cause);
        }
        let seen = self.remove(place)?;
        if !self.notifications.remove(&place) {
            // What comes after a record that had to leave is late, as after any other that was applied.
            self.watermark = self.watermark.max(seen.at);
        }
        Some(seen)
    }

    fn len(&self) -> usize {
        self.line.len() + self.strays.len()
    }

    fn first(&self) -> Option<Place> {
        let in_line = self.line.front().map(|(place, _)| *place);
        let stray = self.strays.first_key_value().map(|(place, _)| *place);
        in_line.into_iter().chain(stray).min()
    }

    fn get(&self, place: Place) -> Option<&Observation> {
        match self.line.binary_search_by_key(&place, |(place, _)| *place) {
            Ok(index) => self.line.get(index).map(|(_, seen)| seen),
            Err(_) => self.strays.get(&place),
        }
    }

    fn remove(&mut self, place: Place) -> Option<Observation> {
        if self.line.front().is_some_and(|(first, _)| *first == place) {
            let seen = self.line.pop_front().map(|(_, seen)| seen);
            if self.line.is_empty() {
                self.line.shrink_to(ROOM);
            }
            return seen;
        }
        match self.line.binary_search_by_key(&place, |(place, _)| *place) {
            Ok(index) => self.line.remove(index).map(|(_, seen)| seen),
            Err(_) => self.strays.remove(&place),
        }
    }

    /// Returns the records from one place to another, first the ones that came in order.
    fn between(&self, from: Place, to: Place) -> impl Iterator<Item = (Place, &Observation)> {
        let begin = self.line.partition_point(|(place, _)| *place < from);
        let end = to;
        let in_line = self.line.iter().skip(begin).take_while(move |(place, _)| *place < end);
        in_line
            .map(|(place, seen)| (*place, seen))
            .chain(self.strays.range(from..to).map(|(place, seen)| (*place, seen)))
    }

    /// Takes the OOM-kill record that follows the exit at this place, if there is one, with the time of the
    /// exit. The kernel reports a kill only after it has sent the signal, and by then the victim may have
    /// ended on another CPU (`__oom_kill_process`).
    fn take_oom_kill(&mut self, place: Place) -> Option<Observation> {
        let Fact::Exited(exited) = &self.get(place)?.fact else { return None };
        if exited.status & SIGNAL != SIGKILL {
            return None;
        }
        let victim = exited.task.key;
        let behind = self.between(place, (place.0 + OOM_BEHIND, u64::MAX));
        let kills = behind.filter(|(_, seen)| {
            let Fact::OomKilled(kill) = &seen.fact else { return false };
            kill.target.key.pid == victim.pid && [0, victim.start].contains(&kill.target.key.start)
        });
        let found = kills.map(|(place, _)| place).min()?;
        Some(Observation { at: place.0, ..self.remove(found)? })
    }

    /// Returns when a notification has waited long enough.
    #[must_use]
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.notifications.first().map(|(at, _)| *at + MAX_WAIT)
    }

    fn is_overdue(&self, now: Timestamp) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now)
    }

    /// Returns the records that wait, in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Observation> {
        let all: BTreeMap<Place, &Observation> =
            self.between(Place::default(), (Timestamp(u64::MAX), u64::MAX)).collect();
        all.into_values()
    }

    fn at(&self, at: Timestamp) -> impl Iterator<Item = &Observation> {
        self.between((at, 0), (at, u64::MAX)).map(|(_, seen)| seen)
    }
}

/// What is known of the order in which a source reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// A ring, which the watermark covers.
    Ring,
    /// Netlink: it happened shortly before.
    Notification,
    /// An address: it was there when it was read, and what put it there may wait.
    Found,
    Listing,
}

fn source(seen: &Observation) -> Source {
    let source = match seen.origin {
        Origin::Listed if is_of_addresses(&seen.fact) => return Source::Found,
        Origin::Kernel | Origin::Delegated => Source::Ring,
        Origin::Netlink => Source::Notification,
        Origin::Listed | Origin::Cri | Origin::Agent => Source::Listing,
    };
    if happened(&seen.fact) { source } else { Source::Listing }
}

/// Whether the fact is what a listing of addresses found, or its end, which must not overtake what it found.
fn is_of_addresses(fact: &Fact) -> bool {
    matches!(
        fact,
        Fact::AddressFound(_) | Fact::AddressesListed { .. } | Fact::ListEnded { list: List::Addresses, .. }
    )
}

/// Returns whether the fact is an event, not a state that a listing found.
fn happened(fact: &Fact) -> bool {
    match fact {
        Fact::Executed(_)
        | Fact::CniCalled(_)
        | Fact::Exited(_)
        | Fact::Signaled(_)
        | Fact::OomKilled(_)
        | Fact::NetnsCreated { .. }
        | Fact::NetnsDropped { .. }
        | Fact::NetnsFreed { .. }
        | Fact::AddressAdded(_)
        | Fact::AddressRemoved(_)
        | Fact::CgroupCreated { .. }
        | Fact::CgroupRemoved { .. }
        | Fact::CgroupReleased { .. }
        | Fact::CgroupEntered { .. }
        | Fact::CgroupEmptied { .. }
        | Fact::Listened(_) => true,
        Fact::ListBegun(_)
        | Fact::ListEnded { .. }
        | Fact::ProcessFound(_)
        | Fact::NetnsFound { .. }
        | Fact::ProcessNetns { .. }
        | Fact::AddressFound(_)
        | Fact::AddressesListed { .. }
        | Fact::CgroupFound { .. }
        | Fact::ContainerFound(_)
        | Fact::ContainerUnknown(_)
        | Fact::PodFound { .. }
        | Fact::PodUnknown(_)
        | Fact::ContainersExpected { .. }
        | Fact::CacheFound(_)
        | Fact::CacheUnread { .. }
        | Fact::CacheUnchanged
        | Fact::CacheGone { .. }
        | Fact::StoreRead(_)
        | Fact::StoreChanged(_)
        | Fact::StoreLink(_)
        | Fact::AddressAnswered(_)
        | Fact::RuntimeRead(_)
        | Fact::RuntimeChanged(_)
        | Fact::NetworksRead(_)
        | Fact::KubeletExpected(_)
        | Fact::ProgramFound(_)
        | Fact::MessageFound(_)
        | Fact::PressureRead(_)
        | Fact::ImageWork(_)
        | Fact::HeldRequests(_)
        | Fact::ProcessState(_)
        | Fact::WordsFound(_)
        | Fact::DaemonWordsFound(_)
        | Fact::RuntimeLink(_)
        | Fact::RuntimeStatus(_)
        | Fact::RuntimeEvent(_)
        | Fact::Watermark
        | Fact::BootRead(_)
        | Fact::Attached(_)
        | Fact::Lost { .. }
        | Fact::NetnsUnwatched { .. }
        | Fact::RingsRead(_)
        | Fact::AgentAway { .. }
        | Fact::StateLost { .. }
        | Fact::AgentArrived
        | Fact::AgentBegan { .. }
        | Fact::FileHangs { .. }
        | Fact::Clock { .. }
        | Fact::Resumed { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{Placed, Timeline};
    use crate::model::{
        fact::{Fact, List, Observation, Origin},
        id::NetnsKey,
        time::Timestamp,
    };

    fn freed(at: u64, inode: u32) -> Observation {
        let fact = Fact::NetnsFreed { netns: NetnsKey::new(inode, 0) };
        Observation { at: Timestamp(at), origin: Origin::Kernel, fact }
    }

    fn due(timeline: &mut Timeline) -> Vec<u64> {
        std::iter::from_fn(|| timeline.pop(Timestamp::ZERO)).map(|seen| seen.at.0).collect()
    }

    #[test]
    fn records_leave_in_order_once_the_watermark_has_passed_them() {
        let mut timeline = Timeline::default();
        for at in [30, 10, 20, 10] {
            timeline.place(freed(at, 7));
        }
        assert!(due(&mut timeline).is_empty());
        timeline.pass(Timestamp(20));
        assert_eq!(due(&mut timeline), [10, 20], "and the duplicate is gone");
        assert!(matches!(timeline.place(freed(15, 8)), Placed::Now { late: true, .. }));
        timeline.pass(Timestamp(5));
        assert_eq!(timeline.watermark(), Timestamp(20), "time does not go back");
    }

    #[test]
    fn records_that_come_behind_later_ones_are_found_and_leave_at_their_places() {
        let mut timeline = Timeline::default();
        for at in [10, 30, 50, 40, 20, 60, 20, 50] {
            timeline.place(freed(at, 7));
        }
        assert_eq!(timeline.iter().map(|seen| seen.at.0).collect::<Vec<_>>(), [10, 20, 30, 40, 50, 60]);
        timeline.pass(Timestamp(45));
        assert_eq!(due(&mut timeline), [10, 20, 30, 40]);
        assert_eq!(timeline.iter().map(|seen| seen.at.0).collect::<Vec<_>>(), [50, 60]);
    }

    #[test]
    fn what_is_unordered_is_not_held() {
        let mut timeline = Timeline::default();
        let listing =
            Observation { at: Timestamp(9), origin: Origin::Listed, fact: Fact::ListBegun(List::Pods) };
        assert!(matches!(timeline.place(listing), Placed::Now { late: false, .. }));
    }

    /// It would end a doubt before the address that is back is known.
    #[test]
    fn the_end_of_a_listing_of_addresses_does_not_overtake_what_it_found() {
        let mut timeline = Timeline::default();
        timeline.place(freed(8, 7));
        let listed = |at, fact| Observation { at: Timestamp(at), origin: Origin::Listed, fact };
        let ended = |list| listed(10, Fact::ListEnded { list, complete: true });
        let netns = NetnsKey::new(7, 0);
        let found = listed(9, Fact::AddressesListed { netns, present: Vec::new() });
        assert!(matches!(timeline.place(found), Placed::Kept));
        assert!(matches!(timeline.place(ended(List::Addresses)), Placed::Kept));
        assert!(matches!(timeline.place(ended(List::Pods)), Placed::Now { .. }));
        timeline.pass(Timestamp(8));
        assert_eq!(due(&mut timeline), [8], "no watermark has passed them");
        let enough = timeline.deadline().expect("they wait");
        assert_eq!(timeline.pop(enough).map(|seen| seen.at.0), Some(9));
    }

    #[test]
    fn a_notification_waits_for_its_place_but_not_for_ever() {
        let mut timeline = Timeline::default();
        let notification = |at| Observation { origin: Origin::Netlink, ..freed(at, 9) };
        for seen in [notification(25), freed(30, 7), freed(20, 7)] {
            assert!(matches!(timeline.place(seen), Placed::Kept));
        }
        timeline.pass(Timestamp(30));
        assert_eq!(due(&mut timeline), [20, 25, 30]);
        assert!(matches!(timeline.place(notification(29)), Placed::Now { late: false, .. }));
        timeline.place(notification(40));
        let enough = timeline.deadline().expect("it waits");
        assert_eq!(timeline.pop(Timestamp(enough.0 - 1)).map(|seen| seen.at.0), None);
        assert_eq!(timeline.pop(enough).map(|seen| seen.at.0), Some(40));
        assert!(matches!(timeline.place(freed(35, 7)), Placed::Kept), "no watermark has passed it");
    }

    #[test]
    fn too_many_records_push_the_oldest_on() {
        let mut timeline = Timeline::default();
        for at in 0..=u64::try_from(super::CAPACITY).expect("small") {
            timeline.place(freed(at + 1, 1));
        }
        assert_eq!(due(&mut timeline), [1]);
    }
}
