//! The state of this node as the engine knows it, in three floors. Each uses only the floors below it:
//!
//! * `table`: rows, their states and bounds, without [`World`].
//! * `lookup`: functions of `&World` that join several tables.
//! * `react`: what each fact changes. `apply` has a line for each fact, so it is the place to begin reading.
//!
//! `outgoing` decides when a change's event can be sent, `changed` which rows the detectors look at, and
//! `dump` writes and restores a checkpoint.

pub(super) mod apply;
pub(crate) mod args;
pub(crate) mod argv;
pub(super) mod changed;
mod daemon;
mod dump;
pub(super) mod lookup;
pub(super) mod netns_path;
pub(super) mod outgoing;
pub mod path;
pub(crate) mod plugin_pods;
pub(super) mod react;
pub mod table;

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
    engine::queued_change::{QueuedChange, Subject, Wait},
    model::{
        change::{self, ChangeKind, Finding, Question},
        fact::{Attached, CniCommand, Observation, Origin, RingsRead, Task},
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
    Engine(Box<EngineState>),
    Timer {
        name: timer::Name,
        due: Timestamp,
    },
    Process(table::process::Process),
    Signal(table::process::Signal),
    Netns(Box<table::netns::Netns>),
    Cgroup(table::cgroup::Cgroup),
    Crowd(table::cgroup::Crowd),
    Container(Box<table::container::Container>),
    Sandbox(Box<table::sandbox::Sandbox>),
    Pod(Box<table::pod::Pod>),
    Call(table::call::Call),
    Hint(table::hint::Hint),
    Name(table::hint::Name),
    Listing(table::list::Begun),
    Gap(table::list::Gap),
    Partial(table::list::Begun),
    Attachment(Box<table::attachment::Attachment>),
    /// A record as it was read at this time.
    Record {
        at: Timestamp,
        record: table::record::Record,
    },
    Attached(Attached),
    Losses(table::loss::Losses),
    /// A file at which reading hangs.
    Hanging {
        path: String,
        since: Timestamp,
    },
    Release(table::release::Release),
    Account(table::balance::Account),
    Runtime(table::belief::Runtime),
    Belief(Box<table::belief::Belief>),
    Recovery(Box<Recovery>),
    /// A runtime or a kubelet that does not come up.
    Failing(table::failing::Failing),
    /// The starts that were reported as complete, in that order.
    Starts(Vec<Start>),
    /// A kernel record that the watermark has not passed yet.
    Pending(Box<Observation>),
    /// A change that waits in the outbox.
    Held(Box<QueuedChange>),
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
    pub watches: table::netns::watch::Budget,
    /// Up to when it was reported that nobody heard netlink.
    #[serde(default)]
    pub unheard_until: Timestamp,
    /// When each plugin was last asked for its message about a command. The attachment that asked may be
    /// gone.
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
    pub(super) processes: table::process::rows::Table,
    pub(super) netns: table::netns::rows::Table,
    pub(super) cgroups: table::cgroup::Table,
    pub(super) containers: table::container::Table,
    pub(super) sandboxes: table::sandbox::Table,
    pub(super) pods: table::pod::Table,
    pub(super) calls: BTreeMap<TaskKey, table::call::Call>,
    pub(super) hints: BTreeMap<ContainerId, table::hint::Hint>,
    pub(super) lists: table::list::Lists,
    pub(super) attachments: table::attachment::Table,
    pub(super) records: Flagged<table::record::Records>,
    pub(super) coverage: table::loss::Coverage,
    pub(super) beliefs: table::belief::Beliefs,
    /// By plugin.
    pub(super) releases: BTreeMap<String, table::release::Release>,
    pub(super) accounts: table::balance::Accounts,
    pub(super) boot: table::recovery::Boot,
    pub(super) failing: table::failing::Table,
    pub(super) starts: table::start::Table,
    pub(super) node: Node,
    /// The time of the first change since the engine last asked.
    pub(super) changed_at: Option<Timestamp>,
    pub(super) timers: Timers,
    pub(super) counts: Counts,
    pub(super) outbox: Outbox,
}

impl World {
    /// Returns the number of rows that are marked after a loss.
    fn doubtful_rows(&self) -> usize {
        self.sandboxes.len() + self.netns.len() + self.attachments.rows.len()
    }
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
    /// Returns the context of an earlier time, with this source. An event with that time is late: later
    /// events were sent already.
    fn back_at(self, at: Timestamp) -> Self {
        Self { at, late: self.late || at < self.at, ..self }
    }
}

impl World {
    pub(super) fn new(rules: Rules, first_seq: u64) -> Self {
        Self {
            boot: table::recovery::Boot { rules, ..Default::default() },
            outbox: Outbox::new(first_seq),
            ..Self::default()
        }
    }

    /// Queues a change. Its event is sent when the pod is named, or after a moment.
    fn report(&mut self, ctx: EventContext, subject: Subject, wait: Wait, what: ChangeKind) {
        self.outbox.push(QueuedChange {
            at: ctx.at,
            origin: ctx.origin,
            late: ctx.late,
            subject,
            wait,
            what,
        });
    }

    /// Queues a question for the sources.
    fn ask(&mut self, question: Question) {
        self.outbox.ask(question);
    }

    /// How long something took, without the time in which the node was suspended. If it was suspended in
    /// between, only the time after that counts.
    pub(in crate::engine) fn awake_for(&self, from: Timestamp, to: Timestamp) -> Duration {
        to.since(if self.node.woke_at <= to { from.max(self.node.woke_at) } else { from })
    }

    /// A thing ended: its row can be forgotten after the grace time.
    fn schedule_reap(&mut self, at: Timestamp) {
        self.timers.arm_earlier(timer::Name::Reap, at + table::GRACE);
    }
}

/// The process that caused a change, as events name it.
fn process_of(task: &Task) -> change::Process {
    change::Process { key: task.key, parent: task.parent, comm: task.comm.clone() }
}
