//! `cargo xtask demo`: runs pods of a private containerd under live hooks, one of which leaks its address, or
//! replays a recording of that.

use crate::arch::Arch;
use crate::build::Profile;
use crate::setup::{self, Level};
use crate::{program, root, workspace};
use anyhow::{Context as _, Result};
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

const RECORDING: &str = "tests/data/recordings/demo.jsonl";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Show the bundled recording instead: no root, no kernel, no containerd
    #[arg(long)]
    replay: bool,
    /// Arguments for the demo, or with --replay for `sandprobe replay`
    #[arg(last = true)]
    args: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.replay {
        return replay(&args.args);
    }
    let mut command = live()?;
    command.args(&args.args);
    Err(command.exec()).with_context(|| format!("cannot start {}", workspace::line(&command)))
}

/// Prints the stream, and the findings unless arguments choose something else.
fn replay(args: &[OsString]) -> Result<()> {
    workspace::run(sandprobe().args(["replay", RECORDING]).args(args))?;
    if !args.is_empty() {
        return Ok(());
    }
    println!("\nWhat is wrong (sandprobe findings --recording {RECORDING}):");
    workspace::run(sandprobe().args(["findings", "--recording", RECORDING]))?;
    println!("\nWhy the address is lost (sandprobe explain leaked_address --recording {RECORDING}):\n");
    workspace::run(sandprobe().args(["explain", "leaked_address", "--recording", RECORDING]))
}

/// Runs the agent without hooks, so that the eBPF toolchain is not needed.
fn sandprobe() -> Command {
    let mut cargo = workspace::cargo();
    cargo.args(["run", "--quiet", "--package", "probe-user", "--no-default-features", "--bin", "sandprobe"]);
    cargo.arg("--");
    cargo
}

fn live() -> Result<Command> {
    setup::ensure(Level::Node)?;
    program::build(Arch::ours()?, Profile::Quick)?;
    root::authorize()?;
    program::as_root("demo", &[])
}
