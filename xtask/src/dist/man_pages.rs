//! Makes the manual and the completions by running the program.

use super::{Arch, binary, files};
use crate::workspace;
use anyhow::{Context as _, Result};
use std::path::Path;

/// Returns the files by their paths in the archive.
pub(super) fn of(arch: Arch, program: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let dir = tempfile::tempdir().context("cannot make a temporary folder")?;
    workspace::run(binary::command(arch, program).args(["man", "--dir"]).arg(dir.path()))?;
    let pages = files(dir.path())?;
    let mut papers: Vec<_> = pages.into_iter().map(|(name, bytes)| (format!("man/{name}"), bytes)).collect();
    for (shell, name) in [("bash", "sandprobe"), ("fish", "sandprobe.fish"), ("zsh", "_sandprobe")] {
        let script = workspace::output(binary::command(arch, program).args(["completions", shell]))?;
        papers.push((format!("completions/{shell}/{name}"), format!("{script}\n").into_bytes()));
    }
    Ok(papers)
}
