//! What waits to be told. Changes leave in the order in which they came, each with the next sequence number; one
//! whose pod has no name yet is held for a moment, and everything behind it waits.
//!
//! On a node with a kubelet a pod has a cgroup first and a name only when its sandbox is made: the kubelet mounts its
//! volumes in between, and with many pods at once that takes seconds. What is told of such a pod is put aside after that
//! moment, where nothing waits for it, until the pod has its name.

use std::{collections::VecDeque, time::Duration};

use super::{
    held::{Held, Wait},
    world::World,
};
use crate::model::{
    change::{Change, Context},
    fact::Role,
    id::PodUid,
    time::Timestamp,
};

/// So many changes wait at most; then the first goes without its name.
const CAPACITY: usize = 8192;
/// So many are put aside at most, and for so long.
const ASIDE: usize = 256;
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Outbox {
    waiting: VecDeque<Held>,
    /// What waits by itself for its pod's name, in its order.
    aside: VecDeque<(PodUid, Held)>,
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
        Self { waiting: VecDeque::new(), aside: VecDeque::new(), next_seq, told_at: Timestamp::ZERO }
    }

    pub(super) fn push(&mut self, held: Held) {
        self.waiting.push_back(held);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Held> {
        self.aside.iter().map(|(_, held)| held).chain(&self.waiting)
    }

    /// When the first in line has waited long enough.
    pub(super) fn deadline(&self, hold: Duration) -> Option<Timestamp> {
        let aside = self.aside.iter().map(|(_, held)| held.at + PATIENCE).min();
        self.waiting.front().map(|held| held.at + hold).into_iter().chain(aside).min()
    }

    /// The next change that can be told by `now`.
    pub(super) fn pop(&mut self, now: Timestamp, hold: Duration, world: &mut World) -> Option<Change> {
        loop {
            if let Some(held) = self.pop_aside(now, world) {
                let (context, _) = world.context(&held.subject);
                return Some(self.told(held, context));
            }
            let held = self.waiting.front()?;
            let is_over = now >= held.at + hold || self.waiting.len() > CAPACITY;
            let (context, settled) = world.context(&held.subject);
            let turn = match held.wait {
                Wait::Nothing => Turn::Tell,
                Wait::Name if settled => Turn::Tell,
                Wait::Name if !is_over => Turn::Hold,
                Wait::Name if hold.is_zero() => Turn::Tell,
                Wait::Name => match self.unnamed(held, &context, now, world) {
                    Some(uid) => Turn::PutAside(uid),
                    None => Turn::Tell,
                },
                Wait::Role(wanted) => {
                    match held.subject.container.as_ref().and_then(|id| world.role_of(id)) {
                        Some(role) if role != wanted => Turn::Drop,
                        Some(_) if settled || is_over => Turn::Tell,
                        Some(_) => Turn::Hold,
                        None if !is_over
                            && held.subject.container.as_ref().is_some_and(|id| world.is_asked(id)) =>
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
            let held = self.waiting.pop_front()?;
            if held.wait == Wait::Role(Role::Sandbox)
                && let Some(id) = &held.subject.container
            {
                world.tentative_over(id);
            }
            match turn {
                Turn::Tell => return Some(self.told(held, context)),
                Turn::PutAside(uid) => self.aside.push_back((uid, held)),
                Turn::Drop | Turn::Hold => {}
            }
        }
    }

    /// The first of what was put aside whose pod has its name by now, or that has waited long enough.
    fn pop_aside(&mut self, now: Timestamp, world: &World) -> Option<Held> {
        let is_due = |(uid, held): &(PodUid, Held)| now >= held.at + PATIENCE || !world.may_be_named(uid);
        let place = self.aside.iter().position(is_due)?;
        self.aside.remove(place).map(|(_, held)| held)
    }

    /// The pod for whose name this may wait aside.
    fn unnamed(&self, held: &Held, context: &Context, now: Timestamp, world: &World) -> Option<PodUid> {
        let uid = context.pod.as_ref()?.uid.as_ref()?;
        let has_room = self.aside.len() < ASIDE && now < held.at + PATIENCE;
        (has_room && world.may_be_named(uid)).then(|| uid.clone())
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
