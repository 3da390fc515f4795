//! Finds out who ended a sandbox: the runtime, on purpose, or another process.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Ending, Sandbox, table::Table};
use crate::{
    engine::{
        timeline::OOM_BEHIND,
        world::{EventContext, World, argv},
    },
    model::{
        change::{self, End},
        fact::SIGKILL,
        id::{ContainerId, TaskKey},
        time::Timestamp,
    },
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Death {
    pub(crate) at: Timestamp,
    pub(crate) end: End,
    /// The killer is the runtime, or a process that the runtime started.
    pub(crate) by_runtime: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetnsGone {
    pub(crate) at: Timestamp,
    pub(crate) by: Option<change::Process>,
}

/// The runtime or the kubelet that started last, of those that run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastStarted {
    pub(crate) comm: String,
    pub(crate) at: Timestamp,
}

/// A daemon that starts looks at every pod of the node within this time.
pub(in crate::engine) const MOMENTS: Duration = Duration::from_secs(2 * 60);

/// At most this many ancestors of a killer are looked at.
const ANCESTORS: usize = 8;

impl Ending {
    fn stopping(&mut self, at: Timestamp) {
        self.stop_at = Some(self.stop_at.map_or(at, |stop| stop.min(at)));
    }

    pub(super) fn netns_goes(&mut self, at: Timestamp, by: Option<change::Process>) {
        self.netns_gone.get_or_insert(NetnsGone { at, by });
    }
}

impl Sandbox {
    /// The daemon that had started moments before the runtime began to stop the sandbox, and when that was, if the sandbox
    /// was older than the daemon's start and nothing was wrong in it: its pause lived, its namespace existed, and one of
    /// its containers ran.
    pub(in crate::engine) fn replaced_by(&self) -> Option<(&LastStarted, Timestamp)> {
        let stop_at = self.ending.stop_at.filter(|_| self.is_stopped())?;
        let started = self.ending.last_started.as_ref()?;
        let told = self.containers().iter().filter_map(|ran| ran.ended?.stopped_at);
        let at = told.fold(stop_at, Timestamp::min);
        let ended_before = self.ending.death.as_ref().is_some_and(|death| death.at < stop_at)
            || self.ending.netns_gone.as_ref().is_some_and(|gone| gone.at < stop_at);
        let ran = self.containers().iter().any(|ran| {
            ran.started_at < at && ran.ended.is_none_or(|ended| ended.stopped_at.is_some() || ended.at >= at)
        });
        let is_older = self.first_at < started.at && started.at <= at && at <= started.at + MOMENTS;
        (is_older && ran && !ended_before).then_some((started, at))
    }
}

impl World {
    /// A runtime's program was run to end the sandbox.
    pub(in crate::engine::world) fn sandbox_stopping(&mut self, ctx: EventContext, id: &ContainerId) {
        if let Some(row) = self.sandboxes.recall_mut(id) {
            row.ending.stopping(ctx.at);
        }
        self.note_last_started(ctx, id);
    }

    /// Keeps which daemon had started last when the runtime began to stop the sandbox: its own row may be forgotten
    /// before a verdict needs it.
    fn note_last_started(&mut self, ctx: EventContext, id: &ContainerId) {
        let is_open = |row: &Sandbox| row.ending.stop_at.is_some() && row.ending.last_started.is_none();
        if !self.sandboxes.recall(id).is_some_and(is_open) {
            return;
        }
        let last_started = self.last_started(ctx.at);
        if let Some(row) = self.sandboxes.recall_mut(id) {
            row.ending.last_started = last_started;
        }
    }

    /// The pause process ended.
    pub(in crate::engine::world) fn sandbox_died(&mut self, ctx: EventContext, id: &ContainerId, end: &End) {
        let by_runtime = end.killer.as_ref().is_some_and(|killer| self.is_of_runtime(killer));
        if let Some(row) = self.sandboxes.recall_mut(id)
            && row.ending.death.is_none()
        {
            row.ending.death = Some(Death { at: ctx.at, end: end.clone(), by_runtime });
            if by_runtime {
                row.ending.stopping(ctx.at);
            }
        }
        self.note_last_started(ctx, id);
    }

    /// Whether a process belongs to a runtime: it or one of its ancestors makes, monitors or ends containers. A process
    /// in a container does not.
    pub(in crate::engine::world) fn is_of_runtime(&self, it: &change::Process) -> bool {
        let start = self.processes.get(it.key).map(|row| row.key).or(Some(it.parent));
        let parent = |key: &TaskKey| self.processes.get(*key).map(|row| row.parent);
        let mut line = std::iter::successors(start, parent).take(ANCESTORS);
        let inside = self.processes.get(it.key).is_some_and(|row| self.is_contained(row));
        let named = |key| self.processes.get(key).is_some_and(|row| argv::ends_containers(&row.comm));
        !inside && (argv::ends_containers(&it.comm) || line.any(named))
    }
}

impl Table {
    /// The OOM killer chose the pause process. The kernel reports this only after the end of the process.
    pub(in crate::engine::world) fn oom_killed(&mut self, ctx: EventContext, id: &ContainerId) {
        let death = self.recall_mut(id).and_then(|row| row.ending.death.as_mut());
        if let Some(death) = death.filter(|it| it.end.signal == Some(SIGKILL) && ctx.at <= it.at + OOM_BEHIND)
        {
            death.end = End { oom: true, killer: None, ..death.end };
            death.by_runtime = false;
        }
    }
}
