//! Chooses the network namespaces that netlink is asked to watch. Netlink is needed where no hook reports their end or
//! their addresses.
//!
//! To watch a namespace, the agent must find a process that holds it and send a few requests to the kernel. Any
//! container can make thousands of namespaces a second. So a namespace that a container made is watched only after it
//! has lived for a moment, or once a sandbox has it. The number of watches in a second is limited to what a node's pods
//! need.
//!
//! **Invariant:** a namespace that waits for its watch is known, and the watch is asked for as soon as there is room. One that
//! netlink could not watch is asked for again, each time later, and not for ever. Only a loss that can hide that another
//! namespace has its inode makes it wait for a listing.

use std::{mem, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    engine::{
        timer,
        world::{World, loss::NETLINK_SIGNALS, netns::Netns},
    },
    model::{
        change::Question,
        fact::{Mechanism, Signal},
        id::NetnsKey,
        time::Timestamp,
    },
};

/// How many watches were asked for in the present second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    pub(crate) since: Timestamp,
    pub(crate) spent: u32,
}

/// Netlink could not watch a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failed {
    /// How often, and when last.
    times: u32,
    at: Timestamp,
}

/// At most this many new namespaces are watched at once in a second.
const PROMPT: u32 = 64;

/// At most this many waiting namespaces are watched in a second.
const WAITING: usize = 32;

/// A namespace that a container made is watched once it has lived this long.
const SETTLED: Duration = Duration::from_secs(1);

/// Netlink is asked to watch a namespace at most this often: again after 1 s, 2 s, 4 s, 8 s and 16 s. By then a namespace
/// that a runtime makes is bound to its file, and a burst of pods is over.
const TRIES: u32 = 6;

impl Failed {
    /// When netlink is asked again. None: it was asked often enough.
    fn again_at(self) -> Option<Timestamp> {
        let doubled = self.times.checked_sub(1).filter(|_| self.times < TRIES)?;
        Some(self.at + SETTLED * 2_u32.pow(doubled))
    }

    fn is_due(self, at: Timestamp) -> bool {
        self.again_at().is_some_and(|again| again <= at)
    }

