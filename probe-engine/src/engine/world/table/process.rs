//! The processes of runtimes, containers and CNI plugins, and the signals that may end them.

pub(crate) mod name;
pub(crate) mod rows;

pub(crate) use name::makes_pods;

use serde::{Deserialize, Serialize};

use crate::model::{
    change,
    fact::SIGKILL,
    id::{CgroupKey, ContainerId, TaskKey},
    time::Timestamp,
};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub(crate) key: TaskKey,
    pub(crate) parent: TaskKey,
    pub(crate) comm: String,
    pub(crate) cgroup: CgroupKey,
    /// The inode of its network namespace. Zero: not known.
    pub(crate) netns: u32,
    pub(crate) program: Program,
    /// When its latest observed exec was.
    pub(crate) executed_at: Option<Timestamp>,
    pub(crate) found_at: Option<Timestamp>,
    /// A CNI plugin runs it as a helper (iptables), so its end is not reported.
    pub(crate) quiet: bool,
    pub(crate) state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    #[default]
    Running,
    Exited {
        at: Timestamp,
    },
}

/// The program that a process runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Program {
    /// The path of a runtime's or a kubelet's executable. Empty for other programs: nobody asks for theirs.
    pub(crate) filename: String,
    /// The bits of `probe_common::event::class`.
    pub(crate) class: u32,
    /// The process's pid in its own pid namespace.
    pub(crate) ns_pid: u32,
    /// Its arguments ask something of a daemon's program, and do not start the daemon.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_query: bool,
    /// The container for which it works, if it is a program of a runtime, a shim or a monitor.
    pub(crate) about: Option<ContainerId>,
}

/// A fatal signal that was sent, or a choice of the OOM killer. It is kept apart from the process, because
/// that may not be known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    pub(crate) target: TaskKey,
    pub(crate) at: Timestamp,
    pub(crate) signal: u32,
    pub(crate) oom: bool,
    pub(crate) sender: change::Process,
}

/// SIGINT, SIGKILL and SIGTERM: the signals by which a daemon is stopped.
pub(crate) const STOPS: [u32; 3] = [2, SIGKILL, 15];

impl State {
    /// A process ends only once.
    pub(crate) fn step(self, at: Timestamp) -> Option<Self> {
        match self {
            Self::Running => Some(Self::Exited { at }),
            Self::Exited { .. } => None,
        }
    }

    /// Whether it ended at `at` or later.
    pub(crate) fn is_since(self, at: Timestamp) -> bool {
        match self {
            Self::Running => false,
            Self::Exited { at: ended } => ended >= at,
        }
    }
}

impl Signal {
    pub(crate) fn tells_to_end(&self) -> bool {
        !self.oom && STOPS.contains(&self.signal)
    }
}
