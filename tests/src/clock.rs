//! Time as the probe counts it, and the deadlines of everything that waits.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use nix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_BOOTTIME`: the clock of `bpf_ktime_get_boot_ns`, so a test's own times and the
/// kernel's can be compared.
pub fn boot_ns() -> Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME)?;
    let nanoseconds = i128::from(now.tv_sec()) * 1_000_000_000 + i128::from(now.tv_nsec());
    Ok(u64::try_from(nanoseconds)?)
}

/// Asks `ready` until it gives an answer, at most for `limit`; `what` names the wish in the error.
///
/// For things that announce themselves to nobody: a socket that a daemon opens, a status behind a request.
pub fn poll<T>(what: &str, limit: Duration, mut ready: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    // Short enough to add nothing to a test's time, long enough to leave the two processors to the work.
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
