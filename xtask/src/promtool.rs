//! promtool, by which alerts and metrics are judged: out of Debian's package prometheus, of which nothing else is wanted
//! here; installed, it would start a server.

use crate::package;
use crate::workspace;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const PACKAGE: &str = "prometheus";
/// Where it is in the package.
const PROGRAM: &str = "usr/bin/promtool";

pub(crate) fn ensure() -> Result<()> {
    let place = place();
    if place.is_file() || workspace::which("promtool").is_some() {
        return Ok(());
    }
    anyhow::ensure!(
        workspace::which("apt-get").is_some() && workspace::which("dpkg-deb").is_some(),
        "promtool is missing: install it from this system's package of Prometheus, without starting that, and run this \
         again"
    );
    println!("setup: fetching {PACKAGE} with apt-get, for promtool alone");
    let tools = place.parent().context("target/tools is a folder")?;
    fs::create_dir_all(tools).with_context(|| format!("cannot make {}", tools.display()))?;
    let made = tempfile::Builder::new().prefix(PACKAGE).tempdir_in(tools)?;
    let download = || {
        let mut apt = Command::new("apt-get");
        apt.args(["-qq", "download", PACKAGE]).current_dir(made.path());
        workspace::output(&mut apt).map(drop)
    };
    if download().is_err() {
        // The lists may be old, or there may be none yet.
        println!("setup: updating apt's lists first");
        package::update()?;
        download()?;
    }
    let files = fs::read_dir(made.path())?.filter_map(Result::ok).map(|entry| entry.path());
    let package = { files }.find(|path| path.extension().is_some_and(|it| it == "deb"));
    let package = package.context("apt-get left no package")?;
    workspace::output(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(made.path()))?;
    // It is there when it is there whole.
    fs::rename(made.path().join(PROGRAM), &place).with_context(|| format!("cannot make {}", place.display()))
}

/// As in the tests.
fn place() -> PathBuf {
    workspace::target_dir().join("tools/promtool")
}
