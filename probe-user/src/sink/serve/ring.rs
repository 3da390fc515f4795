//! The latest events, for clients that follow them. The server keeps only a position in the ring for each
//! client, so a slow client costs nothing. If a client's next events have left the ring, it is informed how
//! many it missed.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use crate::{
    model::{
        change::{Change, ChangeKind},
        time::Timestamp,
    },
    sink::{
        Format as _, Label, Sink,
        render::jsonl::Jsonl,
        select::filter::{Filter, Marks},
    },
};

/// The most events in the ring: a quarter of an hour of a busy node.
const MAX_EVENTS: usize = 3072;
const MAX_BYTES: usize = 3 << 19;
/// The memory of an event besides its line, in bytes.
const OVERHEAD_BYTES: usize = 200;

#[derive(Debug)]
pub(crate) struct Ring {
    state: Mutex<RingState>,
    news: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct RingState {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// The number of the latest event, 0 before the first.
    newest: u64,
    /// When records about the lifecycle of pods were last lost.
    lost_at: Option<Timestamp>,
}

#[derive(Debug)]
pub(super) struct Event {
    pub(super) seq: u64,
    /// With its newline.
    pub(super) line: Box<[u8]>,
    event: &'static str,
    is_everyone_s: bool,
    namespace: Option<Box<str>>,
    pod: Option<Box<str>>,
    container: Option<Box<str>>,
}

/// The events after a position in the ring.
#[derive(Debug)]
pub(super) struct Next {
    /// How many events after that position have left the ring.
    pub(super) missed: u64,
    pub(super) events: Vec<Arc<Event>>,
    /// The position after these events.
    pub(super) place: u64,
}

impl Event {
    fn of(change: &Change, label: &Label) -> Self {
        let mut line = Vec::new();
        Jsonl.write(change, label, &mut line);
        let marks = Marks::of(change);
        Self {
            seq: change.seq,
            line: line.into_boxed_slice(),
            event: change.what.into_str(),
            is_everyone_s: marks.is_everyone_s,
            namespace: marks.namespace.map(Box::from),
            pod: marks.pod.map(Box::from),
            container: marks.container.map(Box::from),
        }
    }

    fn marks(&self) -> Marks<'_> {
        Marks {
            event: self.event,
            is_everyone_s: self.is_everyone_s,
            namespace: self.namespace.as_deref(),
            pod: self.pod.as_deref(),
            container: self.container.as_deref(),
        }
    }

    fn size(&self) -> usize {
        self.line.len() + OVERHEAD_BYTES
    }
}

impl Default for Ring {
    fn default() -> Self {
        Self::behind(0)
    }
}

impl Ring {
    /// Creates a ring for what comes after the event with this number, which an agent before this one
    /// reported.
    pub(crate) fn behind(newest: u64) -> Self {
        Self {
            state: Mutex::new(RingState { newest, ..RingState::default() }),
            news: watch::Sender::new(newest),
        }
    }

    /// Returns a receiver that changes when there is another event.
    pub(super) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    pub(super) fn newest(&self) -> u64 {
        self.state().newest
    }

    /// Returns the memory of the events in bytes.
    pub(crate) fn memory(&self) -> u64 {
        u64::try_from(self.state().bytes).unwrap_or(u64::MAX)
    }

    /// Returns when records about the lifecycle of pods were last lost.
    pub(super) fn lost_at(&self) -> Option<Timestamp> {
        self.state().lost_at
    }

    /// Returns the events after `place` that `filter` keeps, up to about `bytes` bytes.
    pub(super) fn after(&self, place: u64, filter: &Filter, bytes: usize) -> Next {
        let state = self.state();
        let oldest = state.events.front().map_or(state.newest + 1, |event| event.seq);
        let missed = oldest.saturating_sub(place.saturating_add(1));
        let mut next = Next { missed, events: Vec::new(), place: place.max(oldest.saturating_sub(1)) };
        let mut taken = 0;
        // The numbers are consecutive, so that the index follows from the number.
        let skip = usize::try_from((next.place + 1).saturating_sub(oldest)).unwrap_or(usize::MAX);
        for event in state.events.range(skip.min(state.events.len())..) {
            if taken >= bytes {
                break;
            }
            next.place = event.seq;
            if filter.matches(&event.marks()) {
                taken += event.line.len();
                next.events.push(Arc::clone(event));
            }
        }
        next
    }

    fn push(&self, event: Event, lost_at: Option<Timestamp>) {
        let newest = event.seq;
        let mut state = self.state();
        state.newest = newest;
        state.lost_at = lost_at.or(state.lost_at);
        state.bytes += event.size();
        state.events.push_back(Arc::new(event));
        while state.events.len() > MAX_EVENTS || state.bytes > MAX_BYTES {
            let Some(oldest) = state.events.pop_front() else { break };
            state.bytes -= oldest.size();
        }
        drop(state);
        self.news.send_replace(newest);
    }

