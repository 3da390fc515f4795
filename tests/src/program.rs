//! The programs that tests start. In a VM they are beside the test, otherwise in cargo's target folder.

use std::{
    env, iter,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

/// Returns the program of this name that was built together with the running one.
pub fn path(name: &str) -> Result<PathBuf> {
    let own = env::current_exe().context("find the running program")?;
    // Cargo puts test programs in a folder below the one of other programs.
    let folders = own.ancestors().skip(1).take(2);
    let found = folders.map(|folder| folder.join(name)).find(|path| path.is_file());
    found.with_context(|| format!("there is no {name} beside {}", own.display()))
}

/// Makes a link to a program under another name. The kernel then knows the program by that name.
pub fn alias(name: &str, folder: &Path, other: &str) -> Result<PathBuf> {
    let link = folder.join(other);
    symlink(path(name)?, &link).with_context(|| format!("make {}", link.display()))?;
    Ok(link)
}

/// Returns the shipped program. It is beside this test where xtask gathered everything, and otherwise where
/// `cargo xtask build` puts it.
pub fn agent() -> Result<PathBuf> {
    let own = env::current_exe()?;
    let gathered = own.with_file_name("sandprobe");
    // Cargo's target folder is one level higher if a target is named.
    let folders = own.ancestors().skip(3).take(2);
    let built = folders.map(|folder| folder.join("dist/sandprobe"));
    let found = iter::once(gathered).chain(built).find(|path| path.is_file());
    found.context("there is no sandprobe to test: cargo xtask build")
}
