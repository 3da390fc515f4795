//! `cargo xtask build`: the static agent, with its eBPF object inside.

use crate::building;
use crate::toolchain;
use crate::workspace;
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// The largest size of a release. The writer of Parquet takes 1 MB of it.
const MAX_BYTES: u64 = 17_500_000;

/// Returns the flags of rustc for a release, in addition to its profile. They replace `RUSTFLAGS`, so that a
/// release is the same everywhere.
pub(crate) fn release_flags() -> Vec<String> {
    let script = workspace::root().join("xtask/src/build/no-unwind-tables.ld");
    vec![
        // Packs the relocations that are applied at the start (`DT_RELR`): 1.2 MB less.
        "-Clink-arg=-Wl,-z,pack-relative-relocs".to_owned(),
        // 2.3 MB less.
        format!("-Clink-arg=-Wl,-T,{}", script.display()),
    ]
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build the program that `run` and the tests start, which is larger and slower, in a third of the time
    #[arg(long)]
    quick: bool,
    /// Build for this target instead of this machine's own with musl
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
}

/// How the agent is compiled. Each passes the same tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Small and fast: what is released and measured.
    Release,
    /// Built in a third of the time: for those who try the agent or test a change.
    Quick,
}

impl Profile {
    /// Returns the name in Cargo.toml.
    const fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Quick => "quick",
        }
    }

    /// Returns the folder of the built agent, below the target folder.
    const fn folder(self) -> &'static str {
        match self {
            Self::Release => "dist",
            Self::Quick => "quick",
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    toolchain::ensure()?;
    let profile = if args.quick { Profile::Quick } else { Profile::Release };
    let path = agent_for(profile, args.target.as_deref())?;
    let bytes = fs::metadata(&path)?.len();
    println!("{} ({}.{} MB)", path.display(), bytes / 1_000_000, bytes / 100_000 % 10);
    Ok(())
}

/// Returns the path of the built agent.
pub(crate) fn agent_path(profile: Profile) -> PathBuf {
    workspace::target_dir().join(profile.folder()).join("sandprobe")
}

/// Builds the agent for this machine, and puts it at [`agent_path`].
pub(crate) fn agent(profile: Profile) -> Result<PathBuf> {
    agent_for(profile, None)
}

/// Refuses a release that is larger than [`MAX_BYTES`].
pub(crate) fn check_size(released: &Path) -> Result<()> {
    let bytes =
        fs::metadata(released).with_context(|| format!("cannot look at {}", released.display()))?.len();
    ensure!(bytes < MAX_BYTES, "{} has {bytes} bytes, and may have {MAX_BYTES}", released.display());
    Ok(())
}

fn agent_for(profile: Profile, target: Option<&str>) -> Result<PathBuf> {
    let target = target.map_or_else(workspace::static_target, ToOwned::to_owned);
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--package", "probe-user", "--bin", "sandprobe", "--target", &target]);
    cargo.args(["--profile", profile.name()]);
    if profile == Profile::Release {
        cargo.env("CARGO_ENCODED_RUSTFLAGS", release_flags().join("\x1f"));
    }
    let built = building::executables("the agent", &mut cargo)?
        .into_iter()
        .find(|built| built.name == "sandprobe")
        .context("cargo built no sandprobe")?;

    let path = agent_path(profile);
    fs::create_dir_all(workspace::target_dir().join(profile.folder()))?;
    // Replaces the file atomically, because the old one may be running.
    let fresh = path.with_extension("new");
    fs::copy(&built.path, &fresh).with_context(|| format!("cannot copy {}", built.path.display()))?;
    fs::rename(&fresh, &path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
