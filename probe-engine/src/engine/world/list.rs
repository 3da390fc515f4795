//! Listings and gaps: when "not in the list" may mean "not there".
//!
//! **Invariant:** nothing is concluded from absence but from a complete listing that began after a gap, and of nothing
//! that such a listing would not have had in it.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use probe_common::event::class;

use crate::{
    engine::{
        held::{Subject, Wait},
        timer,
        world::{EventContext, World, netns::Netns, process, sandbox::Sandbox},
    },
    model::{
        change::{ChangeKind, Question},
        fact::{Attached, List, Loss, Origin, Signal},
        time::Timestamp,
    },
};

/// A listing that has begun and not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    pub list: List,
    pub at: Timestamp,
}

/// Since when something about a kind of list is in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    pub list: List,
    pub at: Timestamp,
    #[serde(default)]
    pub doubt: Doubt,
}

/// What a complete listing that began after it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doubt {
    /// What verdicts rest on may be missing: absence means nothing.
    #[default]
    Lost,
    /// Only what containers do at will may be missing, or what netlink tells: rows may be out of date, verdicts stand.
    Excess,
    /// Rows that were there when something was lost are marked; from then on a listing can show that they are as they
    /// were.
    Marked,
}

/// What is known of listings.
#[derive(Debug, Default)]
pub(in crate::engine) struct Lists {
    /// Those that have begun and not ended.
    pub(super) begun: BTreeMap<List, Timestamp>,
    pub(super) gaps: BTreeMap<(Doubt, List), Timestamp>,
    /// Lists that could not be read whole when they were last read, and since when that is so.
    pub(in crate::engine) partial: BTreeMap<List, Timestamp>,
    /// When the node was last asked to be listed again.
    pub(in crate::engine) relisted_at: Option<Timestamp>,
}

/// What a loss can be of.
enum Concern {
    /// Anything, so also what verdicts rest on.
    Anything,
    /// What containers do at will, and what they make beyond their share of the other ring.
    Containers,
    /// Addresses, and ends of namespaces of which no hook tells.
    Netlink,
}

/// A node that loses records is busy: it is not made to list itself all the time as well.
const BETWEEN_RELISTS: Duration = Duration::from_secs(5);
/// A verdict is in no hurry: it waits for others that want a listing too.
const BETWEEN_CHECKS: Duration = Duration::from_secs(60);
/// After the last loss: by then what was under way has been told, or is over.
pub(in crate::engine) const QUIET: Duration = Duration::from_secs(30);
/// What tells that a sandbox is as it was.
const HEALING: [List; 3] = [List::Processes, List::Netns, List::CniCache];
/// What can be out of date when only the doings of containers are lost.
const OF_CONTAINERS: [List; 4] = [List::Processes, List::Netns, List::Addresses, List::Cgroups];
const OF_NETLINK: [List; 2] = [List::Netns, List::Addresses];
/// So many verdicts of one moment are served by one listing.
const GATHER: Duration = Duration::from_secs(1);

impl World {
    pub(super) fn list_begun(&mut self, ctx: EventContext, list: List) {
        self.lists.begun.insert(list, ctx.at);
    }

    pub(super) fn list_ended(&mut self, ctx: EventContext, list: List, complete: bool) {
        let Some(begun) = self.lists.begun.remove(&list) else { return };
        let is_over = |doubt: Doubt| self.lists.gaps.get(&(doubt, list)).is_some_and(|gap| *gap <= begun);
        if !complete {
            // Nothing else asks for these again.
            if is_over(Doubt::Marked) && matches!(list, List::Processes | List::Netns) {
                self.check(ctx.at);
            }
            self.lists.partial.entry(list).or_insert(ctx.at);
            return;
        }
        self.lists.partial.remove(&list);
        let over = [Doubt::Lost, Doubt::Excess, Doubt::Marked].map(|doubt| (doubt, is_over(doubt)));
        // Records tell of their own changes only by being read again.
        match list {
            List::CniCache => self.cache_not_listed(begun),
            List::Ipam => self.stores_not_listed(ctx, begun),
            List::Runtimes => self.runtimes_not_listed(ctx, begun),
            List::Processes
            | List::Netns
            | List::Addresses
            | List::Cgroups
            | List::Containers
            | List::Pods => {}
        }
        for (doubt, _) in over.iter().filter(|(_, is_over)| *is_over) {
            self.lists.gaps.remove(&(*doubt, list));
        }
        if over.iter().any(|(doubt, is_over)| *is_over && *doubt != Doubt::Marked) {
            self.not_listed(ctx, list, begun);
        }
        if over.contains(&(Doubt::Marked, true)) {
            self.heal(ctx, list);
        }
    }

