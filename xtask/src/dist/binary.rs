//! Builds the static agent for both architectures, from either, and runs it.

use super::Arch;
use crate::build;
use crate::building;
use crate::cross;
use crate::package::{self, Need};
use crate::toolchain;
use crate::workspace;
use anyhow::{Context as _, Result, ensure};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds in a target folder of its own, because other flags would discard the results of other builds.
pub(super) fn build(arch: Arch) -> Result<PathBuf> {
    toolchain::ensure()?;
    cross::ensure(arch)?;
    println!("dist: building for {}", arch.name());
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--locked", "--release", "--package", "probe-user", "--bin", "sandprobe"]);
    cargo.arg("--target-dir").arg(workspace::target_dir().join("dist/build"));
    let mut flags = remapped()?;
    flags.extend(build::release_flags());
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    cross::cargo(&mut cargo, arch);
    let built = building::executables("the agent for its release", &mut cargo)?
        .into_iter()
        .find(|built| built.name == "sandprobe")
        .context("cargo built no sandprobe")?;
    if !arch.is_ours() {
        package::ensure(&[emulator(arch)])?;
    }
    check(arch, &built.path)?;
    Ok(built.path)
}

/// Returns rustc's flags that replace paths of this machine, so that the same sources give the same bytes.
fn remapped() -> Result<Vec<String>> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| env::home_dir().map(|home| home.join(".cargo"))).context("no home folder")?;
    let sysroot = workspace::output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let places = [(workspace::root(), "sandprobe"), (&home, "cargo"), (Path::new(&sysroot), "rust")];
    Ok(places.map(|(from, to)| format!("--remap-path-prefix={}=/{to}", from.display())).to_vec())
}

/// The emulator that runs a program of another architecture.
const fn emulator(arch: Arch) -> Need {
    match arch {
        Arch::X86_64 => Need::any(&["qemu-x86_64-static"], "qemu-user-static"),
        Arch::Aarch64 => Need::any(&["qemu-aarch64-static"], "qemu-user-static"),
    }
}

/// Returns the command that runs the program on this machine.
pub(super) fn command(arch: Arch, binary: &Path) -> Command {
    if arch.is_ours() {
        return Command::new(binary);
    }
    let mut command = Command::new(format!("qemu-{}-static", arch.name()));
    command.arg(binary);
    command
}

/// Checks that the program prints its version, and replays a recording with the expected output.
fn check(arch: Arch, binary: &Path) -> Result<()> {
    let version = workspace::output(command(arch, binary).arg("--version"))?;
    ensure!(
        version == format!("sandprobe {}", env!("CARGO_PKG_VERSION")),
        "{} says {version:?}",
        binary.display()
    );
    let recordings = workspace::root().join("tests/data/recordings");
    let told = workspace::output(command(arch, binary).arg("replay").arg(recordings.join("demo.jsonl")))?;
    let expected = fs::read_to_string(recordings.join("demo.expect")).context("cannot read demo.expect")?;
    ensure!(told == expected.trim_end(), "{} does not tell the demo as expected", binary.display());
    Ok(())
}
