//! The small kubelet as a service of a node that boots by itself, with the name `kubelet`.

use anyhow::Result;
use tests::{clock, edge};

fn main() -> Result<()> {
    edge::run(clock::boot_ns()?)
}
