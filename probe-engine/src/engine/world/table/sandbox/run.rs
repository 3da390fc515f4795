//! The containers that ran in a sandbox. Verdicts and starts need them for longer than the containers' own
//! rows are kept.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    engine::world::table::{
        container::{Hook, Listening},
        sandbox::{LastStarted, Work, rows::Table},
    },
    model::{id::ContainerId, phase::Part, process::Process, time::Timestamp},
};

/// A container that ran in a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRun {
    pub(crate) id: ContainerId,
    pub(crate) name: Option<String>,
    /// Its first sign: its runtime's program was run, or its cgroup was made.
    pub(crate) first_at: Timestamp,
    pub(crate) cgroup_at: Option<Timestamp>,
    pub(crate) started_at: Timestamp,
    /// The container was found running.
    pub(crate) listed: bool,
    pub(crate) listening: Option<Listening>,
    /// The first program that was executed into it right after its own program began, as a postStart hook is.
    #[serde(default)]
    pub(crate) hook: Option<Hook>,
    pub(crate) ended: Option<Ended>,
    /// What may have ended it together with containers of other pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended_by: Option<EndedBy>,
    /// What the time before its first sign was spent on, if that is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) parts: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub(crate) at: Timestamp,
    /// None: no hook saw the end.
    pub(crate) code: Option<u32>,
    /// When its runtime first sent it a fatal signal, if it did.
    #[serde(default)]
    pub(crate) stopped_at: Option<Timestamp>,
    /// The OOM killer chose its own program.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) oom: bool,
}

/// What can end containers of many pods at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EndedBy {
    /// The daemon that had started moments before the runtime began to end it.
    Daemon(LastStarted),
    /// A process that does not work for a runtime.
    Process(Process),
}

/// Codes from this on stand for a signal, as shells and runtimes count (`change::End`).
pub(crate) const SIGNALLED: u32 = 128;

impl Ended {
    /// Whether its program ended by itself: neither its runtime nor a signal ended it.
    pub(crate) fn by_itself(self) -> bool {
        self.stopped_at.is_none() && self.code.is_some_and(|code| code < SIGNALLED)
    }
}

/// A container with a new name still belongs to its pod's start if it comes at most this long after the last
/// one.
pub(crate) const LATE: Duration = Duration::from_secs(5 * 60);

impl ContainerRun {
    /// Whether it has the name that `kubectl debug` gives an ephemeral container.
    pub(crate) fn is_debugger(&self) -> bool {
        self.name.as_deref().is_some_and(is_debugger)
    }
}

/// Whether this is the name of an ephemeral container that was given no name.
pub(crate) fn is_debugger(name: &str) -> bool {
    name.strip_prefix("debugger-").is_some_and(is_generated)
}

/// Whether Kubernetes put this at the end of a name: five of the letters of
/// `apimachinery/pkg/util/rand/rand.go`.
pub(crate) fn is_generated(suffix: &str) -> bool {
    const LETTERS: &str = "bcdfghjklmnpqrstvwxz2456789";
    suffix.len() == 5 && suffix.chars().all(|letter| LETTERS.contains(letter))
}

impl Work {
    /// Whether a container that comes now belongs to the pod's start, though the start counted as complete.
    pub(crate) fn is_continued_by(&self, next: &ContainerRun, expected: &[String]) -> bool {
        let Some(name) = &next.name else { return false };
        let is_new = self.containers.iter().all(|ran| ran.name.as_ref() != Some(name));
        if !expected.is_empty() {
            return is_new && expected.contains(name);
        }
        let runs = self.containers.iter().any(|ran| ran.ended.is_none_or(|ended| ended.at > next.first_at));
        let last = self.containers.iter().map(|ran| ran.started_at).max().unwrap_or(Timestamp::ZERO);
        is_new && !next.is_debugger() && (!runs || next.first_at <= last + LATE)
    }

    /// The latest run of a container.
    pub(in crate::engine::world) fn run_of(&mut self, id: &ContainerId) -> Option<&mut ContainerRun> {
        self.containers.iter_mut().rev().find(|ran| ran.id == *id)
    }
}

impl Table {
    /// It became known what the time before a container's first sign was spent on.
    pub(in crate::engine::world) fn run_divided(
        &mut self,
        sandbox: &ContainerId,
        id: &ContainerId,
        parts: Vec<Part>,
    ) {
        if let Some(ran) = self.recall_mut(sandbox).and_then(|row| row.work.run_of(id)) {
            ran.parts = parts;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_debugger;

    #[test]
    fn what_kubectl_debug_makes_is_known_by_its_name() {
        assert!(is_debugger("debugger-x7k2p"));
        for name in
            ["debugger", "debugger-", "debugger-abcde", "debugger-x7k2p4", "main", "my-debugger-x7k2p"]
        {
            assert!(!is_debugger(name), "{name}");
        }
    }
}
