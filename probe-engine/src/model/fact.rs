//! The left arrow: what sources say.
//!
//! **Invariant:** a fact is in the past tense and complete in itself: the engine never looks anything up.
//! A listed fact says "was so when I read it", never "happened then": the two are different variants, so that
//! nothing can confuse them.

mod ledger;
mod listening;
mod pressure;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};
use strum::IntoStaticStr;

use crate::model::{
    id::{CgroupKey, ContainerId, NetnsKey, PodUid, Subnet, TaskKey},
    recovery::BootRead,
    time::{Nanoseconds, Timestamp, on_the_clock},
};

pub use ledger::{
    Holder, MessageFound, Network, NetworksRead, Pool, ProgramFound, Reservation, RuntimeKind, RuntimeRead,
    RuntimeSandbox, Store, StoreKind, StoreRead,
};
pub use listening::{Family, Listened, Listener};
pub use pressure::{CpuUse, MemoryEvents, Pressure, PressureRead, Stall};

/// What a source says, and when it was so: for a kernel record the hook's time, for a listing the reading's.
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
        /// More are there than the hooks can look at: they will not tell of its end.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        end_unseen: bool,
    },
    /// The last reference is gone.
    NetnsDropped {
        netns: NetnsKey,
        by: Task,
    },
    /// Teardown is complete. Hooks are told only the inode (cookie 0).
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

    // What was found to be so: listings and answers.
    ListBegun(List),
    /// Only after this may "not in the list" mean "not there"; `complete` is false if part of it was unreadable.
    ListEnded {
        list: List,
        complete: bool,
    },
    /// Those of one list come in the order in which they began.
    ProcessFound(ProcessFound),
    NetnsFound {
        netns: NetnsKey,
        mounts: Vec<String>,
        /// No process is in it; false also where not every process could be looked at.
        vacant: bool,
    },
    AddressFound(Address),
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
    /// The containers that a pod is to have, as its kubelet keeps them on record: all main containers and sidecars, not
    /// always the other init containers, and never an ephemeral one.
    ContainersExpected {
        uid: PodUid,
        names: Vec<String>,
    },
    /// One result in libcni's cache.
    CacheFound(CacheFound),
    /// A file of libcni's cache is there and cannot be read; its name says which attachment it is about.
    CacheUnread {
        path: String,
    },
    /// What an IPAM store holds.
    StoreRead(StoreRead),
    /// What a runtime keeps on record.
    RuntimeRead(RuntimeRead),
    NetworksRead(NetworksRead),
    /// Whether this node is one of a cluster: a kubelet then cleans up what a restart left.
    KubeletExpected(bool),
    ProgramFound(ProgramFound),
    MessageFound(MessageFound),
    PressureRead(PressureRead),

    // What is so of the instrument itself.
    /// Ordered sources have said all they had to say up to this time.
    Watermark,
    Attached(Attached),
    /// Something was lost: until the next complete listing nothing may be concluded from absence.
    Lost {
        what: Loss,
        #[serde_as(as = "DisplayFromStr")]
        count: u64,
    },
    /// Reading a file of the node hangs since then, or no longer does.
    FileHangs {
        path: String,
        since: Timestamp,
        hangs: bool,
    },
    /// Which boot this is, and how the one before ended.
    BootRead(Box<BootRead>),
    /// The wall clock's distance from boot time changed to this, nanoseconds since the epoch at boot.
    Clock {
        #[serde_as(as = "DisplayFromStr")]
        boot_wall_ns: i64,
    },
    /// The node was suspended for that long, and runs again: boot time went on, and nothing else did.
    Resumed {
        #[serde_as(as = "Nanoseconds")]
        slept: Duration,
    },
}

/// A process as a hook saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    pub key: TaskKey,
    pub tid: u32,
    pub parent: TaskKey,
    pub comm: String,
    pub cgroup: CgroupKey,
    /// Inode of its network namespace; 0 = given up.
    pub netns: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executed {
    pub task: Task,
    pub filename: String,
    pub argv: Vec<String>,
    /// Bytes of argv in all; more than are in `argv` if it was cut.
    pub argv_total: u32,
    /// Bits of `probe_common::event::class`.
    pub class: u32,
    pub ns_pid: u32,
    pub pid_ns: u32,
    pub mnt_ns: u32,
}