    /// What a complete listing that began then, after a gap, does not name is not there.
    fn not_listed(&mut self, ctx: EventContext, list: List, begun: Timestamp) {
        let ctx = EventContext { origin: Origin::Listed, ..ctx };
        match list {
            List::Processes => self.processes_not_listed(ctx, begun),
            List::Netns => self.netns_not_listed(ctx, begun),
            List::Cgroups => self.cgroups_not_listed(ctx, begun),
            // What these name is believed for its own evidence only.
            List::Addresses
            | List::Containers
            | List::Pods
            | List::CniCache
            | List::Ipam
            | List::Runtimes => {}
        }
    }

    fn processes_not_listed(&mut self, ctx: EventContext, begun: Timestamp) {
        let missing = |row: &&process::Process| {
            row.state == process::State::Running
                && row.executed_at.max(row.found_at).is_none_or(|seen| seen < begun)
                && self.is_listable(row)
        };
        let gone: Vec<_> = self.processes.values().filter(missing).map(|row| row.key).collect();
        for key in gone {
            self.vanished(ctx, key);
        }
    }

    /// Whether a list tells of a process as long as it runs. Most are told only because every exec is, or run in a
    /// container: no list has those.
    fn is_listable(&self, row: &process::Process) -> bool {
        row.found_at > row.executed_at
            || row.program.class & class::CONTAINER_TOP != 0
            || row.program.class & (class::CALLER | class::RUNTIME | class::PAUSE) != 0
            || self.calls.get(&row.key).is_some_and(|call| !call.call.delegated)
    }

    fn netns_not_listed(&mut self, ctx: EventContext, begun: Timestamp) {
        let missing = |row: &&Netns| {
            row.is_live()
                && row.key.inode != self.node.host_netns
                && row.created_at.max(row.found_at).is_none_or(|seen| seen < begun)
                && row.is_listable()
        };
        let gone: Vec<_> = self.netns.values().filter(missing).map(|row| row.life).collect();
        for life in gone {
            self.drop_life(ctx, life, None);
        }
    }

    fn cgroups_not_listed(&mut self, ctx: EventContext, begun: Timestamp) {
        let gone = self.cgroups.not_listed(ctx.at, begun);
        self.schedule_reap(ctx.at);
        for key in gone {
            self.cgroup_gone(ctx, key);
        }
        // The directory that was known by what lay in it would have been in the list, and would have its key.
        for pod in self.pods.lost_unseen_cgroups() {
            self.pod_may_be_gone(ctx, pod);
        }
    }

    /// Rows that were there when something was lost are as they were, if a listing after a quiet time shows it: then nothing
    /// has befallen them that was not told. What is over by then stays marked.
    fn heal(&mut self, ctx: EventContext, list: List) {
        let since = self.coverage.losses.as_ref().map_or(Timestamp::ZERO, |losses| losses.last_at + QUIET);
        if list == List::Netns {
            self.netns.heal(since);
        }
        if HEALING.iter().any(|list| self.lists.gaps.contains_key(&(Doubt::Marked, *list))) {
            return;
        }
        let there: Vec<_> = self
            .sandboxes
            .values()
            .filter(|row| self.is_seen(row, since))
            .map(|row| row.id.clone())
            .collect();
        for id in there {
            self.attachments_heal(&id, since);
            self.sandboxes.heal(&id);
        }
        self.changed_at.get_or_insert(ctx.at);
    }

