//! The Debian package and the RPM, which the crate `packages` makes: it is built only here, because its libraries are large.

use super::{Arch, Release};
use crate::workspace;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Writes both to this folder, and gives their paths.
pub(super) fn of(
    arch: Arch,
    program: &Path,
    papers: &[(String, Vec<u8>)],
    sbom: &[u8],
    release: &Release,
    to: &Path,
) -> Result<Vec<PathBuf>> {
    let parts = tempfile::tempdir().context("cannot make a temporary folder")?;
    let folder = parts.path().join("papers");
    for (path, bytes) in papers {
        put(&folder.join(path), bytes)?;
    }
    let bill = parts.path().join("sbom.json");
    put(&bill, sbom)?;
    let mut cargo = workspace::cargo();
    cargo.args(["run", "--quiet", "--locked", "--package", "packages", "--", "--arch", arch.name()]);
    cargo.arg("--program").arg(program).arg("--papers").arg(&folder).arg("--sbom").arg(&bill);
    cargo.args(["--made", &release.made.to_string(), "--maintainer", &release.origin.maintainer]);
    cargo.args(release.origin.home.iter().flat_map(|home| ["--home", home]));
    let made = workspace::output(cargo.arg("--to").arg(to))?;
    Ok(made.lines().map(PathBuf::from).collect())
}

fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().context("a file without a folder")?;
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, bytes))
        .with_context(|| format!("cannot write {}", path.display()))
}
