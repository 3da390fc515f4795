//! Which network namespaces netlink is asked to watch, where no hook tells of their end or of the addresses in them.
//!
//! To watch one costs the agent a search for whoever holds it and a few requests to the kernel, and any container can make
//! thousands of namespaces a second. So what a container makes is watched if it is still there after a moment, or once a
//! sandbox has it, and no more of them in a second than a node makes pods.
//!
//! **Invariant:** what is not watched yet is known to be so, and is asked for as soon as there is room.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    engine::{
        timer,
        world::{World, netns::Netns},
    },
    model::{
        change::Question,
        fact::{Mechanism, Signal},
        time::Timestamp,
    },
};

/// How many were asked for in the present second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    pub since: Timestamp,
    pub spent: u32,
}

/// So many are asked for at once in a second.
const PROMPT: u32 = 64;
/// So many of those that had to wait.
const WAITING: usize = 32;
/// What a container makes is watched if it has lived for so long.
const SETTLED: Duration = Duration::from_secs(1);

impl Budget {
    fn take(&mut self, at: Timestamp) -> bool {
        if at >= self.since + SETTLED {
            *self = Self { since: at, spent: 0 };
        }
        self.spent = self.spent.saturating_add(1);
        self.spent <= PROMPT
    }
}

impl World {
    /// A namespace became known: it is asked for now, or waits for its turn.
    pub(in crate::engine::world) fn watch_soon(&mut self, at: Timestamp, life: u64) {
        let Some(row) = self.netns.get(life).filter(|row| is_wanted(row, self.is_watching())) else { return };
        let is_promptly = row.found_at.is_some() || !self.in_container(row.creator.cgroup);
        if is_promptly && self.netns.watches.take(at) {
            self.watch(life);
        } else {
            self.timers.arm_earlier(timer::Name::Watch, at + SETTLED);
        }
    }

    /// Of a sandbox's namespace there is nothing to wait for.
    pub(in crate::engine::world) fn watch_claimed(&mut self, life: u64) {
        if self.netns.get(life).is_some_and(|row| is_wanted(row, self.is_watching())) {
            self.watch(life);
        }
    }

    /// Hooks are attached after the first namespaces may have become known.
    pub(in crate::engine::world) fn watch_all(&mut self) {
        for life in self.unwatched().collect::<Vec<_>>() {
            self.watch(life);
        }
    }

    /// The turn of those that had to wait.
    pub(in crate::engine::world) fn watch_waiting(&mut self, now: Timestamp) {
        if self.unwatched().next().is_none() {
            return;
        }
        let began = |life: &u64| {
            let row = self.netns.get(*life);
            row.and_then(|row| row.created_at.or(row.found_at)).unwrap_or(Timestamp::ZERO)
        };
        let settled = self.unwatched().filter(|life| began(life) + SETTLED <= now);
        for life in settled.take(WAITING).collect::<Vec<_>>() {
            self.watch(life);
        }
        if self.unwatched().next().is_some() {
            self.timers.arm_earlier(timer::Name::Watch, now + SETTLED);
        }
    }

    /// Namespaces that are there and that netlink was not asked to watch, though it would be needed: the oldest first.
    pub(in crate::engine) fn unwatched(&self) -> impl Iterator<Item = u64> {
        let all = self.is_watching();
        self.netns.values().filter(move |row| is_wanted(row, all)).map(|row| row.life)
    }

    fn watch(&mut self, life: u64) {
        let Some(row) = self.netns.rows.get_mut(&life) else { return };
        row.watched = true;
        let question = Question::Watch { netns: row.key, by: row.creator.clone() };
        self.ask(question);
    }

    /// Where no hook tells of the end, or of addresses, netlink does, for namespaces that have an id in ours.
    pub(in crate::engine::world) fn is_watching(&self) -> bool {
        let unseen = matches!(self.mechanism(Signal::NetnsDropped), Some(None));
        unseen
            || [Signal::NetnsDropped, Signal::AddressV4, Signal::AddressV6]
                .iter()
                .any(|signal| self.is_by_netlink(*signal))
    }

    pub(in crate::engine::world) fn is_by_netlink(&self, signal: Signal) -> bool {
        self.mechanism(signal) == Some(Some(Mechanism::Netlink))
    }

    /// Whether a hook tells of it.
    pub(in crate::engine) fn is_hooked(&self, signal: Signal) -> bool {
        matches!(self.mechanism(signal), Some(Some(mechanism)) if mechanism != Mechanism::Netlink)
    }

    /// How it is seen, if that was told.
    fn mechanism(&self, signal: Signal) -> Option<Option<Mechanism>> {
        self.coverage.attached.get(&signal).map(|attached| attached.mechanism)
    }
}

/// Where it is to watch `all`, or one whose end the hooks will not see, whatever they see of the others.
fn is_wanted(row: &Netns, all: bool) -> bool {
    row.is_live() && !row.watched && (all || row.end_unseen)
}
