//! `cargo xtask build`: the static agent, with its eBPF object inside.

use crate::setup::{self, Level};
use crate::workspace;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::PathBuf;

#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Build it fast rather than small
    #[arg(long)]
    debug: bool,
    /// Build for this target instead of this machine's own with musl
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    setup::ensure(Level::Build)?;
    let path = agent(args)?;
    let bytes = fs::metadata(&path)?.len();
    println!("{} ({}.{} MB)", path.display(), bytes / 1_000_000, bytes / 100_000 % 10);
    Ok(())
}

/// The place of the built agent.
pub(crate) fn agent_path() -> PathBuf {
    workspace::target_dir().join("dist/sandprobe")
}

/// Builds the agent and puts it at `target/dist/sandprobe`.
pub(crate) fn agent(args: &Args) -> Result<PathBuf> {
    let target = args.target.clone().unwrap_or_else(workspace::static_target);
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--package", "probe-user", "--bin", "sandprobe", "--target", &target]);
    if !args.debug {
        cargo.arg("--release");
    }
    let built = workspace::executables(&mut cargo)?
        .into_iter()
        .find(|built| built.name == "sandprobe")
        .context("cargo built no sandprobe")?;

    let path = agent_path();
    fs::create_dir_all(workspace::target_dir().join("dist"))?;
    // A new file in the old one's place, whole at once: the old one may be running.
    let fresh = path.with_extension("new");
    fs::copy(&built.path, &fresh).with_context(|| format!("cannot copy {}", built.path.display()))?;
    fs::rename(&fresh, &path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
