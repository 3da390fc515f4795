//! Everything that the engine says passes through here: changes, and questions to the sources.
//!
//! Changes leave in the order in which they came, each with the next sequence number. A change whose pod has no name yet
//! is held for a moment, and everything behind it waits.
//!
//! On a node with a kubelet a pod has a cgroup first and a name only when its sandbox is made: the kubelet mounts its
//! volumes in between, and with many pods at once that takes seconds. After that moment a change of such a pod is put
//! aside, where nothing waits for it, until the pod has its name.

use std::{collections::VecDeque, time::Duration};

use super::{
    held::{Held, Wait},
    world::World,
};
use crate::model::{
    change::{Change, Context, Output, Question},
    fact::Role,
    id::PodUid,
    time::Timestamp,
};

/// So many changes wait at most; then the first goes without its name.
const CAPACITY: usize = 8192;
/// So many are put aside at most, and for so long.
const ASIDE: usize = 256;
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Changes, in the order in which they came.
    waiting: VecDeque<Held>,
    /// Changes that wait by themselves for the name of their pod, in their order.
    aside: VecDeque<(PodUid, Held)>,
    /// What can be taken from the engine.
    ready: VecDeque<Output>,
    pub(super) next_seq: u64,
    /// The latest time of anything that was told: what is told after it of an earlier time is late.
    pub(super) told_at: Timestamp,
}

/// What becomes of the first in line.
enum Turn {
    Tell,
    Drop,
    Hold,
    PutAside(PodUid),
}

impl Outbox {
    pub(super) fn new(next_seq: u64) -> Self {
        Self { next_seq, ..Self::default() }
    }

    pub(super) fn push(&mut self, held: Held) {
        self.waiting.push_back(held);
    }

    /// A question waits for nothing.
    pub(super) fn ask(&mut self, question: Question) {
        self.ready.push_back(Output::Question(question));
    }

    /// A change that was told can be taken.
    pub(super) fn tell(&mut self, change: Change) {
        self.ready.push_back(Output::Change(change));
    }

    /// The next thing to say, if any.
    pub(super) fn take(&mut self) -> Option<Output> {
        self.ready.pop_front()
    }

    /// The changes that wait.
    pub(super) fn held(&self) -> impl Iterator<Item = &Held> {
        self.aside.iter().map(|(_, held)| held).chain(&self.waiting)
    }

    /// The questions that were not taken yet.
    pub(super) fn asked(&self) -> impl Iterator<Item = &Question> {
        self.ready.iter().filter_map(|output| match output {
            Output::Question(question) => Some(question),
            Output::Change(_) => None,
        })
    }

    /// When the first in line has waited long enough.
    pub(super) fn deadline(&self, hold: Duration) -> Option<Timestamp> {
        let aside = self.aside.iter().map(|(_, held)| held.at + PATIENCE).min();
        self.waiting.front().map(|held| held.at + hold).into_iter().chain(aside).min()
    }

    fn told(&mut self, held: Held, context: Context) -> Change {
        let seq = self.next_seq;
        self.next_seq = seq.saturating_add(1);
        let Held { at, origin, late, what, .. } = held;
        let late = late || at < self.told_at;
        self.told_at = self.told_at.max(at);
        Change { seq, at, origin, late, context, what }
    }
}

impl World {
    /// The next change that can be told by `now`.
    pub(super) fn next_change(&mut self, now: Timestamp, hold: Duration) -> Option<Change> {
        loop {
            if let Some(held) = self.pop_aside(now) {
                let (context, _) = self.context(&held.subject);
                return Some(self.outbox.told(held, context));
            }
            let held = self.outbox.waiting.front()?;
            let is_over = now >= held.at + hold || self.outbox.waiting.len() > CAPACITY;
            let (context, settled) = self.context(&held.subject);
            let turn = match held.wait {
                Wait::Nothing => Turn::Tell,
                Wait::Name if settled => Turn::Tell,
                Wait::Name if !is_over => Turn::Hold,
                Wait::Name if hold.is_zero() => Turn::Tell,
                Wait::Name => match self.unnamed(held, &context, now) {
                    Some(uid) => Turn::PutAside(uid),
                    None => Turn::Tell,
                },
                Wait::Role(wanted) => {
                    match held.subject.container.as_ref().and_then(|id| self.role_of(id)) {
                        Some(role) if role != wanted => Turn::Drop,
                        Some(_) if settled || is_over => Turn::Tell,
                        Some(_) => Turn::Hold,
                        None if !is_over
                            && held.subject.container.as_ref().is_some_and(|id| self.is_asked(id)) =>
                        {
                            Turn::Hold
                        }
                        // Most of what has a container's cgroup is a container.
                        None if wanted == Role::Container => Turn::Tell,
                        None => Turn::Drop,
                    }
                }
            };
            if matches!(turn, Turn::Hold) {
                return None;
            }
            let held = self.outbox.waiting.pop_front()?;
            if held.wait == Wait::Role(Role::Sandbox)
                && let Some(id) = &held.subject.container
            {
                self.tentative_over(id);
            }
            match turn {
                Turn::Tell => return Some(self.outbox.told(held, context)),
                Turn::PutAside(uid) => self.outbox.aside.push_back((uid, held)),
                Turn::Drop | Turn::Hold => {}
            }
        }
    }

    /// The first change that was put aside and whose pod has its name by now, or that has waited long enough.
    fn pop_aside(&mut self, now: Timestamp) -> Option<Held> {
        let is_due = |(uid, held): &(PodUid, Held)| now >= held.at + PATIENCE || !self.may_be_named(uid);
        let place = self.outbox.aside.iter().position(is_due)?;
        self.outbox.aside.remove(place).map(|(_, held)| held)
    }

    /// The pod for whose name this may wait aside.
    fn unnamed(&self, held: &Held, context: &Context, now: Timestamp) -> Option<PodUid> {
        let uid = context.pod.as_ref()?.uid.as_ref()?;
        let has_room = self.outbox.aside.len() < ASIDE && now < held.at + PATIENCE;
        (has_room && self.may_be_named(uid)).then(|| uid.clone())
    }
}