/// A CNI plugin began to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniCalled {
    pub task: Task,
    pub filename: String,
    pub caller: Option<Caller>,
    /// Made by the node's own runtime, which no container can pass for.
    pub host: bool,
    pub variables: CniVariables,
    pub env_truncated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    pub key: TaskKey,
    pub comm: String,
}

/// The `CNI_*` variables; `None` = not set, which an empty text is not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniVariables {
    pub command: String,
    pub container_id: Option<String>,
    pub netns: Option<String>,
    pub ifname: Option<String>,
    pub args: Option<String>,
    pub path: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exited {
    pub task: Task,
    /// As `wait(2)` gives it.
    pub status: u32,
    pub class: u32,
}

/// The signal that nobody can catch.
pub const SIGKILL: u32 = 9;

/// A fatal signal was sent, or the OOM killer chose its victim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signaled {
    pub target: Task,
    pub signal: u32,
    pub code: i32,
    pub sender: Task,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    pub netns: NetnsKey,
    pub address: Subnet,
    pub ifname: String,
    pub ifindex: u32,
    /// `IFA_F_*`.
    pub flags: u32,
    /// `RT_SCOPE_*`.
    pub scope: u8,
    pub by: Task,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    pub key: CgroupKey,
    /// From the hierarchy's root.
    pub path: String,
    pub level: u32,
    /// Below a container's own cgroup.
    pub nested: bool,
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
    /// Its environment's `CNI_*`, if it is a CNI plugin still running.
    pub cni: Option<CniVariables>,
    /// The executable's path.
    pub filename: String,
    /// It has the name of a daemon of the node, and is not root's by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forged: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerFound {
    pub id: ContainerId,
    pub role: Role,
    /// The sandbox it lives in; of a sandbox, itself.
    pub sandbox: Option<ContainerId>,
    /// The container's name in the pod's spec.
    pub name: Option<String>,
    pub pod: Option<PodName>,
    pub source: NameSource,
    /// When its program was executed, by a date that the runtime left.
    pub started: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Sandbox,
    Container,
}

/// What is known of a pod's name; each part may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct PodName {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<PodUid>,
}

impl PodName {
    /// Adds what was not known.
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

/// How a signal is seen, and why not better.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    pub signal: Signal,
    /// `None`: it is not seen at all.
    pub mechanism: Option<Mechanism>,
    /// What is less precise than with the best mechanism; empty if nothing.
    pub note: String,
    /// The better mechanisms, and why each failed.
    pub missed: Vec<(Mechanism, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(const_into_str)]
pub enum Signal {
    #[strum(serialize = "exec")]
    Exec,
    #[strum(serialize = "exit")]
    Exit,
    #[strum(serialize = "fatal signal")]
    FatalSignal,
    #[strum(serialize = "oom kill")]
    OomKill,
    #[strum(serialize = "netns created")]
    NetnsCreated,
    #[strum(serialize = "netns dropped")]
    NetnsDropped,
    #[strum(serialize = "netns freed")]
    NetnsFreed,
    #[strum(serialize = "address ipv4")]
    AddressV4,
    #[strum(serialize = "address ipv6")]
    AddressV6,
    #[strum(serialize = "cgroup created")]
    CgroupCreated,
    #[strum(serialize = "cgroup removed")]
    CgroupRemoved,
    #[strum(serialize = "cgroup released")]
    CgroupReleased,
    #[strum(serialize = "cgroup entered")]
    CgroupEntered,
    #[strum(serialize = "cgroup emptied")]
    CgroupEmptied,
    #[strum(serialize = "listening")]
    Listening,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(const_into_str)]
pub enum Mechanism {
    #[strum(serialize = "fentry")]
    Fentry,
    #[strum(serialize = "fexit")]
    Fexit,
    #[strum(serialize = "kprobe")]
    Kprobe,
    #[strum(serialize = "kretprobe")]
    Kretprobe,
    #[strum(serialize = "raw tracepoint")]
    RawTracepoint,
    #[strum(serialize = "tracepoint")]
    Tracepoint,
    #[strum(serialize = "netlink")]
    Netlink,
}

closed_set! {
    /// Where something was lost.
    pub enum Loss {
        LifecycleRing,
        BulkRing,
        /// A netlink socket's buffer was full.
        NetlinkSocket,
        /// A record that could not be read.
        Record,
        /// The channel between a source and the engine was full.
        Channel,
        /// Runs of hooks that the kernel skipped; not each would have told something.
        SkippedRun,
    }
}
