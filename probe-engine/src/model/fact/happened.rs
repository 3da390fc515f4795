//! What happened on the node, as a hook or netlink saw it.

use serde::{Deserialize, Serialize};

use crate::model::id::{CgroupKey, NetnsKey, Subnet, TaskKey};

/// A process as a hook saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    pub key: TaskKey,
    pub tid: u32,
    pub parent: TaskKey,
    pub comm: String,
    pub cgroup: CgroupKey,
    /// The inode of its network namespace; 0: it has left its namespaces.
    pub netns: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executed {
    pub task: Task,
    pub filename: String,
    pub argv: Vec<String>,
    /// The size of the whole argv in bytes; larger than `argv` if that was cut.
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
    /// The node's own runtime made it, which no container can imitate.
    pub host: bool,
    pub variables: CniVariables,
    pub env_truncated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    pub key: TaskKey,
    pub comm: String,
}

/// The variables of a call; `None`: not set (an empty text is set).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniVariables {
    pub command: String,
    pub container_id: Option<String>,
    pub netns: Option<String>,
    pub ifname: Option<String>,
    pub args: Option<String>,
    pub path: Option<String>,
    /// As the caller gave it, unchecked: [`TraceContext::read`](crate::model::trace::TraceContext::read).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exited {
    pub task: Task,
    /// As `wait(2)` gives it.
    pub status: u32,
    pub class: u32,
}

/// The signal that no process can catch.
pub const SIGKILL: u32 = 9;
pub const SIGTERM: u32 = 15;

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

/// How many cgroups below one container are listed and have rows of their own: a container can make any
/// number of them.
pub const NESTED: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    pub key: CgroupKey,
    /// The path from the hierarchy's root.
    pub path: String,
    pub level: u32,
    /// It is below a container's own cgroup.
    pub nested: bool,
}