    fn state(&self) -> MutexGuard<'_, RingState> {
        // No holder of the lock panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for Arc<Ring> {
    fn on_change(&mut self, change: &Change, label: &Label) {
        let lost_at = match &change.what {
            ChangeKind::Gap { what, .. } => what.is_grave().then_some(change.at),
            _ => None,
        };
        self.push(Event::of(change, label), lost_at);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::{Arc, Change, ChangeKind, Filter, Label, MAX_BYTES, MAX_EVENTS, Ring, Sink as _, Timestamp};
    use crate::model::{
        change::{Context, PodRef},
        fact::{Loss, Origin},
    };

    pub(in crate::sink::serve) fn label() -> Label {
        Label { node: "node-1".to_owned(), boot_id: "b".to_owned(), boot_wall_ns: 0 }
    }

    pub(in crate::sink::serve) fn change(seq: u64, pod: &str, what: ChangeKind) -> Change {
        let pod = PodRef { name: Some(pod.to_owned()), ..PodRef::default() };
        let context = Context { pod: Some(pod), ..Context::default() };
        Change { seq, at: Timestamp(seq), origin: Origin::Kernel, late: false, context, what }
    }

    pub(in crate::sink::serve) fn ring(count: u64) -> Arc<Ring> {
        let mut ring = Arc::new(Ring::default());
        for seq in 1..=count {
            let pod = if seq % 2 == 0 { "even" } else { "odd" };
            ring.on_change(&change(seq, pod, ChangeKind::CgroupEmptied), &label());
        }
        ring
    }

    #[test]
    fn who_comes_back_in_time_misses_nothing() {
        let ring = ring(10);
        let next = ring.after(4, &Filter::default(), usize::MAX);
        assert_eq!(next.missed, 0);
        assert_eq!(next.events.iter().map(|event| event.seq).collect::<Vec<_>>(), [5, 6, 7, 8, 9, 10]);
        assert_eq!(next.place, 10);
        let none = ring.after(10, &Filter::default(), usize::MAX);
        assert_eq!((none.missed, none.events.len(), none.place), (0, 0, 10));
    }

    /// The events before it were reported by an earlier agent.
    #[test]
    fn who_follows_a_new_agent_misses_nothing() {
        let mut ring = Arc::new(Ring::behind(41));
        let missed = |ring: &Ring, place| ring.after(place, &Filter::default(), usize::MAX).missed;
        assert_eq!((ring.newest(), missed(&ring, 41), missed(&ring, 0)), (41, 0, 41));
        ring.on_change(&change(42, "x", ChangeKind::CgroupEmptied), &label());
        assert_eq!((ring.newest(), missed(&ring, 41), missed(&ring, 0)), (42, 0, 41));
    }

    #[test]
    fn who_comes_too_late_is_told_how_much_is_missing() {
        let count = u64::try_from(MAX_EVENTS).expect("few");
        let ring = ring(count + 7);
        let next = ring.after(3, &Filter::default(), 1);
        assert_eq!((next.missed, next.events.len(), next.place), (4, 1, 8));
        assert_eq!(ring.after(0, &Filter::default(), 1).missed, 7);
        assert_eq!(ring.after(7, &Filter::default(), 1).missed, 0);
    }

    #[test]
    fn what_is_passed_over_counts_as_had() {
        let filter = Filter { pods: vec!["even".to_owned()], ..Filter::default() };
        let next = ring(9).after(0, &filter, usize::MAX);
        assert_eq!(next.events.iter().map(|event| event.seq).collect::<Vec<_>>(), [2, 4, 6, 8]);
        assert_eq!((next.missed, next.place), (0, 9));
    }

    #[test]
    fn it_is_bounded_by_bytes_too() {
        let mut ring = Arc::new(Ring::default());
        let long = "x".repeat(64 << 10);
        for seq in 1..=200 {
            ring.on_change(&change(seq, &long, ChangeKind::CgroupEmptied), &label());
        }
        let state = ring.state();
        assert!(state.bytes <= MAX_BYTES && state.events.len() < 100, "{} bytes", state.bytes);
        assert_eq!(state.bytes, state.events.iter().map(|event| event.size()).sum::<usize>());
    }

    #[test]
    fn only_losses_that_can_be_of_pods_are_remembered() {
        let mut ring = ring(1);
        let mut lose = |seq, what| {
            ring.on_change(&change(seq, "x", ChangeKind::Gap { what, count: 1, lasted: None }), &label())
        };
        lose(2, Loss::BulkRing);
        lose(3, Loss::SkippedRun);
        assert_eq!(ring.lost_at(), None);
        let mut lose = |seq, what| {
            ring.on_change(&change(seq, "x", ChangeKind::Gap { what, count: 1, lasted: None }), &label())
        };
        lose(4, Loss::LifecycleRing);
        lose(5, Loss::BulkRing);
        assert_eq!(ring.lost_at(), Some(Timestamp(4)));
    }
}
