//! The state of this node as the engine knows it: one table for each kind of thing. The module of a kind holds its row,
//! its states, and the effects of facts on it.
//!
//! **Invariant:** the rows of sandboxes, network namespaces, cgroups, containers, processes, pods and attachments are
//! changed only in their own modules. No table gives out a mutable row elsewhere.
//!
//! **Invariant:** memory is bounded by what lives. The row of an ended thing stays for a while, so that late records
//! still find its name, and is then forgotten.

pub(super) mod abandoned;
pub(crate) mod args;
pub(crate) mod argv;
pub(crate) mod attachment;
pub(in crate::engine) mod balance;
pub(in crate::engine) mod belief;
pub mod call;
pub(crate) mod cgroup;
pub(super) mod changed;
mod cleaner;
pub mod container;
mod context;
mod daemon;
mod dump;
mod held_requests;
pub(crate) mod hint;
pub(in crate::engine) mod image_work;
pub(super) mod ipam_store;
pub(crate) mod list;
pub(crate) mod loss;
pub(crate) mod netns;
pub(super) mod netns_path;
mod outgoing;
pub mod path;
pub(crate) mod phase;
pub(crate) mod pod;
pub(crate) mod presence;
pub(crate) mod process;
pub(super) mod reap;
pub(super) mod rebuild;
pub(crate) mod record;
pub(in crate::engine) mod recovery;
pub(crate) mod release;
pub(in crate::engine) mod restart;
pub mod sandbox;
pub(crate) mod start;
mod succession;
mod wrong_del;

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

use super::{
    count::Counts,
    outbox::Outbox,
    timer::{self, Timers},
    tracked::Flagged,
};
use crate::{
    engine::held::{Held, Subject, Wait},
    model::{
        change::{self, ChangeKind, Finding, Question},
        fact::{Attached, CniCommand, Fact, Loss, Observation, Origin, RingsRead, Task},
        id::{ContainerId, TaskKey},
        phase::Start,
        recovery::{Recovery, Rules},
        time::{Timestamp, on_the_clock},
    },
};

/// One part of the engine's state. Entries are written before a restart and restored after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointEntry {
    Engine(EngineState),
    Timer {
        name: timer::Name,
        due: Timestamp,
    },
    Process(process::Process),
    Signal(process::Signal),
    Netns(netns::Netns),
    Cgroup(cgroup::Cgroup),
    Crowd(cgroup::Crowd),
    Container(container::Container),
    Sandbox(Box<sandbox::Sandbox>),
    Pod(pod::Pod),
    Call(call::Call),
    Hint(hint::Hint),
    Name(hint::Name),
    Listing(list::Begun),
    Gap(list::Gap),
    Partial(list::Begun),
    Attachment(attachment::Attachment),
    /// A record as it was read at this time.
    Record {
        at: Timestamp,
        record: record::Record,
    },
    Attached(Attached),
    Losses(loss::Losses),
    /// A file at which reading hangs.
    Hanging {
        path: String,
        since: Timestamp,
    },
    Release(release::Release),
    Account(balance::Account),
    Runtime(belief::Runtime),
    Belief(belief::Belief),
    Recovery(Box<Recovery>),
    /// The starts that were reported as complete, in that order.
    Starts(Vec<Start>),
    /// A kernel record that the watermark has not passed yet.
    Pending(Box<Observation>),
    /// A change that waits in the outbox.
    Held(Box<Held>),
    Finding(Box<Finding>),
    /// A question that no source has taken yet.
    Asked(Question),
}

/// The engine's time, and the next value of each of its counters.
#[serde_as]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineState {
    #[serde(deserialize_with = "on_the_clock")]
    pub now: Timestamp,
    #[serde(deserialize_with = "on_the_clock")]
    pub watermark: Timestamp,
    #[serde_as(as = "DisplayFromStr")]
    pub next_seq: u64,
    /// The latest time of any event.
    pub told_at: Timestamp,
    /// When the last agent arrived.
    #[serde(default)]
    pub waits_since: Timestamp,
    /// How many of the changes that wait, the first ones, let others go before them.
    #[serde(default)]
    pub aside: usize,
    #[serde_as(as = "DisplayFromStr")]
    pub next_life: u64,
    #[serde_as(as = "DisplayFromStr")]
    pub next_pod: u64,
    /// The inode of the node's own network namespace. Zero: not known yet.
    pub host_netns: u32,
    /// When the node was last asked to be listed again.
    pub relisted_at: Option<Timestamp>,
    /// When the node last resumed after it had been suspended.
    pub woke_at: Timestamp,
    #[serde(default)]
    pub began_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rings_read: Option<RingsRead>,
    pub looks: LookTimes,
    /// How many of the watches that netlink may be asked for in the present second were asked for.
    #[serde(default)]
    pub watches: netns::watch::Budget,
    /// When each plugin was last asked for its message about a command. The attachment that asked may be gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages_asked: Vec<MessageAsked>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageAsked {
    pub plugin: String,
    pub command: CniCommand,
    pub at: Timestamp,
}