    /// Whether a listing since then showed the process that holds a sandbox, or its namespace, and no plugin is at work on
    /// it.
    fn is_seen(&self, row: &Sandbox, since: Timestamp) -> bool {
        let process = self.containers.get(&row.id).and_then(|row| row.process());
        let process = process.and_then(|key| self.processes.get(key));
        let runs =
            |row: &process::Process| row.state == process::State::Running && row.found_at >= Some(since);
        let netns = row.network.netns.and_then(|life| self.netns.get(life));
        let is_called = || self.calls.values().any(|call| call.container.as_ref() == Some(&row.id));
        !row.is_stopped()
            && (process.is_some_and(runs)
                || netns.is_some_and(|row| row.is_live() && row.found_at >= Some(since)))
            && !is_called()
    }

    pub(super) fn lost(&mut self, ctx: EventContext, what: Loss, count: u64) {
        let lost = self.counts.lost.entry(what).or_default();
        *lost = lost.saturating_add(count);
        self.tell(ctx, Subject::default(), Wait::Nothing, ChangeKind::Gap { what, count });
        let between = match concern(what) {
            Concern::Anything => {
                self.rows_gapped();
                self.losses_grow(ctx.at, count);
                for list in List::ALL {
                    self.lists.gaps.insert((Doubt::Lost, list), ctx.at);
                }
                for list in HEALING {
                    self.lists.gaps.insert((Doubt::Marked, list), ctx.at + QUIET);
                }
                BETWEEN_RELISTS
            }
            Concern::Containers => {
                self.inner_netns_gapped();
                self.out_of_date(ctx.at, &OF_CONTAINERS);
                BETWEEN_CHECKS
            }
            Concern::Netlink => {
                self.out_of_date(ctx.at, &OF_NETLINK);
                BETWEEN_CHECKS
            }
        };
        match self.lists.relisted_at {
            Some(last) if last + between > ctx.at => {
                self.timers.arm_earlier(timer::Name::Relist, last + between)
            }
            Some(_) | None => self.relist(ctx.at),
        }
    }

    fn out_of_date(&mut self, at: Timestamp, lists: &[List]) {
        for list in lists {
            self.lists.gaps.insert((Doubt::Excess, *list), at);
        }
    }

    /// Whether what verdicts rest on may be missing until this is listed again.
    pub(in crate::engine) fn is_gapped(&self, list: List) -> bool {
        self.lists.gaps.contains_key(&(Doubt::Lost, list))
    }

    /// A verdict depends on what a listing finds now.
    pub(in crate::engine) fn check(&mut self, at: Timestamp) {
        let soonest = self.lists.relisted_at.map_or(at, |last| last + BETWEEN_CHECKS);
        self.timers.arm_earlier(timer::Name::Relist, (at + GATHER).max(soonest));
    }

    pub(super) fn relist(&mut self, now: Timestamp) {
        self.lists.relisted_at = Some(now);
        self.ask(Question::Relist);
        let marked = HEALING.iter().filter_map(|list| self.lists.gaps.get(&(Doubt::Marked, *list)));
        if let Some(at) = marked.max().copied().filter(|at| *at > now) {
            self.timers.arm_earlier(timer::Name::Relist, at);
        }
    }

    pub(super) fn attach(&mut self, it: Attached) {
        let before = self.is_watching();
        if it.signal == Signal::Listening {
            self.listening_seen(it.mechanism.is_some());
        }
        self.coverage.attached.insert(it.signal, it);
        if !before && self.is_watching() {
            self.watch_all();
        }
    }
}

/// The bulk ring has what containers do at will: programs, nested cgroups, calls that merely look like CNI, and what one
/// of them causes beyond its share of the other ring. The rest can be anything.
fn concern(what: Loss) -> Concern {
    match what {
        Loss::LifecycleRing | Loss::Record | Loss::Channel | Loss::SkippedRun => Concern::Anything,
        Loss::BulkRing => Concern::Containers,
        Loss::NetlinkSocket => Concern::Netlink,
    }
}
