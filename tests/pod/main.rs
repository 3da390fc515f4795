//! Tests with real pods of a real containerd: this machine's private one, or a VM's. They need root:
//! `cargo xtask test`.

mod deployed;
mod harness;
mod life;
mod listening;
mod many;
mod page;
mod phase;
mod reboot;
mod recovery;
mod release;
mod storm;
mod story;
mod told;
mod unit;
mod verdict;
mod watch;

use std::time::Duration;

/// For a container to end, on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(120);
