//! Network namespaces. The kernel reuses an inode number at once, so the world numbers each life of an inode.

mod address;
pub(in crate::engine) mod claim;
pub(in crate::engine) mod table;
pub(crate) mod watch;

use std::{mem, time::Duration};

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

use crate::{
    engine::{
        grouped::Grouped,
        held::{Subject, Wait},
        world::{
            EventContext, World,
            netns::table::same,
            netns_path::{is_same, plain},
            process, process_of,
            sandbox::Sandbox,
        },
    },
    model::{
        change::{ChangeKind, Process},
        fact::{Origin, Signal, Task},
        id::{ContainerId, NetnsKey, Subnet},
        time::Timestamp,
    },
};

#[serde_as]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Netns {
    /// The number of this life of the inode. Numbers only rise and are never reused.
    #[serde_as(as = "DisplayFromStr")]
    pub(crate) life: u64,
    pub(crate) key: NetnsKey,
    pub(crate) created_at: Option<Timestamp>,
    pub(crate) found_at: Option<Timestamp>,
    /// Since when every listing of the namespace has found no process in it.
    pub(crate) vacant_since: Option<Timestamp>,
    /// The task that made the namespace. All zero if no hook saw that.
    pub(crate) creator: Task,
    /// The files to which the namespace is bound.
    pub(crate) mounts: Vec<String>,
    pub(crate) sandbox: Option<ContainerId>,
    /// A CNI plugin worked in the namespace for that sandbox, or the sandbox's process is in it. If this is false, the
    /// sandbox is only the likeliest one.
    pub(crate) proven: bool,
    pub(crate) addresses: Vec<Address>,
    /// When the last reference to the namespace was dropped.
    pub(crate) dropped_at: Option<Timestamp>,
    /// No hook saw the end of the namespace: netlink reported it, or a listing did not have it, or a namespace that was
    /// dropped later has been torn down. The duration of the teardown is not known.
    #[serde(default)]
    pub(crate) end_inferred: bool,
    /// The hooks reported that they will not see the end of the namespace. Netlink's report of its end counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) end_unseen: bool,
    /// The end of the namespace may have been among lost records.
    pub(crate) gapped: bool,
    /// Since when no complete listing has had it although its sandbox is over and a hook would report its end: no process is in
    /// it, no file that a listing looks at is bound to it, and something keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unlisted_since: Option<Timestamp>,
    /// Netlink was asked to watch the namespace.
    #[serde(default)]
    pub(crate) watched: bool,
    /// Netlink could not watch the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) watch_failed: Option<watch::Failed>,
    pub(crate) state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    #[default]
    Live,
    /// The last reference is gone, and its teardown is under way.
    Dropped { at: Timestamp },
    /// The inode number is free.
    Freed { at: Timestamp },
}

/// The transitions of a network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Drop,
    Free,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Address {
    pub(crate) address: Subnet,
    pub(crate) ifname: String,
    pub(crate) ifindex: u32,
    pub(crate) flags: u32,
}

/// The properties by which the table finds network namespaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::engine) enum Group {
    /// It is or was bound to this file. The path is spelled as [`plain`] spells it.
    Path(String),
    /// It lives, a hook saw its making, and it is known to belong to no sandbox and no file.
    Unclaimed,
    /// Its last reference was dropped.
    Over,
    /// No listing shows it, whether it lives or not.
    Unlisted,
}

impl Grouped for Netns {
    type Group = Group;

    fn groups(&self) -> impl Iterator<Item = Group> {
        let is_unclaimed =
            self.is_live() && self.created_at.is_some() && self.sandbox.is_none() && self.mounts.is_empty();
        let paths = self.mounts.iter().map(|path| Group::Path(plain(path).into_owned()));
        let over = (!self.is_live()).then_some(Group::Over);
        let unlisted = (!self.is_listable()).then_some(Group::Unlisted);
        paths.chain(is_unclaimed.then_some(Group::Unclaimed)).chain(over).chain(unlisted)
    }
}

impl State {
    fn step(self, step: Step, at: Timestamp) -> Option<Self> {
        match (self, step) {
            (Self::Live, Step::Drop) => Some(Self::Dropped { at }),
            (Self::Live | Self::Dropped { .. }, Step::Free) => Some(Self::Freed { at }),
            (Self::Dropped { .. } | Self::Freed { .. }, Step::Drop) | (Self::Freed { .. }, Step::Free) => {
                None
            }
        }
    }
}

impl Netns {
    #[must_use]
    pub(crate) fn is_live(&self) -> bool {
        self.state == State::Live
    }

