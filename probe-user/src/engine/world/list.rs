//! Listings and gaps: when "not in the list" may mean "not there".
//!
//! **Invariant:** nothing is concluded from absence but from a complete listing that began after a gap, and of nothing
//! that such a listing would not have had in it.

use std::time::Duration;

use probe_common::event::class;

use crate::engine::{
    change::{Question, What},
    fact::{Attached, List, Loss, Origin, Signal},
    id::CgroupKey,
    outbox::{Subject, Wait},
    time::Timestamp,
    timer,
    world::{Moment, World, netns::Netns, process},
};

/// A listing that has begun and not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    pub list: List,
    pub at: Timestamp,
}

/// Since when absence from a kind of list has meant nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    pub list: List,
    pub at: Timestamp,
}

/// A node that loses records is busy: it is not made to list itself all the time as well.
const BETWEEN_RELISTS: Duration = Duration::from_secs(5);
/// A verdict is in no hurry: it waits for others that want a listing too.
const BETWEEN_CHECKS: Duration = Duration::from_secs(60);
/// So many verdicts of one moment are served by one listing.
const GATHER: Duration = Duration::from_secs(1);

impl World {
    pub(super) fn list_begun(&mut self, m: Moment, list: List) {
        self.listings.insert(list, m.at);
    }

    pub(super) fn list_ended(&mut self, m: Moment, list: List, complete: bool) {
        let Some(begun) = self.listings.remove(&list) else { return };
        if !complete {
            return;
        }
        // Records tell of their own changes only by being read again.
        match list {
            List::CniCache => self.cache_not_listed(begun),
            List::Ipam => self.stores_not_listed(m, begun),
            List::Runtimes => self.runtimes_not_listed(begun),
            List::Processes
            | List::Netns
            | List::Addresses
            | List::Cgroups
            | List::Containers
            | List::Pods => {}
        }
        if self.gaps.get(&list).is_none_or(|gap| *gap > begun) {
            return;
        }
        self.gaps.remove(&list);
        let m = Moment { origin: Origin::Listed, ..m };
        match list {
            List::Processes => self.processes_not_listed(m, begun),
            List::Netns => self.netns_not_listed(m, begun),
            List::Cgroups => self.cgroups_not_listed(m, begun),
            // What these name is believed for its own evidence only.
            List::Addresses
            | List::Containers
            | List::Pods
            | List::CniCache
            | List::Ipam
            | List::Runtimes => {}
        }
    }

    fn processes_not_listed(&mut self, m: Moment, begun: Timestamp) {
        let missing = |row: &&process::Process| {
            row.state == process::State::Running
                && row.executed_at.max(row.found_at).is_none_or(|seen| seen < begun)
                && self.is_listable(row)
        };
        let gone: Vec<_> = self.processes.values().filter(missing).map(|row| row.key).collect();
        for key in gone {
            self.vanished(m, key);
        }
    }

    /// Whether a list tells of a process as long as it runs. Most are told only because every exec is, or run in a
    /// container: no list has those.
    fn is_listable(&self, row: &process::Process) -> bool {
        row.found_at > row.executed_at
            || row.class & class::CONTAINER_TOP != 0
            || process::class_of(&row.comm) != 0
            || self.calls.get(&row.key).is_some_and(|call| !call.call.delegated)
    }

    fn netns_not_listed(&mut self, m: Moment, begun: Timestamp) {
        let missing = |row: &&Netns| {
            row.is_live()
                && row.key.inode != self.host_netns
                && row.created_at.max(row.found_at).is_none_or(|seen| seen < begun)
                && is_listable(row)
        };
        let gone: Vec<_> = self.netns.rows.values().filter(missing).map(|row| row.life).collect();
        for life in gone {
            self.drop_life(m, life, None);
        }
    }

    fn cgroups_not_listed(&mut self, m: Moment, begun: Timestamp) {
        let gone: Vec<_> = self
            .cgroups
            .values_mut()
            .filter(|row| row.is_live() && row.created_at.max(row.found_at).is_none_or(|seen| seen < begun))
            .map(|row| {
                row.state = super::cgroup::State::Removed { at: m.at };
                row.key
            })
            .collect();
        self.bury(m.at);
        for key in gone {
            self.cgroup_gone(m, key);
        }
        // The directory that was known by what lay in it would have been in the list, and would have its key.
        let mut unseen = Vec::new();
        for row in self.pods.rows.values_mut().filter(|row| row.cgroups == [CgroupKey::default()]) {
            row.cgroups.clear();
            unseen.push(row.id);
        }
        for pod in unseen {
            self.pod_may_be_gone(m, pod);
        }
    }

    pub(super) fn lost(&mut self, m: Moment, what: Loss, count: u64) {
        let lost = self.counts.lost.entry(what).or_default();
        *lost = lost.saturating_add(count);
        self.rows_gapped();
        self.losses_grow(m.at, count);
        for list in List::ALL {
            self.gaps.insert(list, m.at);
        }
        self.tell(m, Subject::default(), Wait::Nothing, What::Gap { what, count });
        match self.relisted_at {
            Some(last) if last + BETWEEN_RELISTS > m.at => {
                self.timers.hurry(timer::Name::Relist, last + BETWEEN_RELISTS)
            }
            Some(_) | None => self.relist(m.at),
        }
    }

    /// A verdict depends on what a listing finds now.
    pub(in crate::engine) fn check(&mut self, at: Timestamp) {
        let soonest = self.relisted_at.map_or(at, |last| last + BETWEEN_CHECKS);
        self.timers.hurry(timer::Name::Relist, (at + GATHER).max(soonest));
    }

    pub(super) fn relist(&mut self, now: Timestamp) {
        self.relisted_at = Some(now);
        self.ask(Question::Relist);
    }

    pub(super) fn attach(&mut self, it: Attached) {
        let before = self.is_watching();
        if it.signal == Signal::Listening {
            self.listening_seen(it.mechanism.is_some());
        }
        self.attached.insert(it.signal, it);
        if !before && self.is_watching() {
            self.watch_all();
        }
    }
}

/// Whether a list tells of a namespace as long as it is there: it stood in one before, a file holds it, or a sandbox
/// lives in it. What only a descriptor, a socket or a thread holds is in none.
fn is_listable(row: &Netns) -> bool {
    row.found_at.is_some() || !row.mounts.is_empty() || row.sandbox.is_some()
}