    pub(super) fn is_after(self, at: Option<Timestamp>) -> bool {
        Some(self.at) > at
    }
}

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
    /// A namespace became known. Its watch is asked for now, or waits.
    pub(in crate::engine::world) fn watch_soon(&mut self, at: Timestamp, life: u64) {
        let Some(row) = self.netns.get(life).filter(|row| self.is_wanted()(row)) else { return };
        let is_known = row.found_at.is_some() || !self.cgroups.is_in_container(row.creator.cgroup);
        let is_promptly = row.watch_failed.map_or(is_known, |failed| failed.is_due(at));
        if is_promptly && self.netns.watches.take(at) {
            self.watch(life);
        } else {
            self.timers.arm_earlier(timer::Name::Watch, at + SETTLED);
        }
    }

    /// A namespace turned out to belong to a sandbox, so its first watch need not wait.
    pub(in crate::engine::world) fn watch_claimed(&mut self, at: Timestamp, life: u64) {
        let is_due =
            |row: &Netns| self.is_wanted()(row) && row.watch_failed.is_none_or(|failed| failed.is_due(at));
        if self.netns.get(life).is_some_and(is_due) {
            self.watch(life);
        }
    }

    /// Watches all known namespaces: the hooks are attached after the first ones may have become known.
    pub(in crate::engine::world) fn watch_all(&mut self) {
        for life in self.unwatched().collect::<Vec<_>>() {
            self.watch(life);
        }
    }

    /// Another agent is there, whose netlink socket watches nothing yet.
    pub(in crate::engine::world) fn watch_again(&mut self, at: Timestamp) {
        self.netns.rows.update(|_, row| {
            let (was_watched, failed) = (mem::take(&mut row.watched), row.watch_failed.take());
            was_watched || failed.is_some()
        });
        self.watch_rest(at);
    }

    /// The namespaces that are not watched yet are watched a moment later.
    pub(in crate::engine::world) fn watch_rest(&mut self, at: Timestamp) {
        if self.unwatched().next().is_some() {
            self.timers.arm_earlier(timer::Name::Watch, at + SETTLED);
        }
    }

    /// Netlink does not watch a namespace that it was asked to watch.
    pub(in crate::engine::world) fn netns_unwatched(&mut self, at: Timestamp, key: NetnsKey) {
        let Some(life) = self.netns.live_at(key, at) else { return };
        let Some(row) = self.netns.rows.get_mut(&life) else { return };
        if !mem::take(&mut row.watched) {
            return;
        }
        let before = row.watch_failed.map_or(0, |failed| failed.times);
        let failed = Failed { times: before.saturating_add(1), at };
        row.watch_failed = Some(failed);
        let is_listed = row.is_live() && row.is_listable();
        if let Some(again) = failed.again_at() {
            self.timers.arm_earlier(timer::Name::Watch, again);
        } else if is_listed && !self.netns.get(life).is_some_and(|row| self.sees_end(row)) {
            // It may have ended before its watch began.
            self.netlink_missed(at);
        }
    }

    /// Watches the namespaces that had to wait, and those that netlink could not watch before.
    pub(in crate::engine::world) fn watch_waiting(&mut self, now: Timestamp) {
        let due = |life: u64| Some((due(self.netns.get(life)?)?, life));
        let waiting = self.unwatched().filter_map(due);
        let (ready, later): (Vec<_>, Vec<_>) = waiting.partition(|(due, _)| *due <= now);
        ready.iter().take(WAITING).for_each(|(_, life)| self.watch(*life));
        let left = ready.iter().skip(WAITING).chain(&later);
        if let Some(next) = left.map(|(due, _)| *due).min() {
            self.timers.arm_earlier(timer::Name::Watch, next.max(now + SETTLED));
        }
    }

    /// The living namespaces that netlink should watch and does not, as far as is known, oldest first.
    pub(in crate::engine) fn unwatched(&self) -> impl Iterator<Item = u64> {
        let is_wanted = self.is_wanted();
        self.netns.values().filter(move |row| is_wanted(row)).map(|row| row.life)
    }

    /// Whether netlink should watch a namespace: it watches all, or the hooks will not see the end of this one. One whose inode may
    /// be another one's by now waits for the listing that finds it.
    fn is_wanted(&self) -> impl Fn(&Netns) -> bool {
        let all = self.coverage.needs_netlink();
        let is_doubted = self.netns_doubted();
        move |row| {
            row.is_live()
                && !row.watched
                && (all || row.end_unseen)
                && !(row.is_listable() && is_doubted(row))
        }
    }

    fn watch(&mut self, life: u64) {
        let Some(row) = self.netns.rows.get_mut(&life) else { return };
        row.watched = true;
        let question = Question::Watch { netns: row.key, by: row.creator.clone() };
        self.ask(question);
    }

    /// Whether anything is known by netlink alone: a signal of all namespaces, also while netlink fails, or the end of a living one.
    pub(in crate::engine::world) fn hears_netlink(&self) -> bool {
        let fails = |signal: &Signal| {
            let unseen = self.coverage.attached.get(signal).filter(|it| it.mechanism.is_none());
            unseen.is_some_and(|it| it.missed.iter().any(|(mechanism, _)| *mechanism == Mechanism::Netlink))
        };
        NETLINK_SIGNALS.iter().any(|signal| self.coverage.is_by_netlink(*signal) || fails(signal))
            || self.netns.values().any(|row| row.is_live() && row.end_unseen)
    }
}

/// When netlink is asked to watch a namespace that had to wait, or that it could not watch. None: it is not asked again.
fn due(row: &Netns) -> Option<Timestamp> {
    let began = row.created_at.or(row.found_at).unwrap_or(Timestamp::ZERO);
    row.watch_failed.map_or(Some(began + SETTLED), Failed::again_at)
}
