//! Facts: what sources report about the node.
//!
//! **Invariant:** a fact is in the past tense and complete in itself: the engine never looks anything up. A
//! listed fact says "was so when I read it", never "happened then". The two are different variants, so that
//! nothing can confuse them.

mod attached;
mod happened;
mod held;
mod image;
mod ledger;
mod listening;
mod pressure;
mod process_state;
mod records_diff;
mod runtime;
mod words;

use std::{net::IpAddr, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

use crate::model::{
    id::{ContainerId, NetnsKey, PodUid, Subnet, TaskKey},
    recovery::BootRead,
    time::{Nanoseconds, Timestamp, on_the_clock},
};

pub use super::time::Span;
pub use attached::{Attached, Loss, Mechanism, RingRead, RingsRead, Signal};
pub use happened::{
    Address, Caller, Cgroup, CniCalled, CniVariables, Executed, Exited, NESTED, SIGKILL, SIGTERM, Signaled,
    Task,
};
pub use held::HeldRequests;
pub use image::{ImageWork, Pull};
pub use ledger::{
    AddressAnswered, Bound, CniCommand, Holder, LOOPBACK, MessageFound, Network, NetworkFault,
    NetworkFaultForm, NetworkLoading, NetworksRead, NodeFolders, Pool, ProgramFound, Reservation,
    ReservationState, RuntimeChanged, RuntimeKind, RuntimeRead, RuntimeSandbox, Store, StoreAnswer,
    StoreChanged, StoreKind, StoreLink, StoreRead,
};
pub use listening::{Family, Listened, Listener};
pub use pressure::{CpuUse, MemoryEvents, Pressure, PressureRead, Stall};
pub use process_state::{ProcessState, RunState, ThreadState};
pub use records_diff::RecordsDiff;
pub use runtime::{
    Answer, Believed, Described, EventStream, RuntimeEvent, RuntimeEventKind, RuntimeLink, RuntimeStatus,
    Stated,
};
pub use words::{DaemonWordsFound, Said, Speaker, WordsFound};

/// A fact and its time: for a kernel record the hook's time, for a listing the time of reading.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    #[serde(deserialize_with = "on_the_clock")]
    pub at: Timestamp,
    pub origin: Origin,
    pub fact: Fact,
}

closed_set! {
    /// Who says so.
    pub enum Origin {
        /// A hook, at the time of the event.
        Kernel,
        /// A netlink notification: the event's order is right, its time is that of the notification.
        Netlink,
        /// Read from the node's files or answered to a question.
        Listed,
        /// A CNI call made from within a container, by a CNI daemon's pod.
        Delegated,
        /// The container runtime.
        Cri,
        /// The agent about itself.
        Agent,
    }
}

