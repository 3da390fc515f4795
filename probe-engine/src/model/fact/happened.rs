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

/// How many cgroups below one container are listed, and have rows of their own: what runs there makes as many as it likes.
pub const NESTED: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    pub key: CgroupKey,
    /// From the hierarchy's root.
    pub path: String,
    pub level: u32,
    /// Below a container's own cgroup.
    pub nested: bool,
}
