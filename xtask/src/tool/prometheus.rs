//! Debian's package prometheus: promtool, which checks alerts and metrics, and Prometheus itself, which
//! scrapes the agent in a test. The package is unpacked, not installed, because that would start a server.

use crate::arch::Arch;
use crate::{bin_dir, mirrors, workspace};
use anyhow::{Context as _, Result};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const PACKAGE: &str = "prometheus";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Program {
    Promtool,
    /// Also for the VMs: it needs only a C library that is not newer than theirs.
    Prometheus,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Self::Promtool => "promtool",
            Self::Prometheus => "prometheus",
        }
    }

    /// Returns the path that the tests use.
    fn place(self) -> Result<PathBuf> {
        match self {
            Self::Promtool => Ok(workspace::target_dir().join("tools").join(self.name())),
            Self::Prometheus => Ok(bin_dir::path(Arch::ours()?)?.join(self.name())),
        }
    }

    fn is_there(self) -> Result<bool> {
        let installed = self == Self::Promtool && workspace::which(self.name()).is_some();
        Ok(installed || self.place()?.is_file())
    }
}

/// Fetches both programs if they are missing.
pub(crate) fn ensure() -> Result<()> {
    let mut missing = Vec::new();
    for program in [Program::Promtool, Program::Prometheus] {
        match workspace::which(program.name()) {
            _ if program.is_there()? => {}
            Some(own) => bin_dir::put(&own, &program.place()?)?,
            None => missing.push(program),
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    anyhow::ensure!(
        workspace::which("apt-get").is_some() && workspace::which("dpkg-deb").is_some(),
        "prometheus and promtool are missing: install them from this system's package of Prometheus, without starting \
         that, and run this again"
    );
    println!("setup: fetching {PACKAGE} with apt-get, for its programs alone");
    let tools = workspace::target_dir().join("tools");
    fs::create_dir_all(&tools).with_context(|| format!("cannot make {}", tools.display()))?;
    let made = tempfile::Builder::new().prefix(PACKAGE).tempdir_in(&tools)?;
    let download = || {
        let mut apt = Command::new("apt-get");
        apt.args(["-qq", "download", PACKAGE]).current_dir(made.path());
        workspace::output(&mut apt).map(drop)
    };
    if download().is_err() {
        // The lists may be old, or there may be none yet.
        println!("setup: updating apt's lists first");
        mirrors::update()?;
        download()?;
    }
    let files = fs::read_dir(made.path())?.filter_map(Result::ok).map(|entry| entry.path());
    let package = { files }.find(|path| path.extension().is_some_and(|it| it == "deb"));
    let package = package.context("apt-get left no package")?;
    workspace::output(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(made.path()))?;
    let programs = made.path().join("usr/bin");
    missing
        .into_iter()
        .try_for_each(|program| bin_dir::put(&programs.join(program.name()), &program.place()?))
}