/// When the detectors judge the world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookTimes {
    /// The time of the last look. No later look has an earlier time.
    #[serde(deserialize_with = "on_the_clock")]
    pub last: Timestamp,
    /// The time of the next look. None: nothing changed since the last one, and no finding waits for a time.
    pub due: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(crate) struct World {
    pub(super) processes: process::table::Table,
    pub(super) netns: netns::table::Table,
    pub(super) cgroups: cgroup::Table,
    pub(super) containers: container::Table,
    pub(super) sandboxes: sandbox::Table,
    pub(super) pods: pod::Table,
    pub(super) calls: BTreeMap<TaskKey, call::Call>,
    pub(super) hints: BTreeMap<ContainerId, hint::Hint>,
    pub(super) lists: list::Lists,
    pub(super) attachments: attachment::Table,
    pub(super) records: Flagged<record::Records>,
    pub(super) coverage: loss::Coverage,
    pub(super) beliefs: belief::Beliefs,
    /// By plugin.
    pub(super) releases: BTreeMap<String, release::Release>,
    pub(super) accounts: balance::Accounts,
    pub(super) boot: recovery::Boot,
    pub(super) starts: start::Table,
    pub(super) node: Node,
    /// The time of the first change since the engine last asked.
    pub(super) changed_at: Option<Timestamp>,
    pub(super) timers: Timers,
    pub(super) counts: Counts,
    pub(super) outbox: Outbox,
}

/// Facts about the node itself.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// The inode of its own network namespace. Zero: not known yet.
    pub(super) host_netns: u32,
    /// When it last resumed after it had been suspended. Zero: it was not suspended.
    pub(super) woke_at: Timestamp,
    /// When this run of the agent began to observe. An earlier run may have observed the same boot.
    pub(super) began_at: Option<Timestamp>,
}

/// The time and the source of a fact.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventContext {
    pub(super) at: Timestamp,
    pub(super) origin: Origin,
    pub(super) late: bool,
}

impl EventContext {
    /// The same source at an earlier time. An event with that time is late: later events were sent already.
    fn back_at(self, at: Timestamp) -> Self {
        Self { at, late: self.late || at < self.at, ..self }
    }
}

impl World {
    pub(super) fn new(rules: Rules, first_seq: u64) -> Self {
        Self {
            boot: recovery::Boot { rules, ..Default::default() },
            outbox: Outbox::new(first_seq),
            ..Self::default()
        }
    }

