//! Runs of hooks that the kernel itself skipped.
//!
//! Where a hook can be preempted (Linux 7 always, others as they were built), the kernel does not run the program for
//! another task on the same processor meanwhile, and counts that. Under emulation, where a program takes long, that is
//! no rare thing. What happened in such a run nobody can tell; a test that asks for everything asks again.

use std::{
    collections::BTreeMap,
    fs, process,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use anyhow::Result;

/// How often a test may be begun. Each time it should do half as much.
const ATTEMPTS: u32 = 6;

/// How long a thing may take once a run is told to be skipped: it may have been the one that would have told of it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Of hooks that are detached by now, this process's own and those of agents that it started.
static DETACHED: AtomicU64 = AtomicU64::new(0);

/// Does `work` until it succeeds, or fails though no run was skipped. It is told how often it was begun before.
pub fn retry(mut work: impl FnMut(u32) -> Result<()>) -> Result<()> {
    for attempt in 1.. {
        let before = all()?;
        let Err(error) = work(attempt - 1) else { break };
        let skipped = all()? - before;
        if skipped == 0 || attempt == ATTEMPTS {
            return Err(
                error.context(format!("in attempt {attempt}, of which the kernel skipped {skipped} runs"))
            );
        }
    }
    Ok(())
}

fn all() -> Result<u64> {
    Ok(DETACHED.load(Ordering::SeqCst) + of_process(process::id())?)
}

/// Counts what is about to be detached.
pub(crate) fn detached(count: u64) {
    DETACHED.fetch_add(count, Ordering::SeqCst);
}

/// As the kernel says it of all programs that a process holds (Linux 5.12 and later).
pub(crate) fn of_process(pid: u32) -> Result<u64> {
    let mut programs: BTreeMap<u64, u64> = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        // One that was closed meanwhile is no program of ours.
        let Ok(text) = fs::read_to_string(entry?.path()) else { continue };
        let number = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        if let (Some(id), Some(count)) = (number("prog_id:"), number("recursion_misses:")) {
            programs.insert(id, count);
        }
    }
    Ok(programs.into_values().sum())
}
