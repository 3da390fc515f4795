//! Tests with real pods on a real containerd: this machine's private one, or a VM's. They need root: `cargo
//! xtask test`.

mod belief;
mod cluster;
mod deployed;
mod events;
mod flat;
mod full_ring;
mod harness;
mod life;
mod listening;
mod many;
mod ordinary;
mod page;
mod phase;
mod pull;
mod reboot;
mod recovery;
mod release;
mod restart;
mod storm;
mod story;
mod succession;
mod unit;
mod verdict;
mod watch;

use std::time::Duration;

/// The limit for a container's end on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
