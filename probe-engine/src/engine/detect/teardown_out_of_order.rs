//! **Rule:** something other than the runtime killed the process that holds a sandbox (pause), or the
//! sandbox's network namespace ended, before the runtime had begun to stop the sandbox.
//!
//! Not flagged: a sandbox that the runtime failed to make, and whose namespace it removes; pause that dies
//! before DEL while the runtime stops the sandbox (the usual order); a kill by runc, crun, youki, a shim or a
//! program that these run; an end whose cause no hook saw; a sandbox that ended after records were lost,
//! since the record of the stop may be among them. A kill by the OOM killer names no killer: the task that
//! happened to allocate memory is not to blame. Nor is a kernel thread, which drops a namespace on behalf of
//! others.

use std::{fmt::Write as _, time::Duration};

use super::{DetectContext, Detection, index::Subjects, rule::Rule};
use crate::{
    engine::world::table::sandbox::Sandbox,
    model::{
        finding::{Explain, OutOfOrder, Severity, TeardownOutOfOrder},
        id::ContainerId,
        time::Timestamp,
    },
    words::{escape::escaped, name::signal_number, shell::lines},
};

/// After this time the agent has the records of a stop that was under way, however late they came.
pub(super) const SETTLE: Duration = Duration::from_secs(10);

impl Rule for TeardownOutOfOrder {
    type Subject = ContainerId;
    type Part = Detection;
    const SUBJECTS: Subjects<ContainerId> = Subjects::SANDBOXES;

    fn judge(ctx: &DetectContext<'_>, id: &ContainerId, found: &mut Vec<Detection>) {
        let Some(row) = ctx.world.sandboxes.recall(id) else { return };
        let Some((since, it)) = death(row).or_else(|| netns_gone(ctx, row)) else { return };
        // The record of the runtime's stop may be missing.
        if !row.is_known_until(since) {
            return;
        }
        let verdict = ctx.after(since, SETTLE);
        found.push(Detection {
            pod: Some(row.reported.pod.clone()),
            sandboxes: vec![row.id.clone()],
            ..Detection::new(it, &[row.id.as_str()], Severity::Warning, since, verdict)
        });
    }
}

fn death(row: &Sandbox) -> Option<(Timestamp, TeardownOutOfOrder)> {
    let death = row.ending.death.as_ref().filter(|death| !is_stopping(row, death.at))?;
    let signal = death.end.signal?;
    if death.end.oom {
        let how = OutOfOrder::PauseOutOfMemory;
        return Some((death.at, TeardownOutOfOrder { how, killer: None, signal: Some(signal) }));
    }
    if death.by_runtime {
        return None;
    }
    let killer = death.end.killer.clone()?;
    let how = OutOfOrder::PauseKilled;
    Some((death.at, TeardownOutOfOrder { how, killer: Some(killer), signal: Some(signal) }))
}

fn netns_gone(ctx: &DetectContext<'_>, row: &Sandbox) -> Option<(Timestamp, TeardownOutOfOrder)> {
    let gone = row.ending.netns_gone.as_ref().filter(|gone| !is_stopping(row, gone.at))?;
    // A namespace that is bound to no file ends with its last process. Then the finding is about that
    // process.
    if row.ending.death.as_ref().is_some_and(|death| death.at <= gone.at) || !ctx.is_connected(row) {
        return None;
    }
    // A runtime that fails to make a sandbox removes its namespace.
    if !ctx.was_made(row) {
        return None;
    }
    let how = OutOfOrder::NetnsGone;
    let killer = gone.by.clone().filter(|by| !by.is_kernel_thread());
    Some((gone.at, TeardownOutOfOrder { how, killer, signal: None }))
}

fn is_stopping(row: &Sandbox, at: Timestamp) -> bool {
    row.ending.stop_at.is_some_and(|stop| stop <= at)
}

impl Explain for TeardownOutOfOrder {
    fn summary(&self) -> String {
        let mut text = match self.how {
            OutOfOrder::PauseKilled => "pause killed before the runtime stopped the sandbox".to_owned(),
            OutOfOrder::PauseOutOfMemory => "pause killed by the OOM killer".to_owned(),
            OutOfOrder::NetnsGone => {
                "network namespace gone before the runtime stopped the sandbox".to_owned()
            }
        };
        if let Some(by) = &self.killer {
            _ = write!(text, ", by {}[{}]", escaped(&by.comm), by.key.pid);
        }
        if let Some(number) = self.signal {
            let name = signal_number(number);
            _ = write!(text, " with {}", name.map_or_else(|| number.to_string(), str::to_owned));
        }
        text
    }

    fn cause(&self) -> &'static str {
        match self.how {
            OutOfOrder::PauseKilled => {
                "Something other than the runtime killed the sandbox's pause process before the runtime began to stop \
                 the sandbox. If the network namespace ended with that process, CNI DEL finds no namespace."
            }
            OutOfOrder::PauseOutOfMemory => {
                "Memory had run out, and the kernel's OOM killer killed the sandbox's pause process before the runtime \
                 began to stop the sandbox."
            }
            OutOfOrder::NetnsGone => {
                "The sandbox's network namespace ended before the runtime began to stop the sandbox: something else \
                 removed what kept it. The CNI DEL that follows has an empty CNI_NETNS."
            }
        }
    }

    fn repair(&self, _sandboxes: &[ContainerId], _runtimes: &[String]) -> Vec<String> {
        lines(&[
            "# The runtime cleans up the rest of this sandbox. Find out why the killer named above did it, and look",
            "# whether the sandbox's address leaked:",
            "sandprobe findings --kind leaked_address",
        ])
    }
}
