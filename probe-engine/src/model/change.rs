//! What the engine says: changes, the findings among them, and questions to the sources.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};
use strum::{EnumDiscriminants, IntoStaticStr, VariantNames};

use crate::model::{
    fact::{CniCommand, Listener, Loss, Origin, PodName, ProgramFound, Task},
    finding::{Key, Kind, Severity, Stage},
    id::{CgroupKey, ContainerId, NetnsKey, PodUid, Subnet, TaskKey},
    phase::Start,
    scalar::is_default,
    time::{Nanoseconds, Timestamp},
};

pub use crate::model::{
    process::{End, Process},
    reference::{CgroupRef, ContainerRef, PodRef},
};

/// What the engine says. Its time is that of the event or of the deadline that caused it, never "now".
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "nearly every output is a change")]
pub enum Output {
    Change(Change),
    Question(Question),
}

/// One line of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Counts up from 1 within a boot.
    pub seq: u64,
    pub at: Timestamp,
    pub origin: Origin,
    /// It became known only after later events had been told.
    pub late: bool,
    pub context: Context,
    pub what: ChangeKind,
}

/// Where it happened, as far as is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    pub pod: Option<PodRef>,
    pub sandbox: Option<ContainerId>,
    pub container: Option<ContainerRef>,
    pub netns: Option<NetnsKey>,
    pub cgroup: Option<CgroupRef>,
}

/// What happened. Each has the name by which users see it in the stream.
#[serde_as]
#[derive(
    Clone, Debug, PartialEq, Eq, Serialize, Deserialize, EnumDiscriminants, IntoStaticStr, VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(const_into_str)]
#[strum_discriminants(name(ChangeName), derive(PartialOrd, Ord), doc = "A change without its members.")]
pub enum ChangeKind {
    #[strum(serialize = "process.exec")]
    ProcessExec { process: Process, filename: String, argv: Vec<String>, argv_cut: bool },
    #[strum(serialize = "process.exit")]
    ProcessExit { process: Process, end: End },
    #[strum(serialize = "cni.started")]
    CniStarted { call: Arc<CniCall> },
    #[strum(serialize = "cni.finished")]
    CniFinished {
        call: Arc<CniCall>,
        end: Option<End>,
        #[serde_as(as = "Nanoseconds")]
        duration: Duration,
    },
    #[strum(serialize = "netns.created")]
    NetnsCreated { by: Process },
    #[strum(serialize = "netns.destroyed")]
    NetnsDestroyed { by: Option<Process> },
    /// `teardown` = since the last reference was dropped.
    #[strum(serialize = "netns.freed")]
    NetnsFreed {
        #[serde_as(as = "Option<Nanoseconds>")]
        teardown: Option<Duration>,
    },
    #[strum(serialize = "cgroup.created")]
    CgroupCreated { by: Process },
    #[strum(serialize = "cgroup.emptied")]
    CgroupEmptied,
    #[strum(serialize = "cgroup.removed")]
    CgroupRemoved { by: Process },
    #[strum(serialize = "address.added")]
    AddressAdded { address: Subnet, ifname: String },
    #[strum(serialize = "address.removed")]
    AddressRemoved { address: Subnet, ifname: String },
    #[strum(serialize = "sandbox.created")]
    SandboxCreated,
    #[strum(serialize = "sandbox.ready")]
    SandboxReady {
        /// None: its making was not seen.
        #[serde_as(as = "Option<Nanoseconds>")]
        since_created: Option<Duration>,
    },
    #[strum(serialize = "sandbox.stopped")]
    SandboxStopped { why: StopReason },
    #[strum(serialize = "container.started")]
    ContainerStarted { process: Process },
    /// A socket of it listens, the first since its program began.
    #[strum(serialize = "container.listening")]
    ContainerListening {
        process: Process,
        socket: Listener,
        #[serde_as(as = "Nanoseconds")]
        since_started: Duration,
    },
    #[strum(serialize = "container.exited")]
    ContainerExited {
        process: Process,
        end: End,
        #[serde_as(as = "Option<Nanoseconds>")]
        ran: Option<Duration>,
    },
    #[strum(serialize = "pod.first_seen")]
    PodFirstSeen,
    /// Its containers run, and it has been quiet since.
    #[strum(serialize = "pod.started")]
    PodStarted(Box<Start>),
    #[strum(serialize = "pod.gone")]
    PodGone {
        #[serde_as(as = "Nanoseconds")]
        lived: Duration,
    },
    /// Something was lost; nothing may be concluded from absence before the next complete listing.
    #[strum(serialize = "gap")]
    Gap {
        what: Loss,
        /// Zero where it is not known.
        #[serde_as(as = "DisplayFromStr")]
        count: u64,
        /// How long nothing was seen, where that is known.
        #[serde_as(as = "Option<Nanoseconds>")]
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lasted: Option<Duration>,
    },
    /// Something seems wrong.
    #[strum(serialize = "finding.opened")]
    FindingOpened(Box<Finding>),
    /// It has stayed so for its time.
    #[strum(serialize = "finding.confirmed")]
    FindingConfirmed(Box<Finding>),
    /// It is so no longer.
    #[strum(serialize = "finding.closed")]
    FindingClosed(Box<Finding>),
}

