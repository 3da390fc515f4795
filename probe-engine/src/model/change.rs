//! The engine's outputs: changes (findings among them) and questions to the sources.

use std::{net::IpAddr, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};
use strum::{EnumDiscriminants, IntoStaticStr, VariantNames};

use crate::model::{
    fact::{CniCommand, Holder, Listener, Loss, NodeFolders, Origin, PodName, ProgramFound, Task},
    finding::{Key, Kind, Severity, Stage},
    id::{CgroupKey, ContainerId, NetnsKey, PodUid, Subnet, TaskKey},
    phase::Start,
    scalar::is_default,
    time::{Nanoseconds, Timestamp},
    trace::TraceContext,
};

pub use crate::model::{
    process::{End, Process},
    reference::{CgroupRef, ContainerRef, PodRef},
};

/// An output of the engine. Its time is that of the event or of the deadline that caused it, never "now".
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
    /// It became known only after later events had been reported.
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

/// What happened. Each variant has the name under which users see it in the stream.
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
    /// `teardown`: the time since the last reference was dropped.
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
        /// None: its creation was not seen.
        #[serde_as(as = "Option<Nanoseconds>")]
        since_created: Option<Duration>,
    },
    #[strum(serialize = "sandbox.stopped")]
    SandboxStopped { why: StopReason },
    #[strum(serialize = "container.started")]
    ContainerStarted { process: Process },
    /// The first socket listens since the container's program began.
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
    /// Its containers run, and nothing has begun since.
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
        /// Zero if it is not known.
        #[serde_as(as = "DisplayFromStr")]
        count: u64,
        /// How long nothing was seen, if that is known.
        #[serde_as(as = "Option<Nanoseconds>")]
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lasted: Option<Duration>,
    },
    /// Something seems wrong.
    #[strum(serialize = "finding.opened")]
    FindingOpened(Box<Finding>),
    /// It has lasted for the time that confirms it.
    #[strum(serialize = "finding.confirmed")]
    FindingConfirmed(Box<Finding>),
    /// It is over.
    #[strum(serialize = "finding.closed")]
    FindingClosed(Box<Finding>),
}

impl ChangeKind {
    /// Returns the finding that opened, was confirmed or closed.
    pub(crate) fn finding(&self) -> Option<&Finding> {
        if let Self::FindingOpened(it) | Self::FindingConfirmed(it) | Self::FindingClosed(it) = self {
            return Some(it);
        }
        None
    }
}

/// Something that is wrong on the node, as far as the evidence goes. It is in this module because its
/// evidence is changes, and changes report it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub key: Key,
    pub kind: Kind,
    pub severity: Severity,
    pub stage: Stage,
    /// When the problem began.
    pub since: Timestamp,
    pub opened_at: Timestamp,
    pub confirmed_at: Option<Timestamp>,
    pub closed_at: Option<Timestamp>,
    pub pod: Option<PodName>,
    pub sandboxes: Vec<ContainerId>,
    /// Records were lost while its subject existed, so the true cause may be another one.
    pub gapped: bool,
    /// Events of its sandboxes, in order of time. For a sandbox with very many events, only the first and the
    /// last ones.
    pub evidence: Vec<Evidence>,
    /// The programs that took part.
    pub programs: Vec<ProgramFound>,
    /// The sockets on which the node's runtimes answered when it was opened. Its repair commands ask them
    /// first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runtimes: Vec<String>,
    /// The folders of the node, as they were known then.
    #[serde(default, skip_serializing_if = "is_default")]
    pub folders: NodeFolders,
    /// Its largest totals while it was open. It closes with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst: Option<Box<Worst>>,
}

/// The totals of a finding, where a part of its subjects can be over while it is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worst {
    pub kind: Kind,
    pub severity: Severity,
    pub pod: Option<PodName>,
}

