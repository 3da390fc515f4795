//! The installer of Python's packages, for tools that Debian does not have.

use crate::package::{self, Need};
use crate::workspace;
use anyhow::{Context as _, Result};
use std::path::PathBuf;

const PIP: &[Need] = &[Need::any(&["pip", "pip3"], "python3-pip")];

/// The program, which is installed if it is missing.
pub(crate) fn ensure() -> Result<PathBuf> {
    package::ensure(PIP)?;
    workspace::which("pip").or_else(|| workspace::which("pip3")).context("there is no pip")
}
