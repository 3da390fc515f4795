//! The containers that ran in a sandbox. Verdicts and starts need them for longer than the containers' own rows are
//! kept.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Work, table::Table};
use crate::{
    engine::world::{
        World,
        container::{Hook, Listening},
    },
    model::{fact::Role, id::ContainerId, phase::Part, time::Timestamp},
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
    /// What the time before its first sign was spent on, if something tells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) parts: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub(crate) at: Timestamp,
    /// None: no hook saw the end.
    pub(crate) code: Option<u32>,
    /// When its runtime told it to end, if it did.
    #[serde(default)]
    pub(crate) stopped_at: Option<Timestamp>,
}

/// Codes from this on stand for a signal, as shells and runtimes count (`change::End`).
pub(in crate::engine) const SIGNALLED: u32 = 128;

impl Ended {
    /// Whether its program ended by itself: neither its runtime nor a signal ended it.
    pub(in crate::engine::world) fn by_itself(self) -> bool {
        self.stopped_at.is_none() && self.code.is_some_and(|code| code < SIGNALLED)
    }
}

/// At most this many containers of one sandbox are remembered. If there are more, the first are forgotten.
const CONTAINERS: usize = 64;

/// A container with a new name still belongs to its pod's start if it comes at most this long after the last one.
pub(in crate::engine) const LATE: Duration = Duration::from_secs(5 * 60);

impl ContainerRun {
    /// Whether it has the name that `kubectl debug` gives an ephemeral container.
    pub(in crate::engine::world) fn is_debugger(&self) -> bool {
        self.name.as_deref().is_some_and(is_debugger)
    }
}

/// Whether this is the name of an ephemeral container that was given no name: `debugger-` and five of the letters that
/// Kubernetes uses in generated names.
fn is_debugger(name: &str) -> bool {
    const LETTERS: &str = "bcdfghjklmnpqrstvwxz2456789";
    name.strip_prefix("debugger-")
        .is_some_and(|rest| rest.len() == 5 && rest.chars().all(|letter| LETTERS.contains(letter)))
}

impl Work {
    /// Whether a container that comes now belongs to the pod's start, though the start counted as complete.
    fn is_continued_by(&self, next: &ContainerRun, expected: &[String]) -> bool {
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
    fn run_of(&mut self, id: &ContainerId) -> Option<&mut ContainerRun> {
        self.containers.iter_mut().rev().find(|ran| ran.id == *id)
    }
}

impl World {
    /// A container started. Its sandbox may become known only later.
    pub(in crate::engine::world) fn container_ran(&mut self, id: &ContainerId) {
        let Some(began) = self.containers.get(id).and_then(|row| row.run.began) else { return };
        self.pod_may_be_back(began.at);
        let Some(sandbox) = self.sandbox_for(id) else { return };
        let Some(container) = self.containers.get(id) else { return };
        let cgroup = container.cgroup.and_then(|key| self.cgroups.get(&key));
        let ran = ContainerRun {
            id: id.clone(),
            name: container.name.clone(),
            first_at: container.first_at.min(began.at),
            cgroup_at: cgroup.and_then(|row| row.created_at).filter(|at| *at <= began.at),
            started_at: began.at,
            listed: began.listed,
            listening: container.run.listening,
            hook: container.run.hook,
            ended: None,
            parts: Vec::new(),
        };
        let expected =
            self.sandboxes.recall(&sandbox).map(|row| self.expected_in(row).to_vec()).unwrap_or_default();
        let Some(row) = self.sandboxes.recall_mut(&sandbox) else { return };
        let work = &mut row.work;
        if let Some(known) = work.run_of(id) {
            known.name = ran.name.or_else(|| known.name.take());
            self.start_turns(&sandbox);
            return;
        }
        let goes_on = work.started_at.is_some() && work.is_continued_by(&ran, &expected);
        if work.containers.len() >= CONTAINERS {
            work.containers.remove(0);
        }
        work.containers.push(ran);
        if goes_on {
            self.start_goes_on(&sandbox);
        }
        self.ask_expected(&sandbox);
        self.ask_held_requests(&sandbox, began.at);
        self.ask_image_work(&sandbox, id);
        self.start_turns(&sandbox);
    }

    pub(in crate::engine::world) fn run_listens(&mut self, id: &ContainerId, listening: Listening) {
        self.pod_may_be_back(listening.at);
        let Some(sandbox) = self.sandbox_for(id) else { return };
        if let Some(row) = self.sandboxes.recall_mut(&sandbox)
            && let Some(ran) = row.work.run_of(id)
        {
            ran.listening = Some(listening);
            self.start_listens(&sandbox);
        }
    }

    /// A program was executed into a container right after the container's start, or that program has ended.
    pub(in crate::engine::world) fn run_hooked(&mut self, id: &ContainerId, hook: Hook) {
        let Some(sandbox) = self.sandbox_for(id) else { return };
        if let Some(ran) = self.sandboxes.recall_mut(&sandbox).and_then(|row| row.work.run_of(id)) {
            ran.hook = Some(hook);
        }
    }

    pub(in crate::engine::world) fn run_ended(&mut self, at: Timestamp, id: &ContainerId, code: Option<u32>) {
        self.pod_may_be_back(at);
        let Some(sandbox) = self.sandbox_for(id) else { return };
        let stopped_at = self.containers.get(id).and_then(|row| row.run.stopped_at);
        let is_container = self.containers.get(id).is_some_and(|row| row.role != Some(Role::Sandbox));
        let Some(row) = self.sandboxes.recall_mut(&sandbox) else { return };
        match row.work.run_of(id) {
            Some(ran) if ran.ended.is_none() => {
                ran.ended = Some(Ended { at, code, stopped_at });
                self.await_pulls(at);
                self.start_turns(&sandbox);
            }
            Some(_) => {}
            None if is_container => row.work.tried_at = row.work.tried_at.max(Some(at)),
            None => {}
        }
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
