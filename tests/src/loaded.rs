//! The eBPF programs in the kernel.

use std::{collections::BTreeSet, io};

use anyhow::Result;
use aya::programs::{ProgramError, loaded_programs};

use crate::{clock, machine};

/// Returns the ids of all programs. One that is freed after the kernel gave its id is none of them.
pub fn programs() -> Result<BTreeSet<u32>> {
    let is_gone = |found: &Result<_, ProgramError>| match found {
        Err(ProgramError::SyscallError(error)) => error.io_error.kind() == io::ErrorKind::NotFound,
        Ok(_) | Err(_) => false,
    };
    let all = loaded_programs().filter(|found| !is_gone(found));
    Ok(all.map(|found| found.map(|program| program.id())).collect::<Result<_, _>>()?)
}

/// Waits until none of these programs is left. The kernel frees programs behind a grace period.
pub fn until_gone(own: &BTreeSet<u32>) -> Result<()> {
    let what = format!("a kernel without the programs {own:?}");
    clock::poll(&what, machine::patience(), || Ok(programs()?.is_disjoint(own).then_some(())))
}
