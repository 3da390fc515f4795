//! The eBPF programs in the kernel.

use std::collections::BTreeSet;

use anyhow::Result;
use aya::programs::{ProgramInfo, loaded_programs};

use crate::{clock, machine};

/// The ids of all programs.
pub fn programs() -> Result<BTreeSet<u32>> {
    let all: Result<Vec<_>, _> = loaded_programs().collect();
    Ok(all?.iter().map(ProgramInfo::id).collect())
}

/// Waits until none of these programs is left. The kernel frees programs behind a grace period.
pub fn until_gone(own: &BTreeSet<u32>) -> Result<()> {
    let what = format!("a kernel without the programs {own:?}");
    clock::poll(&what, machine::patience(), || Ok(programs()?.is_disjoint(own).then_some(())))
}
