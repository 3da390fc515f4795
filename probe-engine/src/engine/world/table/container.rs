//! The containers of runtimes: workload containers, and the pause containers of sandboxes.

pub(crate) mod rows;

pub(crate) use rows::Table;

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

use crate::{
    engine::grouped::Grouped,
    model::{
        fact::{Listener, Origin, Role},
        id::{CgroupKey, ContainerId, TaskKey},
        process::Process,
        time::Timestamp,
    },
};

/// A pod or a sandbox by which the table finds containers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    Pod(u64),
    Sandbox(ContainerId),
}

impl Grouped for Container {
    type Group = Group;

    fn groups(&self) -> impl Iterator<Item = Group> {
        self.pod.map(Group::Pod).into_iter().chain(self.sandbox.clone().map(Group::Sandbox))
    }
}

#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    pub(crate) id: ContainerId,
    /// None: the role is not known yet.
    pub(crate) role: Option<Role>,
    pub(crate) name: Option<String>,
    pub(crate) sandbox: Option<ContainerId>,
    /// The `world::table::pod::Pod::id` of its pod.
    #[serde_as(as = "Option<DisplayFromStr>")]
    pub(crate) pod: Option<u64>,
    pub(crate) cgroup: Option<CgroupKey>,
    /// The time of the first evidence of the container.
    pub(crate) first_at: Timestamp,
    pub(crate) origin: Origin,
    /// Its programs are no processes of the node: a virtual machine runs them, or a kernel that is a process
    /// itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) hides_programs: bool,
    pub(crate) question: RoleQuestion,
    pub(crate) run: Run,
    /// What ended its own program, if that was neither the runtime nor the OOM killer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) killer: Option<Process>,
    pub(crate) state: State,
}

/// The state of asking for a container's role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RoleQuestion {
    /// How often the role was asked for.
    pub(crate) asked: u32,
    /// An answer may still come.
    pub(crate) is_open: bool,
    /// A `sandbox.created` waits in the outbox for the role.
    pub(crate) is_awaited: bool,
}

/// The observations of a container's own program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) began: Option<Began>,
    /// When the program began, by a date in the runtime's files. It is used for a container that was found
    /// running.
    pub(crate) dated: Option<Timestamp>,
    /// The first socket of the container that listened.
    pub(crate) listening: Option<Listening>,
    /// The first program that was executed into the container right after its own program began.
    pub(crate) hook: Option<Hook>,
    /// When the runtime first sent it a fatal signal, if that was before its end.
    pub(crate) stopped_at: Option<Timestamp>,
    /// When the runtime first sent it SIGKILL.
    #[serde(default)]
    pub(crate) killed_at: Option<Timestamp>,
    /// Its exit code, if its end was seen.
    pub(crate) code: Option<u32>,
    /// The OOM killer chose its own program.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) oom: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Began {
    pub(crate) at: Timestamp,
    /// The container was found running at that time.
    pub(crate) listed: bool,
}

/// The first time that a socket of a container listened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listening {
    pub(crate) at: Timestamp,
    pub(crate) socket: Listener,
}

/// A program that the runtime executed into a container right after its start. It is most likely a postStart
/// hook: the kubelet runs that hook before it goes on with the pod, and runs no probe of the container until
/// the hook has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hook {
    pub(crate) process: TaskKey,
    pub(crate) ended_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// No program of the container runs yet.
    #[default]
    Created,
    Running {
        process: TaskKey,
        /// When it started. For a container that was found running: when it was found.
        since: Timestamp,
        listed: bool,
    },
    Exited {
        at: Timestamp,
    },
}

/// The transitions of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Run { process: TaskKey, listed: bool },
    End,
}

impl State {
    pub(crate) fn step(self, step: Step, at: Timestamp) -> Option<Self> {
        match (self, step) {
            (Self::Created, Step::Run { process, listed }) => {
                Some(Self::Running { process, since: at, listed })
            }
            (Self::Created | Self::Running { .. }, Step::End) => Some(Self::Exited { at }),
            // Only the first program changes the state. The workload may run any other programs.
            (Self::Running { .. } | Self::Exited { .. }, Step::Run { .. })
            | (Self::Exited { .. }, Step::End) => None,
        }
    }
}

impl Container {
    /// Whether a program of it has run that counts for no sandbox yet: the runtime's files, which have its
    /// role, are read later or cannot be read.
    pub(crate) fn is_unplaced(&self) -> bool {
        let is_placed = match self.role {
            None => false,
            Some(Role::Sandbox) => true,
            Some(Role::Container) => self.sandbox.is_some(),
        };
        self.run.began.is_some() && !is_placed
    }

    #[must_use]
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    #[must_use]
    pub(crate) fn process(&self) -> Option<TaskKey> {
        match self.state {
            State::Running { process, .. } => Some(process),
            State::Created | State::Exited { .. } => None,
        }
    }
}
