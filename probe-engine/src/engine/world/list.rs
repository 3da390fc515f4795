//! Listings and gaps: when a row that is missing in a listing counts as gone.
//!
//! **Invariant:** a row counts as gone only if a complete listing that began after the gap does not have it, and only
//! if such a listing would have it while it exists.

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
    pub(crate) list: List,
    pub(crate) at: Timestamp,
    /// The listing tells only what changed since the one before it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_unchanged: bool,
}

/// The time from which the rows of one kind of list are in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    pub(crate) list: List,
    pub(crate) at: Timestamp,
    #[serde(default)]
    pub(crate) doubt: Doubt,
}

/// What is in doubt after a loss, until a complete listing that began after the loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Doubt {
    /// Records that verdicts depend on may be missing. A row's absence proves nothing.
    #[default]
    Lost,
    /// Only records of the bulk ring or of netlink may be missing. Rows may be out of date, but verdicts still hold.
    Excess,
    /// No agent heard netlink. A network namespace may have ended, and another one may have its inode by now.
    Unheard,
    /// Rows that existed when records were lost are marked (`gapped`). A later listing can show that they are unchanged.
    Marked,
}

/// The state of the listings.
#[derive(Debug, Default)]
pub(in crate::engine) struct Lists {
    /// The listings that have begun and not ended.
    pub(super) begun: BTreeMap<List, Timestamp>,
    /// The listing of libcni's cache that has begun tells only what changed since the one before it.
    pub(super) is_cache_unchanged: bool,
    pub(super) gaps: BTreeMap<(Doubt, List), Timestamp>,
    /// The lists whose last reading was incomplete, and since when.
    pub(in crate::engine) partial: BTreeMap<List, Timestamp>,
    /// When the node was last asked to be listed again.
    pub(in crate::engine) relisted_at: Option<Timestamp>,
}

/// The records that a loss can concern.
enum Concern {
    /// Any records, with those that verdicts depend on.
    Anything,
    /// Records of the bulk ring: the activity of containers.
    Containers,
    /// Addresses, and ends of network namespaces that no hook sees.
    Netlink,
}

/// A node that loses records is busy. Listings after losses are at least this far apart.
const BETWEEN_RELISTS: Duration = Duration::from_secs(5);
/// A verdict can wait. Listings for verdicts are at least this far apart.
const BETWEEN_CHECKS: Duration = Duration::from_secs(60);
/// How long no record must have been lost before marks are removed. By then operations that were under way have ended, or
/// their records have come.
pub(in crate::engine) const QUIET: Duration = Duration::from_secs(30);
/// The lists that can show that a sandbox is unchanged.
const HEALING: [List; 3] = [List::Processes, List::Netns, List::CniCache];
/// The lists that can be out of date when only records of the bulk ring are lost.
const OF_CONTAINERS: [List; 4] = [List::Processes, List::Netns, List::Addresses, List::Cgroups];
const OF_NETLINK: [List; 2] = [List::Netns, List::Addresses];
/// Verdicts that ask for a listing within this time share one.
const GATHER: Duration = Duration::from_secs(1);