    /// Since when the teardown has been under way. None: it is not under way, or no hook would see its end.
    #[must_use]
    pub(crate) fn ending_since(&self) -> Option<Timestamp> {
        match self.state {
            State::Dropped { at } if !self.gapped && !self.end_inferred => Some(at),
            State::Live | State::Dropped { .. } | State::Freed { .. } => None,
        }
    }

    /// Whether the kernel has it: it counts against the kernel's limit until its teardown is done.
    #[must_use]
    pub(in crate::engine) fn is_in_kernel(&self) -> bool {
        self.is_live() || self.ending_since().is_some()
    }

    /// Whether a listing has the namespace as long as it exists: an earlier listing had it, a file is bound to it, or a
    /// sandbox is in it. A namespace that only a descriptor, a socket or a thread holds is in no listing.
    pub(super) fn is_listable(&self) -> bool {
        self.found_at.is_some() || !self.mounts.is_empty() || self.sandbox.is_some()
    }

    /// Whether a sandbox may still be in it: it lives, and listings have it.
    #[must_use]
    pub(in crate::engine) fn may_be_used(&self) -> bool {
        self.is_live() && self.unlisted_since.is_none()
    }

    /// When a record or a listing last showed that it exists.
    pub(super) fn seen_at(&self) -> Option<Timestamp> {
        self.created_at.max(self.found_at)
    }

    /// Whether it may have ended since it was last seen: netlink could not watch it since, which it cannot where there is
    /// nothing left to watch.
    pub(in crate::engine) fn may_be_over(&self) -> bool {
        self.watch_failed.is_some_and(|failed| failed.is_after(self.seen_at()))
    }

    /// When the namespace ended. While it lives: when a listing last had it.
    fn last_at(&self) -> Option<Timestamp> {
        match self.state {
            State::Live => self.found_at,
            State::Dropped { at } | State::Freed { at } => Some(at),
        }
    }
}

/// The kernel may tear down namespaces that are dropped within this time in one batch, in any order.
pub(in crate::engine) const SAME_BATCH: Duration = Duration::from_secs(1);

/// The latest drop of a namespace whose teardown was seen to end. The kernel works in order: every namespace that was
/// dropped before it, except in the same batch, has been torn down as well.
pub(in crate::engine) fn passed_at<'a>(rows: impl Iterator<Item = &'a Netns>) -> Option<Timestamp> {
    let of_row = |row: &Netns| match row.state {
        State::Freed { .. } if !row.end_inferred => row.dropped_at,
        State::Live | State::Dropped { .. } | State::Freed { .. } => None,
    };
    rows.filter_map(of_row).max()
}

impl World {
    pub(super) fn netns_created(&mut self, ctx: EventContext, key: NetnsKey, by: Task, end_unseen: bool) {
        let lives = || self.netns.lives(key.inode).filter(|row| same(row.key, key));
        let is_told = |row: &Netns| {
            row.created_at == Some(ctx.at)
                || row.created_at.is_some() && row.key == key && key.cookie != 0
                || row.created_at.is_some_and(|created| created > ctx.at)
        };
        if lives().any(is_told) {
            return;
        }
        // A listing can come before the record, and a late record can come after the end.
        let known =
            lives().find(|row| row.created_at.is_none() && row.last_at() >= Some(ctx.at)).map(|row| row.life);
        let life = known.unwrap_or_else(|| {
            // The inode number is in use again, so the namespace that had it before has ended, whether or not that was
            // seen.
            for life in self.netns.lives(key.inode).map(|row| row.life).collect::<Vec<_>>() {
                self.infer_end(ctx, life);
            }
            self.netns.begin(Netns { key, ..Netns::default() })
        });
        if let Some(row) = self.netns.rows.get_mut(&life) {
            row.created_at = Some(ctx.at);
            row.creator = by.clone();
            row.end_unseen = end_unseen;
        }
        self.sandbox_netns_created(life);
        let subject = Subject { netns: Some(life), ..self.cgroups.subject_of(&by) };
        let of_pod = process::makes_pods(&by.comm)
            || subject.container.is_some()
            || self.processes.get(by.parent).is_some_and(|parent| process::makes_pods(&parent.comm));
        let wait = if of_pod { Wait::Name } else { Wait::Nothing };
        self.tell(ctx, subject, wait, ChangeKind::NetnsCreated { by: process_of(&by) });
        self.watch_soon(ctx.at, life);
    }