#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    // What happened: kernel and netlink.
    Executed(Executed),
    CniCalled(CniCalled),
    Exited(Exited),
    Signaled(Signaled),
    OomKilled(Signaled),
    NetnsCreated {
        netns: NetnsKey,
        by: Task,
        /// The hooks' table of namespaces is full, so they will not report its end.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        end_unseen: bool,
    },
    /// The last reference is gone.
    NetnsDropped {
        netns: NetnsKey,
        by: Task,
    },
    /// Teardown is complete.
    NetnsFreed {
        netns: NetnsKey,
    },
    AddressAdded(Address),
    AddressRemoved(Address),
    CgroupCreated {
        cgroup: Cgroup,
        by: Task,
    },
    CgroupRemoved {
        cgroup: Cgroup,
        by: Task,
    },
    CgroupReleased {
        cgroup: Cgroup,
    },
    CgroupEntered {
        cgroup: Cgroup,
        member: TaskKey,
        by: Task,
    },
    CgroupEmptied {
        cgroup: Cgroup,
    },
    Listened(Listened),

    // What was found: listings and answers.
    ListBegun(List),
    /// Only after this does "not in the list" mean "not there". `complete` is false if part of it was
    /// unreadable.
    ListEnded {
        list: List,
        complete: bool,
    },
    /// The processes of one list come in the order in which they began.
    ProcessFound(ProcessFound),
    NetnsFound {
        netns: NetnsKey,
        mounts: Vec<String>,
        /// No process is in it. Also false if not every process could be inspected.
        vacant: bool,
    },
    /// The inode of a process's network namespace; the answer to a question.
    ProcessNetns {
        process: TaskKey,
        netns: u32,
    },
    AddressFound(Address),
    /// All addresses that a network namespace has. Those that are new were reported before.
    AddressesListed {
        netns: NetnsKey,
        present: Vec<IpAddr>,
    },
    CgroupFound {
        cgroup: Cgroup,
        populated: bool,
    },
    /// An OCI bundle or a runtime's own record says what a container is.
    ContainerFound(ContainerFound),
    /// A question about a container had no answer.
    ContainerUnknown(ContainerId),
    /// A folder of `/var/log/pods` names a pod.
    PodFound {
        uid: PodUid,
        namespace: String,
        name: String,
        source: NameSource,
    },
    /// `/var/log/pods` has folders of pods, and none of the pod with this UID.
    PodUnknown(PodUid),
    /// The containers that a pod should have, as its kubelet keeps them on record: all main containers and
    /// sidecars, sometimes the other init containers, and never an ephemeral one.
    ContainersExpected {
        uid: PodUid,
        names: Vec<String>,
    },
    /// One result in libcni's cache.
    CacheFound(CacheFound),
    /// A file of libcni's cache exists and cannot be read. Its name gives the attachment.
    CacheUnread {
        path: String,
    },
    /// This listing of libcni's cache has only the changes since the one before it. The other results are
    /// unchanged.
    CacheUnchanged,
    /// A result that was in libcni's cache is no longer in it.
    CacheGone {
        container: ContainerId,
        ifname: String,
    },
    /// What an IPAM store holds.
    StoreRead(StoreRead),
    StoreChanged(StoreChanged),
    /// Whether a store that is asked about single addresses can be asked.
    StoreLink(StoreLink),
    /// What such a store says of one address; the answer to a question.
    AddressAnswered(AddressAnswered),
    /// What a runtime keeps on record.
    RuntimeRead(RuntimeRead),
    RuntimeChanged(RuntimeChanged),
    NetworksRead(NetworksRead),
    /// Whether this node belongs to a cluster: then a kubelet cleans up what a restart left.
    KubeletExpected(bool),
    ProgramFound(ProgramFound),
    MessageFound(MessageFound),
    PressureRead(PressureRead),
    /// How the time before a container's first sign was spent, as far as logs and files show.
    ImageWork(Box<ImageWork>),
    /// When the kubelet held requests back while it prepared a sandbox, according to its log.
    HeldRequests(HeldRequests),
    /// What a process does; the answer to a question.
    ProcessState(ProcessState),
    /// What the runtime and the kubelet say about a pod; the answer to a question.
    WordsFound(WordsFound),
    /// What a runtime or a kubelet says that does not come up; the answer to a question.
    DaemonWordsFound(DaemonWordsFound),

    // What a runtime reports over CRI.
    RuntimeLink(RuntimeLink),
    RuntimeStatus(RuntimeStatus),
    RuntimeEvent(RuntimeEvent),

    // Facts about the agent itself.
    /// Ordered sources have reported everything up to this time.
    Watermark,
    Attached(Attached),
    /// Something was lost: until the next complete listing nothing may be concluded from absence.
    Lost {
        what: Loss,
        #[serde_as(as = "DisplayFromStr")]
        count: u64,
        /// The earliest time of what was lost; absent if the loss was noticed at once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
    },
    /// Netlink cannot watch this namespace: there was no room for the request, no process or file that holds
    /// the namespace was found, or the kernel refused.
    NetnsUnwatched {
        netns: NetnsKey,
        /// As in the request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unheard_since: Option<Timestamp>,
    },
    /// How far the rings of the hooks were read.
    RingsRead(RingsRead),
    /// A new agent runs with the state of the last one. What happened from `since` until now was not seen.
    AgentAway {
        since: Timestamp,
    },
    /// A new agent runs, and the last agent's state of the time from `since` until now is lost, including
    /// what it knew and had not reported.
    StateLost {
        since: Timestamp,
    },
    /// A new agent has the state of the last one, if that is not lost, and next reads what the hooks left for
    /// it.
    AgentArrived,
    /// A new agent continues with the state of the last one, and has read what the hooks left for it. Facts
    /// about the last agent itself are over.
    AgentBegan {
        /// Hooks saw what happened from then until now, but no agent listened to netlink. None: `AgentAway`
        /// covers all of that time.
        unheard_since: Option<Timestamp>,
    },
    /// Reading a file of the node has hung since then, or no longer hangs.
    FileHangs {
        path: String,
        since: Timestamp,
        hangs: bool,
    },
    /// Which boot this is, and how the previous one ended.
    BootRead(Box<BootRead>),
    /// The wall clock changed relative to boot time. `boot_wall_ns`: the wall clock at boot, nanoseconds
    /// since the epoch.
    Clock {
        #[serde_as(as = "DisplayFromStr")]
        boot_wall_ns: i64,
    },
    /// The node was suspended for that long and runs again. Only boot time went on.
    Resumed {
        #[serde_as(as = "Nanoseconds")]
        slept: Duration,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum List {
    Processes,
    Netns,
    Addresses,
    Cgroups,
    Containers,
    Pods,
    CniCache,
    Ipam,
    /// The runtimes' own records of sandboxes.
    Runtimes,
}

impl List {
    pub const ALL: [Self; 9] = [
        Self::Processes,
        Self::Netns,
        Self::Addresses,
        Self::Cgroups,
        Self::Containers,
        Self::Pods,
        Self::CniCache,
        Self::Ipam,
        Self::Runtimes,
    ];
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessFound {
    pub task: Task,
    pub argv: Vec<String>,
    pub cgroup_path: String,
    pub ns_pid: u32,
    /// The `CNI_*` variables of its environment, if it is a CNI plugin.
    pub cni: Option<CniVariables>,
    /// The executable's path.
    pub filename: String,
    /// It has the name of a daemon of the node, but does not run as root by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forged: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerFound {
    pub id: ContainerId,
    pub role: Role,
    /// The container's sandbox; for a sandbox, itself.
    pub sandbox: Option<ContainerId>,
    /// The container's name in the pod's spec.
    pub name: Option<String>,
    pub pod: Option<PodName>,
    pub source: NameSource,
    /// When its program was executed, by the date of a file of the runtime.
    pub started: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Sandbox,
    Container,
}

/// What is known of a pod's name; each part may be missing.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct PodName {
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub uid: Option<PodUid>,
}

impl PodName {
    /// Whether it identifies one pod: by its UID, or by its name and namespace.
    #[must_use]
    pub(crate) fn names_pod(&self) -> bool {
        self.uid.is_some() || self.name.is_some() && self.namespace.is_some()
    }

    /// Returns NAMESPACE/NAME, if both are known.
    pub(crate) fn full(&self) -> Option<String> {
        Some(format!("{}/{}", self.namespace.as_ref()?, self.name.as_ref()?))
    }

    /// Fills in the parts that are missing.
    pub(crate) fn learn(&mut self, other: &Self) {
        self.namespace = self.namespace.take().or_else(|| other.namespace.clone());
        self.name = self.name.take().or_else(|| other.name.clone());
        self.uid = self.uid.take().or_else(|| other.uid.clone());
    }
}

closed_set! {
    /// Where a name comes from.
    pub enum NameSource {
        CniArgs,
        CgroupPath,
        Bundle,
        LogFolder,
        Argv,
        CniCache,
        Cri,
        KubeletLog,
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheFound {
    pub network: String,
    pub container: ContainerId,
    pub ifname: String,
    pub addresses: Vec<Subnet>,
    pub netns: Option<String>,
    /// `cniArgs`, as in `CNI_ARGS`.
    pub args: Vec<(String, String)>,
}

impl CacheFound {
    /// Whether this result is that of this file of libcni's cache.
    pub(crate) fn is_in(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        network_of_cached(name, &self.container, &self.ifname) == Some(self.network.as_str())
    }
}

/// Returns the network in the name of an attachment's file in libcni's cache: `NETWORK-CONTAINER-IFNAME`.
/// None: the file belongs to another attachment.
pub(crate) fn network_of_cached<'a>(name: &'a str, container: &ContainerId, ifname: &str) -> Option<&'a str> {
    let rest = name.strip_suffix(ifname)?.strip_suffix('-')?;
    rest.strip_suffix(container.as_str())?.strip_suffix('-')
}

/// Returns the sandbox of a file of libcni's cache, by the file's name. None: the name has no full id, as may
/// be for containers outside pods.
pub(crate) fn sandbox_of_cached(path: &str) -> Option<ContainerId> {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.split('-').filter_map(ContainerId::parse).find(ContainerId::is_full)
}