impl World {
    pub(super) fn list_ended(&mut self, ctx: EventContext, list: List, complete: bool) {
        let Some(begun) = self.lists.begun.remove(&list) else { return };
        if list == List::Runtimes {
            self.attachments.forget_unnamed();
        }
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
        let all = [Doubt::Lost, Doubt::Excess, Doubt::Unheard, Doubt::Marked];
        let over = all.map(|doubt| (doubt, is_over(doubt)));
        // Changes of records only show when the records are read again.
        match list {
            List::CniCache => {
                self.cache_not_listed(begun, self.lists.is_cache_unchanged);
                self.found_ready(ctx);
            }
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
        if list == List::Netns {
            self.netns_outlive(ctx, begun);
            self.watch_rest(ctx.at);
        }
        if over.contains(&(Doubt::Marked, true)) {
            self.heal(ctx, list);
        }
    }

    /// Removes the rows that a complete listing does not name. The listing began at `begun`, after a gap.
    fn not_listed(&mut self, ctx: EventContext, list: List, begun: Timestamp) {
        let ctx = EventContext { origin: Origin::Listed, ..ctx };
        match list {
            List::Processes => self.processes_not_listed(ctx, begun),
            List::Netns => self.netns_not_listed(ctx, begun),
            List::Cgroups => self.cgroups_not_listed(ctx, begun),
            // Absence from these lists proves nothing.
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

    /// Whether a listing has a process as long as the process runs. No listing has processes that run in a container,
    /// or that are known only because the hooks report every exec.
    fn is_listable(&self, row: &process::Process) -> bool {
        row.found_at > row.executed_at
            || row.program.class & class::CONTAINER_TOP != 0
            || row.program.class & (class::CALLER | class::RUNTIME | class::PAUSE) != 0
            || self.calls.get(&row.key).is_some_and(|call| !call.call.delegated)
    }

    /// An end that a hook reports is left to it, unless the record may be lost.
    fn netns_not_listed(&mut self, ctx: EventContext, begun: Timestamp) {
        let missing = |row: &&Netns| {
            row.is_live()
                && row.key.inode != self.node.host_netns
                && row.seen_at() < Some(begun)
                && row.is_listable()
                && (row.gapped || !self.sees_end(row))
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
        // The listing names every cgroup that exists. A pod's cgroup that was known only by the cgroups in it would
        // have its key now.
        for pod in self.pods.lost_unseen_cgroups() {
            self.pod_may_be_gone(ctx, pod);
        }
    }

    /// Removes the marks of rows that a listing after a quiet time shows unchanged: no lost record was about them. Rows
    /// that are over stay marked.
    fn heal(&mut self, ctx: EventContext, list: List) {
        let since = self.coverage.losses.as_ref().map_or(Timestamp::ZERO, |losses| losses.last_at + QUIET);
        if list == List::Netns {
            self.netns.heal(since);
            self.netns.forget_unseen();
        }
        if self.lists.is_marked() {
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

    /// Whether a listing since that time showed the process that holds a sandbox, and no CNI plugin works on it.
    ///
    /// CRI-O makes sandboxes without a process: there the network namespace is enough. Elsewhere it is not, because the
    /// namespace outlives the process, and the records of the process and of its end may both be lost.
    fn is_seen(&self, row: &Sandbox, since: Timestamp) -> bool {
        let process = self.containers.get(&row.id).and_then(|row| row.process());
        let is_held = match process.and_then(|key| self.processes.get(key)) {
            Some(row) => row.state == process::State::Running && row.found_at >= Some(since),
            None => {
                let netns = row.network.netns.and_then(|life| self.netns.get(life));
                self.has_crio() && netns.is_some_and(|row| row.is_live() && row.found_at >= Some(since))
            }
        };
        let is_called = || self.calls.values().any(|call| call.container.as_ref() == Some(&row.id));
        !row.is_stopped() && is_held && !is_called()
    }

    pub(super) fn lost(&mut self, ctx: EventContext, what: Loss, count: u64) {
        let lost = self.counts.lost.entry(what).or_default();
        *lost = lost.saturating_add(count);
        self.tell(ctx, Subject::default(), Wait::Nothing, ChangeKind::Gap { what, count, lasted: None });
        let between = match concern(what) {
            Concern::Anything => {
                self.coverage.losses_grow(ctx.at, count);
                self.anything_lost(ctx.at, ctx.at);
                BETWEEN_RELISTS
            }
            Concern::Containers => {
                self.inner_netns_gapped();
                self.lists.out_of_date(ctx.at, &OF_CONTAINERS);
                BETWEEN_CHECKS
            }
            Concern::Netlink => {
                self.lists.out_of_date(ctx.at, &OF_NETLINK);
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

    /// What happened from `since` until now is not known, and how much of it is missing is not known either: no agent saw it, or
    /// what that one kept is lost. A new agent lists the node without being asked.
    pub(super) fn unknown_since(&mut self, ctx: EventContext, what: Loss, since: Timestamp) {
        let lasted = Some(ctx.at.since(since));
        let gap = ChangeKind::Gap { what, count: 0, lasted };
        self.tell(ctx, Subject::default(), Wait::Nothing, gap);
        self.coverage.missed(what, since, ctx.at);
        self.anything_lost(since, ctx.at);
        self.relist_begun(ctx.at);
    }

    /// No agent heard netlink from `since` until now, and hooks saw the rest. A new agent lists the node without being
    /// asked.
    pub(super) fn netlink_unheard(&mut self, ctx: EventContext, since: Timestamp) {
        let lasted = Some(ctx.at.since(since));
        let gap = ChangeKind::Gap { what: Loss::NetlinkSocket, count: 0, lasted };
        self.tell(ctx, Subject::default(), Wait::Nothing, gap);
        self.lists.out_of_date(ctx.at, &OF_NETLINK);
        self.lists.gaps.insert((Doubt::Unheard, List::Netns), ctx.at);
        self.relist_begun(ctx.at);
    }

    /// What netlink reports of a namespace may have been missed.
    pub(super) fn netlink_missed(&mut self, at: Timestamp) {
        self.lists.out_of_date(at, &OF_NETLINK);
        self.check(at);
    }

    /// Any record of this time may be missing.
    fn anything_lost(&mut self, since: Timestamp, at: Timestamp) {
        self.rows_gapped(since);
        for list in List::ALL {
            self.lists.gaps.insert((Doubt::Lost, list), at);
        }
        for list in HEALING {
            self.lists.gaps.insert((Doubt::Marked, list), at + QUIET);
        }
    }

    /// Which network namespaces may be over, and their inodes those of others, until they are listed.
    pub(super) fn netns_doubted(&self) -> impl Fn(&Netns) -> bool {
        let [lost, unheard, excess] = [Doubt::Lost, Doubt::Unheard, Doubt::Excess]
            .map(|doubt| self.lists.gaps.get(&(doubt, List::Netns)).copied());
        move |row| {
            let is_unseen_since = |doubted_at| row.seen_at() < doubted_at;
            // The bulk ring has the ends and beginnings of the namespaces of containers. What netlink loses hides neither:
            // it reports no beginning, and the end only of what it watches.
            let is_inner = || row.gapped && self.cgroups.is_in_container(row.creator.cgroup);
            is_unseen_since(lost.max(unheard)) || is_unseen_since(excess) && is_inner()
        }
    }

    /// A verdict depends on the result of a new listing.
    pub(in crate::engine) fn check(&mut self, at: Timestamp) {
        let soonest = self.lists.relisted_at.map_or(at, |last| last + BETWEEN_CHECKS);
        self.timers.arm_earlier(timer::Name::Relist, (at + GATHER).max(soonest));
    }

    pub(super) fn relist(&mut self, now: Timestamp) {
        self.ask(Question::Relist);
        self.relist_begun(now);
    }

    /// The node is being listed. It is listed again when that can remove marks.
    fn relist_begun(&mut self, now: Timestamp) {
        self.lists.relisted_at = Some(now);
        let marked = HEALING.iter().filter_map(|list| self.lists.gaps.get(&(Doubt::Marked, *list)));
        if let Some(at) = marked.max().copied().filter(|at| *at > now) {
            self.timers.arm_earlier(timer::Name::Relist, at);
        }
    }

    pub(super) fn attach(&mut self, it: Attached) {
        let before = self.coverage.needs_netlink();
        if it.signal == Signal::Listening {
            self.boot.listening_seen(it.mechanism.is_some());
        }
        self.coverage.attached.insert(it.signal, it);
        if !before && self.coverage.needs_netlink() {
            self.watch_all();
        }
    }
}

/// The records that a loss at this place can concern. The bulk ring has the activity of containers: programs, nested
/// cgroups, calls that only look like CNI calls, and the records of a container that exceeds its share of the lifecycle
/// ring. A loss elsewhere can be of any record.
fn concern(what: Loss) -> Concern {
    match what {
        Loss::LifecycleRing
        | Loss::Record
        | Loss::Channel
        | Loss::SkippedRun
        | Loss::NoAgent
        | Loss::State => Concern::Anything,
        Loss::BulkRing => Concern::Containers,
        Loss::NetlinkSocket => Concern::Netlink,
    }
}

impl Lists {
    pub(in crate::engine) fn begin(&mut self, ctx: EventContext, list: List) {
        self.begun.insert(list, ctx.at);
        if list == List::CniCache {
            self.is_cache_unchanged = false;
        }
    }

    fn out_of_date(&mut self, at: Timestamp, lists: &[List]) {
        for list in lists {
            self.gaps.insert((Doubt::Excess, *list), at);
        }
    }

    /// Whether records that verdicts depend on may be missing until this list is read again.
    pub(in crate::engine) fn is_gapped(&self, list: List) -> bool {
        self.gaps.contains_key(&(Doubt::Lost, list))
    }

    /// Whether marks of a loss have not been removed yet. What is found now may have existed when records were lost.
    pub(in crate::engine::world) fn is_marked(&self) -> bool {
        HEALING.iter().any(|list| self.gaps.contains_key(&(Doubt::Marked, *list)))
    }
}