impl ChangeKind {
    /// The finding that opened, was confirmed or closed.
    pub(crate) fn finding(&self) -> Option<&Finding> {
        if let Self::FindingOpened(it) | Self::FindingConfirmed(it) | Self::FindingClosed(it) = self {
            return Some(it);
        }
        None
    }
}

/// Something that is wrong on the node, as far as the evidence goes. It is here because its evidence is changes, and
/// changes tell of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub key: Key,
    pub kind: Kind,
    pub severity: Severity,
    pub stage: Stage,
    /// When what is wrong began.
    pub since: Timestamp,
    pub opened_at: Timestamp,
    pub confirmed_at: Option<Timestamp>,
    pub closed_at: Option<Timestamp>,
    pub pod: Option<PodName>,
    pub sandboxes: Vec<ContainerId>,
    /// Records were lost while what it is about was there: the cause may be another one.
    pub gapped: bool,
    /// What was told of its sandboxes, in order of time. Of a sandbox with very many events only the first and the last ones.
    pub evidence: Vec<Evidence>,
    /// The programs that had a part in it.
    pub programs: Vec<ProgramFound>,
    /// The sockets on which the node's runtimes answered when it was opened: who can be asked before anything is done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runtimes: Vec<String>,
}

impl Finding {
    /// Whether it shows that the node is not well: pods fail, or soon will, and it was confirmed.
    #[must_use]
    pub fn is_acute(&self) -> bool {
        self.stage == Stage::Confirmed && self.severity == Severity::Critical
    }
}

/// One piece of evidence, and the sandbox that it is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    pub sandbox: ContainerId,
    pub event: EvidenceEvent,
}

/// What was told of a sandbox once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceEvent {
    pub at: Timestamp,
    pub origin: Origin,
    pub container: Option<ContainerRef>,
    pub netns: Option<NetnsKey>,
    pub cgroup: Option<CgroupRef>,
    pub what: ChangeKind,
    /// So many events of the sandbox came after this one and are not kept.
    #[serde(default, skip_serializing_if = "is_default")]
    pub left_out: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniCall {
    pub command: String,
    /// The plugin's name: its file's.
    pub plugin: String,
    /// `None`: `CNI_NETNS` was not set; empty: set to nothing.
    pub netns: Option<String>,
    pub ifname: Option<String>,
    pub process: Process,
    /// Called by another plugin of the same operation (`bridge` calls `host-local`).
    pub called_by: Option<String>,
    /// Made by a CNI daemon's pod, not by the node's runtime.
    pub delegated: bool,
}

closed_set! {
    pub enum StopReason {
        /// Its pause process ended.
        PauseExited,
        /// Its cgroup has no process left.
        Emptied,
        /// The runtime began CNI DEL.
        NetworkRemoved,
        NetnsGone,
        /// A listing after a gap no longer has it.
        NotListed,
        /// The runtime ended while it made it, and the one that runs now does not know it.
        RuntimeEnded,
    }
}

/// What the engine wants to know; the answer comes as a fact, or never.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// What is this container? Answered by `ContainerFound` or `ContainerUnknown`.
    Container { id: ContainerId },
    /// What is this pod's name? Answered by `PodFound` or `PodUnknown`, if at all.
    Pod { uid: PodUid },
    /// Which containers is this pod to have? Answered by `ContainersExpected`, where a kubelet keeps that.
    Expected { uid: PodUid },
    /// Which network namespace is bound to this file? Answered by `NetnsFound`, if one is; asked where a CNI call named the
    /// file and several namespaces can be behind it.
    Netns { path: String },
    /// In which network namespace is the process with this pid? Answered by `ProcessNetns`, if it runs; asked where a DEL
    /// named the process and the process is not known.
    ProcessNetns { pid: u32 },
    /// Give this namespace an id in ours, so that netlink tells of its end; asked only where no hook does.
    Watch { netns: NetnsKey, by: Task },
    /// List the node again: something was lost.
    Relist,
    /// Read the stores, libcni's cache and the runtimes' records again: an operation of CNI is over, or a verdict is due.
    Records,
    /// Which version is this executable? Answered by `ProgramFound`.
    Program { path: String },
    /// What did the plugin say when this sandbox's ADD, or DEL, failed? Answered by `MessageFound`.
    Message { container: ContainerId, command: CniCommand, since: Timestamp },
    /// How hard has this pod's cgroup had it? Answered by `PressureRead`, if it is there; asked during a start only.
    Pressure { cgroup: CgroupKey, path: String },
    /// What did runtime and kubelet do for this container from then until its first sign? Answered by `ImageWork`, if a log
    /// tells.
    ImageWork { container: ContainerId, from: Timestamp, until: Timestamp },
    /// Which requests did the kubelet hold back while it prepared this sandbox, from then until the sandbox's first sign?
    /// Answered by `HeldRequests`, if its log tells.
    HeldRequests { sandbox: ContainerId, from: Timestamp, until: Timestamp },
    /// What does this process do? Answered by `ProcessState`, if it is there.
    Process { process: TaskKey },
    /// Which states do the runtimes list now? Answered by `RuntimeStatus`, where a runtime is followed.
    Statuses,
}
