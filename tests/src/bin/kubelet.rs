//! The kubelet of a node that comes up by itself: as a service of it, and by its right name.

use anyhow::Result;
use tests::{clock, edge};

fn main() -> Result<()> {
    edge::run(clock::boot_ns()?)
}