    /// Applies one fact. Facts come in the order in which they take effect.
    pub(super) fn apply(&mut self, seen: Observation, late: bool) {
        let ctx = EventContext { at: seen.at, origin: seen.origin, late };
        self.changed_at.get_or_insert(ctx.at);
        match seen.fact {
            Fact::Executed(it) => self.executed(ctx, it),
            Fact::CniCalled(it) => self.cni_called(ctx, it),
            Fact::Exited(it) => self.exited(ctx, &it),
            Fact::Signaled(it) => self.signaled(ctx, it, false),
            Fact::OomKilled(it) => self.signaled(ctx, it, true),
            Fact::NetnsCreated { netns, by, end_unseen } => self.netns_created(ctx, netns, by, end_unseen),
            Fact::NetnsDropped { netns, by } => self.netns_dropped(ctx, netns, &by),
            Fact::NetnsFreed { netns } => self.netns_freed(ctx, netns),
            Fact::AddressAdded(it) => self.address_added(ctx, it),
            Fact::AddressRemoved(it) => self.address_removed(ctx, &it),
            Fact::CgroupCreated { cgroup, by } => self.cgroup_created(ctx, cgroup, &by),
            Fact::CgroupRemoved { cgroup, by } => self.cgroup_removed(ctx, cgroup, &by),
            Fact::CgroupReleased { cgroup } => self.cgroup_released(ctx, cgroup),
            Fact::CgroupEntered { cgroup, member, by: _ } => self.cgroup_entered(ctx, cgroup, member),
            Fact::CgroupEmptied { cgroup } => self.cgroup_emptied(ctx, cgroup),
            Fact::Listened(it) => self.listened(ctx, &it),
            Fact::ListBegun(list) => self.lists.begin(ctx, list),
            Fact::ListEnded { list, complete } => self.list_ended(ctx, list, complete),
            Fact::ProcessFound(it) => self.process_found(ctx, it),
            Fact::NetnsFound { netns, mounts, vacant } => self.netns_found(ctx, netns, mounts, vacant),
            Fact::ProcessNetns { process, netns } => self.process_netns_found(ctx, process, netns),
            Fact::AddressFound(it) => self.address_found(ctx, it),
            Fact::CgroupFound { cgroup, populated } => self.cgroup_found(ctx, cgroup, populated),
            Fact::ContainerFound(it) => self.container_found(ctx, it),
            Fact::ContainerUnknown(id) => self.container_unknown(ctx, &id),
            Fact::PodFound { uid, namespace, name, source } => {
                self.pod_found(ctx, uid, namespace, name, source)
            }
            Fact::PodUnknown(uid) => self.beliefs.pod_gone(ctx.at, &uid),
            Fact::ContainersExpected { uid, names } => self.containers_expected(&uid, names),
            Fact::CacheFound(it) => self.cache_found(ctx, it),
            Fact::CacheUnread { path } => self.cache_unread(ctx, path),
            Fact::CacheUnchanged => self.cache_unchanged(ctx),
            Fact::CacheGone { container, ifname } => self.cache_gone(ctx, container, ifname),
            Fact::StoreRead(it) => self.store_read(ctx, it),
            Fact::StoreChanged(it) => self.store_changed(ctx, it),
            Fact::RuntimeRead(it) => self.runtime_read(ctx, it),
            Fact::RuntimeChanged(it) => self.runtime_changed(ctx, it),
            Fact::NetworksRead(it) => self.networks_read(ctx, it),
            Fact::KubeletExpected(expected) => self.records.kubelet_expected = expected,
            Fact::ProgramFound(it) => self.program_found(ctx, it),
            Fact::MessageFound(it) => self.attachments.message_found(it),
            Fact::BootRead(it) => self.boot_read(ctx, *it),
            Fact::PressureRead(it) => self.pressure_read(ctx, it),
            Fact::ImageWork(it) => self.image_work(&it),
            Fact::HeldRequests(it) => self.held_requests(it),
            Fact::ProcessState(it) => self.beliefs.process_state(&it),
            Fact::RuntimeLink(it) => self.runtime_linked(ctx, it),
            Fact::RuntimeStatus(it) => self.runtime_stated(ctx, it),
            Fact::RuntimeEvent(it) => self.beliefs.told(ctx, &it),
            Fact::Attached(it) => self.attach(it),
            Fact::Lost { what, count } => self.lost(ctx, what, count),
            Fact::NetnsUnwatched { netns } => self.netns_unwatched(ctx.at, netns),
            Fact::AgentAway { since } => self.unknown_since(ctx, Loss::NoAgent, since),
            Fact::AgentArrived => self.outbox.waits_since = ctx.at,
            Fact::AgentBegan { unheard_since } => self.begin_agent(ctx, unheard_since),
            Fact::StateLost { since } => self.unknown_since(ctx, Loss::State, since),
            Fact::FileHangs { path, since, hangs } => {
                if hangs {
                    self.coverage.hanging.insert(path, since);
                } else {
                    self.coverage.hanging.remove(&path);
                }
            }
            Fact::Resumed { .. } => self.node.woke_at = self.node.woke_at.max(ctx.at),
            Fact::Clock { boot_wall_ns } => self.boot.clock_set(boot_wall_ns),
            // The engine handles these itself.
            Fact::Watermark | Fact::RingsRead(_) => {}
        }
    }

    /// Runs the timers that are due by `now`.
    pub(super) fn tick(&mut self, now: Timestamp) {
        while let Some(name) = self.timers.pop(now) {
            match name {
                timer::Name::Reap => self.reap(now),
                timer::Name::Relist => self.relist(now),
                timer::Name::Records => self.ask_records(now),
                timer::Name::Recovery => self.assess(now),
                timer::Name::Restarts => self.restarts_due(now),
                timer::Name::Starts => self.starts_due(now),
                timer::Name::Message => self.ask_last_messages(now),
                timer::Name::Watch => self.watch_waiting(now),
                timer::Name::Statuses => self.ask_statuses(now),
                timer::Name::Pulls => self.ask_pulls(now),
            }
        }
    }

    fn tell(&mut self, ctx: EventContext, subject: Subject, wait: Wait, what: ChangeKind) {
        self.outbox.push(Held { at: ctx.at, origin: ctx.origin, late: ctx.late, subject, wait, what });
    }

    fn ask(&mut self, question: Question) {
        self.outbox.ask(question);
    }

    /// How long something took, without the time in which the node was suspended. If it was suspended in between, only
    /// the time after that counts.
    pub(in crate::engine) fn awake_for(&self, from: Timestamp, to: Timestamp) -> Duration {
        to.since(if self.node.woke_at <= to { from.max(self.node.woke_at) } else { from })
    }

    /// A thing ended: its row can be forgotten after the grace time.
    fn schedule_reap(&mut self, at: Timestamp) {
        self.timers.arm_earlier(timer::Name::Reap, at + reap::GRACE);
    }
}

/// The process that caused a change, as events name it.
fn process_of(task: &Task) -> change::Process {
    change::Process { key: task.key, parent: task.parent, comm: task.comm.clone() }
}
