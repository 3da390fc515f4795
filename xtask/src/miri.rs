//! `cargo xtask miri`: runs tests of the pure parts in Miri, which sees undefined behaviour.
//!
//! Miri is some hundred times slower than the machine. So of probe-engine only the tests of [`MODULES`] are run: those that
//! a ring's bytes and the engine's indexes go through. Its stories and properties drive whole engines, and a single one can
//! take minutes here. Tests of many random inputs are left out for the same reason.
//!
//! The pure crates have no unsafe code of their own (`forbid(unsafe_code)`); what runs here is also that of the libraries by which
//! they read a ring's bytes. Of the agent only `memcmp` needs neither kernel nor C library.

use crate::workspace;
use anyhow::Result;
use std::process::{Command, Stdio};

/// Miri is a part of nightly toolchains alone. The project stays on its own.
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

/// Through rustup: the cargo that runs this program is of the pinned toolchain.
fn miri() -> Command {
    let mut miri = Command::new("cargo");
    miri.current_dir(workspace::root()).env("PATH", workspace::path());
    // Set by rustup for the programs that it starts, this one too.
    miri.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").args([TOOLCHAIN, "miri"]);
    miri
}
