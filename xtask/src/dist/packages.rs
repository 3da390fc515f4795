//! The Debian package and the RPM. The crate `packages` makes them; it is built only here, because its
//! libraries are large.

use super::archive::{Entry, tar};
use super::{Arch, Release};
use crate::workspace;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Writes both to this folder, and returns their paths.
pub(super) fn of(
    arch: Arch,
    program: &Path,
    papers: &[(String, Vec<u8>)],
    sbom: &[u8],
    release: &Release,
    to: &Path,
) -> Result<Vec<PathBuf>> {
    let parts = tempfile::tempdir().context("cannot make a temporary folder")?;
    let entries: Vec<_> =
        papers.iter().map(|(path, bytes)| Entry { path: path.clone(), mode: 0o644, bytes }).collect();
    let tarred = parts.path().join("papers.tar");
    let bill = parts.path().join("sbom.json");
    fs::write(&tarred, tar(&entries, release.made)?).context("cannot write papers.tar")?;
    fs::write(&bill, sbom).context("cannot write sbom.json")?;
    let mut cargo = workspace::cargo();
    cargo.args(["run", "--quiet", "--locked", "--package", "packages", "--", "--arch", arch.name()]);
    cargo.arg("--program").arg(program).arg("--papers").arg(&tarred).arg("--sbom").arg(&bill);
    cargo.args(["--made", &release.made.to_string(), "--maintainer", &release.origin.maintainer]);
    cargo.args(release.origin.home.iter().flat_map(|home| ["--home", home]));
    let made = workspace::output(cargo.arg("--to").arg(to))?;
    Ok(made.lines().map(PathBuf::from).collect())
}
