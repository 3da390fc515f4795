//! **Rule:** the process that holds a sandbox was killed, or its network namespace went, while the runtime had not begun
//! to stop the sandbox, and by somebody other than the runtime.
//!
//! Not flagged: pause dying within a stop of the runtime's, before DEL (the usual order); a kill by runc, crun, youki, a
//! shim or what they run; an end whose cause nobody saw; anything that was there while records were lost, since the
//! stop may have been among them. An end for want of memory is told as that, not as the doing of the task that
//! happened to allocate.

use std::time::Duration;

use super::{DetectContext, Detection};
use crate::{
    engine::world::sandbox::Sandbox,
    model::{
        finding::{Key, Kind, OutOfOrder, Severity},
        time::Timestamp,
    },
};

/// By then a stop that was under way has shown itself, however late its records came.
pub(super) const SETTLE: Duration = Duration::from_secs(10);

pub(super) fn detect(ctx: &DetectContext<'_>, found: &mut Vec<Detection>) {
    for row in ctx.world.sandboxes.all().filter(|row| !row.gapped) {
        let Some((since, kind)) = death(row).or_else(|| netns_gone(ctx, row)) else { continue };
        found.push(Detection {
            key: Key::new(kind.into_str(), &[row.id.as_str()]),
            kind,
            severity: Severity::Warning,
            since,
            pod: Some(row.told.pod.clone()),
            sandboxes: vec![row.id.clone()],
            gapped: false,
            standing: ctx.after(since, SETTLE),
        });
    }
}

fn death(row: &Sandbox) -> Option<(Timestamp, Kind)> {
    let death = row.ending.death.as_ref().filter(|death| !is_stopping(row, death.at))?;
    let signal = death.end.signal?;
    if death.end.oom {
        let how = OutOfOrder::PauseOutOfMemory;
        return Some((death.at, Kind::TeardownOutOfOrder { how, killer: None, signal: Some(signal) }));
    }
    let killer = death.end.killer.clone().filter(|_| !death.by_runtime)?;
    let how = OutOfOrder::PauseKilled;
    Some((death.at, Kind::TeardownOutOfOrder { how, killer: Some(killer), signal: Some(signal) }))
}

fn netns_gone(ctx: &DetectContext<'_>, row: &Sandbox) -> Option<(Timestamp, Kind)> {
    let gone = row.ending.netns_gone.as_ref().filter(|gone| !is_stopping(row, gone.at))?;
    // With its last process goes a namespace that is bound to no file: that is the process's end.
    if row.ending.death.as_ref().is_some_and(|death| death.at <= gone.at) || !ctx.is_connected(row) {
        return None;
    }
    let how = OutOfOrder::NetnsGone;
    Some((gone.at, Kind::TeardownOutOfOrder { how, killer: gone.by.clone(), signal: None }))
}

fn is_stopping(row: &Sandbox, at: Timestamp) -> bool {
    row.ending.stop_at.is_some_and(|stop| stop <= at)
}
