//! Becomes root for the one step that needs it.

use crate::workspace;
use anyhow::{Result, ensure};
use std::ffi::OsStr;
use std::process::Command;

pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Checks that this process can become root, and asks for the password now rather than later.
pub(crate) fn authorize() -> Result<()> {
    if is_root() {
        return Ok(());
    }
    ensure!(
        workspace::which("sudo").is_some(),
        "this step needs root and there is no sudo here: run it as root"
    );
    workspace::run(Command::new("sudo").arg("--validate"))
}

/// Returns a command that runs as root: directly if this process is root, through `sudo` otherwise.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    if is_root() {
        return Command::new(program);
    }
    let mut sudo = Command::new("sudo");
    sudo.arg("--").arg(program);
    sudo
}
