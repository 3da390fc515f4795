//! The capabilities of a process's threads, from `/proc`.

use std::fs;

use anyhow::{Context as _, Result};

/// This set of capabilities of each thread, by the bits of linux/capability.h. `set` is its name in
/// `/proc/PID/task/TID/status`. A thread that ends meanwhile is left out.
pub fn capabilities(pid: u32, set: &str) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let Ok(status) = fs::read_to_string(entry?.path().join("status")) else { continue };
        let value = status.lines().find_map(|line| line.strip_prefix(set)?.strip_prefix(':'));
        found.push(u64::from_str_radix(value.with_context(|| format!("no {set}"))?.trim(), 16)?);
    }
    Ok(found)
}