impl Finding {
    /// Whether the node is unhealthy: the finding is confirmed, and pods fail or soon will.
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

/// One event of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceEvent {
    pub at: Timestamp,
    pub origin: Origin,
    pub container: Option<ContainerRef>,
    pub netns: Option<NetnsKey>,
    pub cgroup: Option<CgroupRef>,
    pub what: ChangeKind,
    /// The number of events of the sandbox after this one that are not kept.
    #[serde(default, skip_serializing_if = "is_default")]
    pub left_out: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniCall {
    pub command: String,
    /// The name of the plugin's file.
    pub plugin: String,
    /// `None`: `CNI_NETNS` was not set; empty: it was set to an empty text.
    pub netns: Option<String>,
    pub ifname: Option<String>,
    pub process: Process,
    /// Called by another plugin of the same operation (`bridge` calls `host-local`).
    pub called_by: Option<String>,
    /// Made by a CNI daemon's pod, not by the node's runtime.
    pub delegated: bool,
    /// Where the call is in its caller's trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
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

/// A question to the sources. The answer comes as a fact, or never.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// What is this container? Answered by `ContainerFound` or `ContainerUnknown`.
    Container { id: ContainerId },
    /// What is this pod's name? Answered by `PodFound` or `PodUnknown`, if at all.
    Pod { uid: PodUid },
    /// Which containers should this pod have? Answered by `ContainersExpected`, where a kubelet keeps that.
    Expected { uid: PodUid },
    /// Which network namespace is bound to this file? Answered by `NetnsFound`, if one is. Asked if a CNI
    /// call named the file and it could be one of several namespaces.
    Netns { path: String },
    /// In which network namespace is the process with this pid? Answered by `ProcessNetns`, if it runs. Asked
    /// if a DEL named a process that is not known.
    ProcessNetns { pid: u32 },
    /// Give this namespace an id in ours, so that netlink reports its end. Asked only if no hook reports it.
    Watch {
        netns: NetnsKey,
        by: Task,
        /// When the namespace was made, if this is the first request to watch it and no listing has found it.
        /// Nobody hears its addresses until it is watched.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unheard_since: Option<Timestamp>,
    },
    /// List the node again: something was lost.
    Relist,
    /// Read the stores, libcni's cache and the runtimes' records again: a CNI operation is over, or a verdict
    /// is due.
    Records,
    /// Does this store still hold the address for this holder? Answered by `AddressAnswered`, if the store
    /// can be asked. Asked only if nothing shows that the address was freed.
    Held { path: String, network: String, holder: Holder, address: IpAddr },
    /// Which version is this executable? Answered by `ProgramFound`.
    Program { path: String },
    /// What did the plugin say when this sandbox's ADD, or DEL, failed? Answered by `MessageFound`.
    Message { container: ContainerId, command: CniCommand, since: Timestamp },
    /// How much pressure was this pod's cgroup under? Answered by `PressureRead`, if the cgroup exists. Asked
    /// only during a start.
    Pressure { cgroup: CgroupKey, path: String },
    /// What did the runtime and the kubelet do for this container from then until its first sign? Answered by
    /// `ImageWork`, if a log says so.
    ImageWork { container: ContainerId, from: Timestamp, until: Timestamp },
    /// Which requests did the kubelet hold back while it prepared this sandbox, from then until the sandbox's
    /// first sign? Answered by `HeldRequests`, if its log says so.
    HeldRequests { sandbox: ContainerId, from: Timestamp, until: Timestamp },
    /// What have the runtime and the kubelet said about this pod since then, and what its own `container`, if
    /// that is wanted? Answered by `WordsFound`.
    Words {
        uid: PodUid,
        namespace: Option<String>,
        name: Option<String>,
        sandboxes: Vec<ContainerId>,
        container: Option<String>,
        since: Timestamp,
    },
    /// What has this runtime or kubelet, which fails again and again, said since then? Answered by
    /// `DaemonWordsFound`.
    DaemonWords { daemon: String, since: Timestamp },
    /// What does this process do? Answered by `ProcessState`, if it exists.
    Process { process: TaskKey },
    /// Which states do the runtimes list now? Answered by `RuntimeStatus`, if a runtime is followed.
    Statuses,
}