    pub(super) fn netns_dropped(&mut self, ctx: EventContext, key: NetnsKey, by: &Task) {
        let found = self.netns.live_at(key, ctx.at);
        if ctx.origin == Origin::Netlink {
            return self.netns_unnamed(ctx, found);
        }
        let by = (by.key.pid != 0).then(|| process_of(by));
        if let Some(life) = found {
            self.drop_life(ctx, life, by);
        } else if self.netns.of(key).is_none() {
            // The namespace existed before the agent started, and no listing showed it.
            let life = self.netns.begin(Netns { key, ..Netns::default() });
            self.drop_life(ctx, life, by);
        }
    }

    /// Netlink reports that a namespace has ended, perhaps long after a hook's record of the end. Netlink reports only
    /// namespaces that it was asked to watch. If the world no longer knows the namespace, it ended before, and its
    /// number may be in use again.
    fn netns_unnamed(&mut self, ctx: EventContext, found: Option<u64>) {
        let Some(life) = found else {
            self.counts.stale = self.counts.stale.saturating_add(1);
            return;
        };
        let end_unseen = self.netns.get(life).is_some_and(|row| row.end_unseen);
        if !self.netns.get(life).is_some_and(|row| self.sees_end(row)) {
            self.drop_life(ctx, life, None);
        }
        if end_unseen {
            // No hook will report the end of the teardown.
            self.free_life(ctx, life);
        }
    }

    /// Whether a hook reports the end of the namespace, in its order. If one saw the namespace begin, one also sees its end,
    /// unless the hook reported that it would not.
    pub(super) fn sees_end(&self, row: &Netns) -> bool {
        row.created_at.is_some() && !row.end_unseen && self.coverage.is_hooked(Signal::NetnsDropped)
    }

    pub(super) fn drop_life(&mut self, ctx: EventContext, life: u64, by: Option<Process>) {
        // A namespace loses its id in the agent's own namespace before its addresses are removed.
        let by_netlink =
            [Signal::AddressV4, Signal::AddressV6].iter().any(|signal| self.coverage.is_by_netlink(*signal));
        let Some(row) = self.netns.rows.get_mut(&life) else { return };
        let Some(dropped) = row.state.step(Step::Drop, ctx.at) else { return };
        row.state = dropped;
        row.dropped_at = Some(ctx.at);
        row.end_inferred = ctx.origin != Origin::Kernel;
        let sandbox = row.sandbox.clone();
        // If no hook reports the removal of the addresses, the end of the namespace counts as their removal.
        let heard = ctx.origin == Origin::Kernel && !by_netlink;
        let unheard = if heard { Vec::new() } else { mem::take(&mut row.addresses) };
        let subject = self.netns_subject(life);
        let wait = self.wait_of(&subject);
        self.schedule_reap(ctx.at);
        self.lease_left_kernel(life, None);
        self.tell(ctx, subject.clone(), wait, ChangeKind::NetnsDestroyed { by: by.clone() });
        self.addresses_gone(ctx, &subject, unheard);
        if let Some(sandbox) = sandbox {
            self.sandbox_lost_netns(ctx, &sandbox, by);
        }
    }

    /// A namespace has ended, which nobody saw.
    fn infer_end(&mut self, ctx: EventContext, life: u64) {
        self.drop_life(ctx, life, None);
        if self.free_life(ctx, life).is_some() {
            self.netns.infer_end(life);
        }
    }

    /// A namespace object was freed. Only that of a known network namespace counts.
    pub(super) fn netns_freed(&mut self, ctx: EventContext, key: NetnsKey) {
        let dropped = |row: &&Netns| matches!(row.state, State::Dropped { at } if at <= ctx.at);
        let begun = |row: &&Netns| row.is_live() && row.created_at.is_none_or(|created| created < ctx.at);
        let lives = || self.netns.lives(key.inode).filter(|row| same(row.key, key));
        let Some(row) = lives().find(dropped).or_else(|| lives().find(begun)) else { return };
        let life = row.life;
        let teardown = match row.state {
            State::Dropped { at } => Some(ctx.at.since(at)),
            State::Live | State::Freed { .. } => None,
        };
        // Two CPUs that drop the last two references at once may both fail to see that theirs was the last.
        self.drop_life(ctx, life, None);
        if let Some(subject) = self.free_life(ctx, life) {
            let wait = self.wait_of(&subject);
            self.tell(ctx, subject, wait, ChangeKind::NetnsFreed { teardown });
        }
    }

