//! How a sandbox's end was observed: its stop, its death, and the drop of its namespace.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    engine::{
        timeline::OOM_BEHIND,
        world::{
            EventContext,
            table::sandbox::{Ending, Sandbox, rows::Table},
        },
    },
    model::{
        change::{self, End},
        fact::SIGKILL,
        id::ContainerId,
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
pub(crate) const MOMENTS: Duration = Duration::from_secs(2 * 60);

impl Ending {
    pub(in crate::engine::world) fn stopping(&mut self, at: Timestamp) {
        self.stop_at = Some(self.stop_at.map_or(at, |stop| stop.min(at)));
    }

    pub(in crate::engine::world) fn netns_goes(&mut self, at: Timestamp, by: Option<change::Process>) {
        self.netns_gone.get_or_insert(NetnsGone { at, by });
    }
}

impl Sandbox {
    /// The daemon that had started moments before the runtime began to stop the sandbox, and when that was,
    /// if the sandbox was older than the daemon's start and nothing was wrong in it: its pause lived, its
    /// namespace existed, and one of its containers ran.
    pub(crate) fn replaced_by(&self) -> Option<(&LastStarted, Timestamp)> {
        if !self.is_stopped() {
            return None;
        }
        let stop_at = self.ending.stop_at?;
        let started = self.ending.last_started.as_ref()?;
        let signals = self.containers().iter().filter_map(|ran| ran.ended?.stopped_at);
        let at = signals.fold(stop_at, Timestamp::min);
        let ended_before = self.ending.death.as_ref().is_some_and(|death| death.at < stop_at)
            || self.ending.netns_gone.as_ref().is_some_and(|gone| gone.at < stop_at);
        let ran = self.containers().iter().any(|ran| {
            ran.started_at < at && ran.ended.is_none_or(|ended| ended.stopped_at.is_some() || ended.at >= at)
        });
        let is_older = self.first_at < started.at && started.at <= at && at <= started.at + MOMENTS;
        (is_older && ran && !ended_before).then_some((started, at))
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
