//! Objects of the kernel: processes, network namespaces, cgroups, addresses.
//!
//! They have the members of [`model::json`](crate::model::json), and members that only events have.

use std::{net::IpAddr, time::Duration};

use schemars::JsonSchema;
use serde::Serialize;
use serde_with::skip_serializing_none;

use super::scalar::{Decimal, nanos};
use crate::model::{
    change::{self, End},
    id::{CgroupKey, NetnsKey, Subnet},
    json::{NetnsJson, TaskJson},
};

/// A network namespace.
#[derive(Default, Serialize, JsonSchema)]
pub(super) struct Netns {
    #[serde(flatten)]
    key: NetnsJson,
    /// In `netns.freed`: time since the last reference was dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) teardown_ns: Option<Decimal<u128>>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Cgroup<'a> {
    /// The inode of its directory, unique within its hierarchy.
    id: Decimal<u64>,
    /// 0 is cgroup v2.
    hierarchy: u32,
    /// The path from the root of its hierarchy.
    path: &'a str,
}

/// A process, with its end if the event or the finding reports one.
#[skip_serializing_none]
#[derive(Serialize, JsonSchema)]
pub(super) struct Process<'a> {
    #[serde(flatten)]
    process: &'a change::Process,
    /// In `process.exec`: the program's path as it was called.
    filename: Option<&'a str>,
    /// In `process.exec`: its arguments.
    argv: Option<&'a [String]>,
    /// There were more arguments than are listed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    argv_cut: bool,
    #[serde(flatten)]
    end: Option<Ended<'a>>,
    /// In `container.exited`: time since the container started.
    ran_ns: Option<Decimal<u128>>,
}

/// How a process ended.
#[skip_serializing_none]
#[derive(Serialize, JsonSchema)]
struct Ended<'a> {
    /// The exit code, or 128 and the signal's number.
    exit_code: u32,
    /// The number of the signal that ended it.
    signal: Option<u32>,
    /// The OOM killer chose it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    oom: bool,
    /// Who sent that signal.
    killer: Option<Killer<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct Killer<'a> {
    #[serde(flatten)]
    task: TaskJson,
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
        Self { key: key.into(), teardown_ns: None }
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
        Self { process, filename: None, argv: None, argv_cut: false, end: None, ran_ns: None }
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

impl<'a> Ended<'a> {
    fn of(end: &'a End) -> Self {
        Self {
            exit_code: end.code,
            signal: end.signal,
            oom: end.oom,
            killer: end.killer.as_ref().map(|by| Killer { task: by.key.into(), comm: &by.comm }),
        }
    }
}

impl<'a> Address<'a> {
    pub(super) fn of(address: Subnet, ifname: &'a str) -> Self {
        Self { address: address.address, prefix: address.prefix, ifname }
    }
}