    /// The teardown has ended: the inode number is free, and the namespace has no addresses.
    fn free_life(&mut self, ctx: EventContext, life: u64) -> Option<Subject> {
        let row = self.netns.rows.get_mut(&life)?;
        row.state = row.state.step(Step::Free, ctx.at)?;
        let left = mem::take(&mut row.addresses);
        let subject = self.netns_subject(life);
        self.schedule_reap(ctx.at);
        self.addresses_gone(ctx, &subject, left);
        Some(subject)
    }

    pub(super) fn netns_found(
        &mut self,
        ctx: EventContext,
        key: NetnsKey,
        mounts: Vec<String>,
        vacant: bool,
    ) {
        // Records were lost, and the number is that of a namespace at other files: the one that had it has ended.
        let is_other = |row: &&Netns| {
            let is_kept = |mount: &String| mounts.iter().any(|found| is_same(found, mount));
            let is_moved = !mounts.is_empty() && !row.mounts.is_empty() && !row.mounts.iter().any(is_kept);
            row.is_live() && row.gapped && is_moved
        };
        let other = self.netns.of(key).filter(is_other).map(|row| row.life);
        let life = match other {
            Some(ended) => {
                self.infer_end(ctx, ended);
                Some(self.netns.begin(Netns { key, ..Netns::default() }))
            }
            None => self.netns_seen(ctx, key),
        };
        let Some(life) = life else { return };
        let Some(row) = self.netns.rows.get_mut(&life) else { return };
        row.found_at = Some(ctx.at);
        row.unlisted_since = None;
        row.vacant_since = vacant.then(|| row.vacant_since.unwrap_or(ctx.at));
        row.mounts = mounts;
        self.watch_soon(ctx.at, life);
        self.claim_by_mounts(ctx, life);
    }

    /// The living namespace that a listing or an address shows. A new life begins if none was known. None: the
    /// namespace is known to be over.
    pub(super) fn netns_seen(&mut self, ctx: EventContext, key: NetnsKey) -> Option<u64> {
        let live = self.netns.lives(key.inode).rev().find(|row| same(row.key, key) && row.is_live());
        if let Some(life) = live.map(|row| row.life) {
            if let Some(row) = self.netns.rows.get_mut(&life).filter(|row| row.key.cookie == 0) {
                row.key = key;
            }
            return Some(life);
        }
        let over = self.netns.lives(key.inode).any(|row| match row.state {
            State::Live => false,
            // The number is not free until the teardown has ended.
            State::Dropped { .. } => same(row.key, key),
            State::Freed { at } => same(row.key, key) && (key.cookie != 0 || ctx.at <= at),
        });
        if over {
            return None;
        }
        let life = self.netns.begin(Netns { key, found_at: Some(ctx.at), ..Netns::default() });
        self.watch_soon(ctx.at, life);
        Some(life)
    }

    /// A complete listing that began at `begun` does not have these namespaces of sandboxes that are over, and a hook would have
    /// reported their ends: something else keeps them. No sandbox and no pod lives by that.
    pub(super) fn netns_outlive(&mut self, ctx: EventContext, begun: Timestamp) {
        let is_over = |id: &ContainerId| self.sandboxes.recall(id).is_none_or(Sandbox::is_stopped);
        let outlives = |row: &&Netns| {
            row.may_be_used()
                && row.key.inode != self.node.host_netns
                && row.seen_at() < Some(begun)
                && row.sandbox.as_ref().is_some_and(is_over)
                && !row.gapped
                && self.sees_end(row)
        };
        let all: Vec<u64> = self.netns.values().filter(outlives).map(|row| row.life).collect();
        for life in all {
            let Some(row) = self.netns.rows.get_mut(&life) else { continue };
            row.unlisted_since = Some(ctx.at);
            let pod = row.sandbox.as_ref().and_then(|id| self.sandboxes.get(id)?.pod);
            self.schedule_reap(ctx.at);
            if let Some(pod) = pod {
                self.pod_may_be_gone(ctx, pod);
            }
        }
    }

    /// Records of the bulk ring were lost. Ends of namespaces that containers made may be among them.
    pub(super) fn inner_netns_gapped(&mut self) {
        let cgroups = &self.cgroups;
        let is_inner =
            |row: &Netns| cgroups.get(&row.creator.cgroup).is_some_and(|cgroup| cgroup.container.is_some());
        self.netns.rows.update(|_, row| is_inner(row) && !mem::replace(&mut row.gapped, true));
    }

    pub(super) fn netns_subject(&self, life: u64) -> Subject {
        let row = self.netns.get(life);
        let creator = row.map(|row| self.cgroups.subject_of(&row.creator)).unwrap_or_default();
        Subject { netns: Some(life), sandbox: row.and_then(|row| row.sandbox.clone()), ..creator }
    }
}
