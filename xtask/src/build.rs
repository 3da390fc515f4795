//! `cargo xtask build`: the static agent, with its eBPF object inside.

use crate::building;
use crate::toolchain;
use crate::workspace;
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// All tests and the quick agent are built with the same packages, features and target, so that cargo
/// compiles each crate once for all of them.
pub(crate) const OF_TESTS: &str = "--workspace --exclude probe-ebpf \
                                   --features tests/browser,tests/deploy,tests/fleet,tests/kernel,tests/node,tests/prometheus";

const PROGRAM: &str = "sandprobe";
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
    #[arg(long, conflicts_with = "target")]
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
    /// Built in a third of the time, with the crates that the tests need too: for those who try the agent or
    /// test a change.
    Quick,
}

impl Profile {
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
    let path = match &args.target {
        Some(target) => release_for(target)?,
        None => agent(if args.quick { Profile::Quick } else { Profile::Release })?,
    };
    let bytes = fs::metadata(&path)?.len();
    println!("{} ({}.{} MB)", path.display(), bytes / 1_000_000, bytes / 100_000 % 10);
    Ok(())
}

/// Returns the path of the built agent.
pub(crate) fn agent_path(profile: Profile) -> PathBuf {
    workspace::target_dir().join(profile.folder()).join(PROGRAM)
}

/// Builds the agent for this machine, and puts it at [`agent_path`].
pub(crate) fn agent(profile: Profile) -> Result<PathBuf> {
    match profile {
        Profile::Release => release_for(&workspace::static_target()),
        Profile::Quick => {
            let mut cargo = workspace::cargo();
            cargo.arg("build").args(OF_TESTS.split_ascii_whitespace());
            install(profile, cargo.args(["--bin", PROGRAM, "--target", &workspace::static_target()]))
        }
    }
}

/// Refuses a release that is larger than [`MAX_BYTES`].
pub(crate) fn check_size(released: &Path) -> Result<()> {
    let bytes =
        fs::metadata(released).with_context(|| format!("cannot look at {}", released.display()))?.len();
    ensure!(bytes < MAX_BYTES, "{} has {bytes} bytes, and may have {MAX_BYTES}", released.display());
    Ok(())
}

fn release_for(target: &str) -> Result<PathBuf> {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--release", "--package", "probe-user", "--bin", PROGRAM, "--target", target]);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", release_flags().join("\x1f"));
    install(Profile::Release, &mut cargo)
}

/// Builds the agent, and puts it at [`agent_path`] without names and debug information.
fn install(profile: Profile, cargo: &mut Command) -> Result<PathBuf> {
    let built = building::executables("the agent", cargo)?
        .into_iter()
        .find(|built| built.name == PROGRAM)
        .with_context(|| format!("cargo built no {PROGRAM}"))?;

    let path = agent_path(profile);
    fs::create_dir_all(workspace::target_dir().join(profile.folder()))?;
    // Replaces the file atomically, because the old one may be running.
    let fresh = path.with_extension("new");
    match profile {
        Profile::Release => {
            fs::copy(&built.path, &fresh).with_context(|| format!("cannot copy {}", built.path.display()))?;
        }
        Profile::Quick => workspace::run(Command::new("strip").arg("-o").args([&fresh, &built.path]))?,
    }
    fs::rename(&fresh, &path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
