//! The folder of the programs that the tests and VMs start. Every VM of an architecture has it first in PATH.

use crate::arch::Arch;
use crate::workspace;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn path(arch: Arch) -> Result<PathBuf> {
    let bin = workspace::target_dir().join("vm").join(arch.name_of("bin"));
    fs::create_dir_all(&bin).with_context(|| format!("cannot make {}", bin.display()))?;
    Ok(bin)
}

/// Puts a static program into the folder atomically, because VMs may be running.
pub(crate) fn add(arch: Arch, name: &str, program: &Path) -> Result<()> {
    put(program, &path(arch)?.join(name))
}

/// Copies a program, so that it exists at its place only if it is complete.
pub(crate) fn put(program: &Path, place: &Path) -> Result<()> {
    let part = place.with_extension("part");
    fs::copy(program, &part).with_context(|| format!("cannot copy {}", program.display()))?;
    fs::rename(&part, place).with_context(|| format!("cannot write {}", place.display()))
}
