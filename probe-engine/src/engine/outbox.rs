//! The queues of the engine's outputs: changes, and questions to the sources.
//!
//! Changes leave in the order in which they came, each with the next sequence number. The world decides when
//! the first one can leave (`world::outgoing`).

use std::{collections::VecDeque, time::Duration};

use super::queued_change::QueuedChange;
use crate::model::{
    change::{Change, Context, Output, Question},
    time::Timestamp,
};

/// At most this many changes wait. When more come, the first leaves without its pod's name.
const CAPACITY: usize = 8192;
/// At most this many changes are put aside.
const ASIDE: usize = 256;
/// A change is put aside for this long at most.
const ASIDE_WAIT: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Changes, in the order in which they came.
    waiting: VecDeque<QueuedChange>,
    /// Changes that hold up no other change. Each waits until its pod has a name.
    aside: VecDeque<QueuedChange>,
    /// How many of the changes that are restored next were put aside.
    restored_aside: usize,
    /// Outputs that can be taken from the engine.
    ready: VecDeque<Output>,
    pub(super) next_seq: u64,
    /// The latest time of any reported change. A change of an earlier time that is reported after it is late.
    pub(super) told_at: Timestamp,
    /// When this agent arrived. Nothing could name pods before that, so the wait of earlier changes begins
    /// then.
    pub(super) waits_since: Timestamp,
}

impl Outbox {
    pub(super) fn new(next_seq: u64) -> Self {
        Self { next_seq, ..Self::default() }
    }

    pub(super) fn push(&mut self, held: QueuedChange) {
        self.waiting.push_back(held);
    }

    /// Adds a question. Questions do not wait.
    pub(super) fn ask(&mut self, question: Question) {
        self.ready.push_back(Output::Question(question));
    }

    /// Adds a change that is ready.
    pub(super) fn tell(&mut self, change: Change) {
        self.ready.push_back(Output::Change(change));
    }

    /// Takes the next output, if any.
    pub(super) fn take(&mut self) -> Option<Output> {
        self.ready.pop_front()
    }

    /// Returns the changes that wait.
    pub(super) fn held(&self) -> impl Iterator<Item = &QueuedChange> {
        self.aside.iter().chain(&self.waiting)
    }

    /// Returns how many changes are put aside. They are the first ones of `held`.
    pub(super) fn aside(&self) -> usize {
        self.aside.len()
    }

    /// Sets how many of the changes that are restored next were put aside.
    pub(super) fn expect_aside(&mut self, count: usize) {
        self.restored_aside = count;
    }

    /// Restores a waiting change, in the order of `held`.
    pub(super) fn restore(&mut self, held: QueuedChange) {
        match self.restored_aside.checked_sub(1) {
            Some(others) => {
                self.restored_aside = others;
                self.aside.push_back(held);
            }
            None => self.waiting.push_back(held),
        }
    }

    /// Returns the questions that were not taken yet.
    pub(super) fn asked(&self) -> impl Iterator<Item = &Question> {
        self.ready.iter().filter_map(|output| match output {
            Output::Question(question) => Some(question),
            Output::Change(_) => None,
        })
    }

    /// Returns when a change will have waited long enough: the first in line, or one that was put aside.
    pub(super) fn deadline(&self, hold: Duration) -> Option<Timestamp> {
        let aside = self.aside.iter().map(|held| self.is_over_at(held, ASIDE_WAIT)).min();
        self.waiting.front().map(|held| self.is_over_at(held, hold)).into_iter().chain(aside).min()
    }

    /// Returns when a change will have waited for this long.
    pub(super) fn is_over_at(&self, held: &QueuedChange, wait: Duration) -> Timestamp {
        held.at.max(self.waits_since) + wait
    }

    /// Returns the first change in line.
    pub(super) fn first(&self) -> Option<&QueuedChange> {
        self.waiting.front()
    }

    pub(super) fn take_first(&mut self) -> Option<QueuedChange> {
        self.waiting.pop_front()
    }

    /// Whether more changes wait than there is room for.
    pub(super) fn is_over_full(&self) -> bool {
        self.waiting.len() > CAPACITY
    }

    pub(super) fn has_room_aside(&self) -> bool {
        self.aside.len() < ASIDE
    }

    /// Whether this change has not waited aside for long enough.
    pub(super) fn may_wait_aside(&self, held: &QueuedChange, now: Timestamp) -> bool {
        now < self.is_over_at(held, ASIDE_WAIT)
    }

    pub(super) fn put_aside(&mut self, held: QueuedChange) {
        self.aside.push_back(held);
    }

    /// Returns the place of the first change aside that need not wait any longer.
    pub(super) fn due_aside(&self, is_due: impl Fn(&QueuedChange) -> bool) -> Option<usize> {
        self.aside.iter().position(is_due)
    }

    pub(super) fn take_aside(&mut self, place: usize) -> Option<QueuedChange> {
        self.aside.remove(place)
    }

    /// Gives a change its sequence number and its context.
    pub(super) fn number(&mut self, held: QueuedChange, context: Context) -> Change {
        let seq = self.next_seq;
        self.next_seq = seq.saturating_add(1);
        let QueuedChange { at, origin, late, what, .. } = held;
        let late = late || at < self.told_at;
        self.told_at = self.told_at.max(at);
        Change { seq, at, origin, late, context, what }
    }
}
