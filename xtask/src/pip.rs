//! The installer of Python's packages, for tools that Debian does not have.

use crate::package::{self, Need};
use crate::workspace;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PIP: &[Need] = &[Need::any(&["pip", "pip3"], "python3-pip")];

/// Returns the program, and installs it if it is missing.
pub(crate) fn ensure() -> Result<PathBuf> {
    package::ensure(PIP)?;
    workspace::which("pip").or_else(|| workspace::which("pip3")).context("there is no pip")
}

/// Unpacks the packages of a list into a new folder, without their dependencies. The list has versions and
/// sums.
pub(crate) fn install(list: &str, dir: &Path) -> Result<()> {
    let pip = ensure()?;
    let tools = dir.parent().context("the folder has no parent")?;
    fs::create_dir_all(tools).with_context(|| format!("cannot make {}", tools.display()))?;
    let fresh = tempfile::tempdir_in(tools).context("cannot make a temporary folder")?;
    let requirements = fresh.path().join("requirements.txt");
    fs::write(&requirements, list).context("cannot write requirements.txt")?;
    let unpacked = fresh.path().join("unpacked");
    let mut install = Command::new(pip);
    install.args(["install", "--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:", "--target"]);
    workspace::output(install.arg(&unpacked).arg("--requirement").arg(&requirements))?;
    // Renamed when complete, so that the folder exists only if it is complete.
    fs::rename(&unpacked, dir).with_context(|| format!("cannot make {}", dir.display()))
}
