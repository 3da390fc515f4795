//! What the kernel knows, as objects: processes, network namespaces, cgroups, addresses.
//!
//! They are not the model's own form, which recordings have: there 0 is written where nothing is known, and a key is an
//! object of its own.

use std::{net::IpAddr, time::Duration};

use schemars::JsonSchema;
use serde::Serialize;

use super::scalar::{Decimal, known, nanos};
use crate::model::{
    change::{self, End},
    id::{CgroupKey, NetnsKey, Subnet, TaskKey},
};

/// A network namespace.
#[derive(Default, Serialize, JsonSchema)]
pub(super) struct Netns {
    /// As in `/proc/PID/ns/net`; the kernel uses it again at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<u32>,
    /// Never used again; Linux 5.14 and later give it.
    #[serde(skip_serializing_if = "Option::is_none")]
    cookie: Option<Decimal<u64>>,
    /// Of `netns.freed`: since the last reference was dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) teardown_ns: Option<Decimal<u128>>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Cgroup<'a> {
    /// The inode of its directory, unique within its hierarchy.
    id: Decimal<u64>,
    /// 0 is cgroup v2.
    hierarchy: u32,
    /// From the root of its hierarchy.
    path: &'a str,
}

/// A process, with its end where the event or the finding tells of one.
#[derive(Default, Serialize, JsonSchema)]
pub(super) struct Process<'a> {
    #[serde(flatten)]
    task: Task,
    /// The thread's name, at most 15 bytes.
    comm: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<Task>,
    /// Of `process.exec`: the program's path as it was called.
    #[serde(skip_serializing_if = "Option::is_none")]
    filename: Option<&'a str>,
    /// Of `process.exec`: its arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    argv: Option<&'a [String]>,
    /// There were more arguments than are given.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    argv_cut: bool,
    #[serde(flatten)]
    end: Option<Ended<'a>>,
    /// Of `container.exited`: since the container started.
    #[serde(skip_serializing_if = "Option::is_none")]
    ran_ns: Option<Decimal<u128>>,
}

#[derive(Default, Serialize, JsonSchema)]
struct Task {
    pid: u32,
    /// When it started, since boot; with the pid its identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    start_ns: Option<Decimal<u64>>,
}

/// How a process ended.
#[derive(Serialize, JsonSchema)]
struct Ended<'a> {
    /// The exit code, or 128 and the signal's number.
    exit_code: u32,
    /// The number of the signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<u32>,
    /// The OOM killer chose it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    oom: bool,
    /// Who sent that signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    killer: Option<Killer<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct Killer<'a> {
    #[serde(flatten)]
    task: Task,
    comm: &'a str,
}

/// An address and the interface that has it.
#[derive(Serialize, JsonSchema)]
pub(super) struct Address<'a> {
    address: IpAddr,
    /// The length of the prefix, in bits.
    prefix: u8,
    ifname: &'a str,
}

impl Netns {
    pub(super) fn of(key: NetnsKey) -> Self {
        Self { inode: Some(key.inode), cookie: known(key.cookie), teardown_ns: None }
    }
}

impl<'a> Cgroup<'a> {
    pub(super) fn of(cgroup: &'a change::CgroupRef) -> Self {
        let CgroupKey { id, hierarchy, .. } = cgroup.key;
        Self { id: Decimal(id), hierarchy, path: &cgroup.path }
    }
}

impl<'a> Process<'a> {
    pub(super) fn of(process: &'a change::Process) -> Self {
        let parent = (process.parent != TaskKey::default()).then(|| Task::of(process.parent));
        Self { task: Task::of(process.key), comm: &process.comm, parent, ..Self::default() }
    }

    pub(super) fn executed(
        process: &'a change::Process,
        filename: &'a str,
        argv: &'a [String],
        argv_cut: bool,
    ) -> Self {
        Self { filename: Some(filename), argv: Some(argv), argv_cut, ..Self::of(process) }
    }

    pub(super) fn ended(process: &'a change::Process, end: Option<&'a End>, ran: Option<Duration>) -> Self {
        Self { end: end.map(Ended::of), ran_ns: ran.map(nanos), ..Self::of(process) }
    }
}

impl Task {
    fn of(key: TaskKey) -> Self {
        Self { pid: key.pid, start_ns: known(key.start) }
    }
}

impl<'a> Ended<'a> {
    fn of(end: &'a End) -> Self {
        Self {
            exit_code: end.code,
            signal: end.signal,
            oom: end.oom,
            killer: end.killer.as_ref().map(|by| Killer { task: Task::of(by.key), comm: &by.comm }),
        }
    }
}

impl<'a> Address<'a> {
    pub(super) fn of(address: Subnet, ifname: &'a str) -> Self {
        Self { address: address.address, prefix: address.prefix, ifname }
    }
}
