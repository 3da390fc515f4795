//! The probe's clock, and polling with a deadline.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use nix::time::{ClockId, clock_gettime};

/// Returns the time of `CLOCK_BOOTTIME` in nanoseconds. It is the clock of `bpf_ktime_get_boot_ns`, so a test
/// can compare its own times with the kernel's.
pub fn boot_ns() -> Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME)?;
    let nanoseconds = i128::from(now.tv_sec()) * 1_000_000_000 + i128::from(now.tv_nsec());
    Ok(u64::try_from(nanoseconds)?)
}

/// Calls `ready` until it returns a value, at most for `limit`. `what` names the condition in the error.
///
/// Only for conditions without a notification: a socket that a daemon opens, or a status behind a request.
pub fn poll<T>(what: &str, limit: Duration, mut ready: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    // Short enough to add nothing to a test's time. Long enough to leave the two CPUs to the work.
    const PAUSE: Duration = Duration::from_millis(10);
    let deadline = Instant::now() + limit;
    loop {
        if let Some(answer) = ready()? {
            return Ok(answer);
        }
        if Instant::now() >= deadline {
            bail!("{what}: not within {} s", limit.as_secs());
        }
        std::thread::sleep(PAUSE);
    }
}
