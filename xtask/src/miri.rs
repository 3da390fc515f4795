//! `cargo xtask miri`: runs tests of the pure parts in Miri, which sees undefined behaviour.
//!
//! Miri is about a hundred times slower than the machine. So it runs only the tests of [`MODULES`] of
//! probe-engine: the modules that handle a ring's bytes and the engine's indexes. Stories and property tests
//! drive whole engines, and a single one can take minutes. Tests of many random inputs are left out for the
//! same reason.
//!
//! The pure crates have no unsafe code of their own (`forbid(unsafe_code)`); this checks also the libraries
//! with which they read a ring's bytes. In the agent, only `memcmp` needs neither kernel nor C library.

use crate::workspace;
use anyhow::Result;
use std::process::{Command, Stdio};

/// Only nightly toolchains have Miri. The project keeps its pinned one.
const TOOLCHAIN: &str = "+nightly";
const MODULES: [&str; 2] = ["engine::decode", "engine::grouped"];
/// Tests of many random inputs.
const RANDOM: &str = "no_bytes";

pub(crate) fn run() -> Result<()> {
    ensure_miri()?;
    workspace::run(&mut test(&["probe-common", "--all-features"]))?;
    let mut engine = test(&["probe-engine", "--lib"]);
    workspace::run(engine.args(["--", "--skip", RANDOM]).args(MODULES))?;
    let mut agent = test(&["probe-user", "--no-default-features", "--bin", "sandprobe"]);
    workspace::run(agent.args(["--", "memcmp"]))
}

fn test(package: &[&str]) -> Command {
    let mut miri = miri();
    miri.args(["test", "--target-dir"]).arg(workspace::target_dir().join("miri"));
    miri.arg("--package").args(package);
    miri
}

fn ensure_miri() -> Result<()> {
    let is_there = miri().arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if is_there.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    println!("setup: adding Miri, with a nightly toolchain of its own");
    let mut rustup = Command::new("rustup");
    rustup.args(["toolchain", "install", "nightly", "--profile", "minimal", "--component", "miri,rust-src"]);
    workspace::run(&mut rustup)
}

/// Runs Miri through rustup, because the cargo that runs this program belongs to the pinned toolchain.
fn miri() -> Command {
    let mut miri = Command::new("cargo");
    miri.current_dir(workspace::root()).env("PATH", workspace::path());
    // rustup sets these for the programs that it starts, such as this one.
    miri.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").args([TOOLCHAIN, "miri"]);
    miri
}
