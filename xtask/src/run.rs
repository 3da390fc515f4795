//! `cargo xtask run`: from a fresh clone to the live stream of this node.

use crate::build::{self, Profile};
use crate::toolchain;
use crate::{mounts, root};
use anyhow::{Context as _, Result};
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Leave the hooks in the kernel when the run ends, as an installed agent does
    #[arg(long)]
    pin: bool,

    /// Handed to `sandprobe run` as they are
    #[arg(last = true)]
    args: Vec<OsString>,
}

/// Builds the agent as the user, and runs only the agent itself as root.
pub(crate) fn run(args: &Args) -> Result<()> {
    toolchain::ensure()?;
    let agent = build::agent(Profile::Quick)?;
    root::authorize()?;
    let mut command = mounts::agent()?;
    command.arg(&agent).arg("run").args((!args.pin).then_some("--no-pin")).args(&args.args);
    // It replaces this process: the terminal's signals reach it, and its exit status is ours.
    Err(command.exec()).context("cannot start sandprobe")
}
