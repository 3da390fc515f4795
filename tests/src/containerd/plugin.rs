//! A directory with the installed CNI plugins and the tests' own one, for runtimes that use one directory only.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::{beside_this_program, sweep::names};
use crate::keyed;

/// Makes links to the installed plugins and to the tests' own one.
pub(super) fn gather(installed: &Path, into: PathBuf) -> Result<PathBuf> {
    fs::create_dir_all(&into).with_context(|| format!("make {}", into.display()))?;
    for name in names(installed)? {
        link(&installed.join(&name), &into.join(&name))?;
    }
    link(&beside_this_program(keyed::TYPE)?, &into.join(keyed::TYPE))?;
    Ok(into)
}

fn link(to: &Path, at: &Path) -> Result<()> {
    symlink(to, at).with_context(|| format!("make {}", at.display()))
}
