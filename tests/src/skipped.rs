//! Hook runs that the kernel skipped.
//!
//! Where a hook can be preempted (always in Linux 7, in others by their build), the kernel skips the program
//! for another task on the same CPU and counts that. Under emulation programs are slow, so that happens
//! often. The event of a skipped run is lost. A test that needs every event repeats its work.

use std::{
    collections::BTreeMap,
    fs, process,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use anyhow::Result;
use serde_json::Value;

/// The value of `gap.what` for them.
pub const SKIPPED: &str = "skipped_run";

/// How often a test may repeat its work. Each attempt should do half the work of the one before.
const ATTEMPTS: u32 = 6;

/// How long a wait may last after a skipped run is reported, because the awaited event may be that run's.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// The skipped runs of hooks that are already detached: those of this process and of the agents that it
/// started.
static DETACHED: AtomicU64 = AtomicU64::new(0);

/// Repeats `work` until it succeeds, or fails although no run was skipped. `work` gets the number of attempts
/// before.
pub fn retry(mut work: impl FnMut(u32) -> Result<()>) -> Result<()> {
    for attempt in 1.. {
        let before = all()?;
        let Err(error) = work(attempt - 1) else { break };
        let skipped = all()? - before;
        if skipped == 0 || attempt == ATTEMPTS {
            return Err(error.context(format!(
                "in attempt {attempt}, during which the kernel skipped {skipped} hook runs"
            )));
        }
    }
    Ok(())
}

/// Whether an agent reported such runs.
#[must_use]
pub fn is_told(events: &[Value]) -> bool {
    events.iter().any(|event| event["gap"]["what"] == SKIPPED)
}

fn all() -> Result<u64> {
    Ok(DETACHED.load(Ordering::SeqCst) + of_process(process::id())?)
}

/// Adds the skipped runs of hooks that are about to be detached.
pub(crate) fn detached(count: u64) {
    DETACHED.fetch_add(count, Ordering::SeqCst);
}

/// Returns the skipped runs of all programs that a process holds, as the kernel counts them (Linux 5.12 and
/// later).
pub(crate) fn of_process(pid: u32) -> Result<u64> {
    let mut programs: BTreeMap<u64, u64> = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        // The file was closed meanwhile.
        let Ok(text) = fs::read_to_string(entry?.path()) else { continue };
        let number = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        if let (Some(id), Some(count)) = (number("prog_id:"), number("recursion_misses:")) {
            programs.insert(id, count);
        }
    }
    Ok(programs.into_values().sum())
}
