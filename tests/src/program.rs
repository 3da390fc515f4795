//! The programs that tests start: beside the test itself in a VM, in cargo's folders here.

use std::{
    env,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

/// The program of this name that was built together with the running one.
pub fn path(name: &str) -> Result<PathBuf> {
    let own = env::current_exe().context("cannot tell where this program is")?;
    // Cargo puts test programs in a folder below that of the others.
    let folders = own.ancestors().skip(1).take(2);
    let found = folders.map(|folder| folder.join(name)).find(|path| path.is_file());
    found.with_context(|| format!("there is no {name} beside {}", own.display()))
}

/// The program `name` by another name, which is what the kernel then knows it by.
pub fn alias(name: &str, folder: &Path, other: &str) -> Result<PathBuf> {
    let link = folder.join(other);
    symlink(path(name)?, &link).with_context(|| format!("make {}", link.display()))?;
    Ok(link)
}
