//! Builds the programs of the tests crate and the agent into the folder that VMs have in PATH, too.
//!
//! All of them are static, so that one build works on this machine and in every VM.

use crate::arch::Arch;
use crate::build::{self, Profile};
use crate::{bin_dir, building, cross, dist, mounts, workspace};
use anyhow::{Result, ensure};
use std::env;
use std::ffi::OsStr;
use std::fmt::Display;
use std::process::Command;

/// Test programs that need root: for hooks in a kernel, and for pods of a real container runtime.
pub(crate) const TESTS: [&str; 2] = ["kernel", "pod"];

/// The agent as a container image, for tests that run it as a pod.
const IMAGE: &str = "sandprobe-image.tar";
/// The agent as a Debian package, for the test that installs it.
const PACKAGE: &str = "sandprobe.deb";

/// Builds the agent and the programs that the demo, the bench and VMs start.
pub(crate) fn build(arch: Arch, profile: Profile) -> Result<()> {
    agent(arch, profile)?;
    let mut cargo = cargo(arch, "build", "--package tests --features kernel,node")?;
    gather(arch, cargo.arg("--bins"))
}

/// Builds the agent and its image. For another architecture it is always the one of a release.
pub(crate) fn agent(arch: Arch, profile: Profile) -> Result<()> {
    let agent = if arch.is_ours() { build::agent(profile)? } else { dist::program(arch)? };
    bin_dir::add(arch, "sandprobe", &agent)?;
    let image = agent.with_file_name(IMAGE);
    dist::image_of(arch, &agent, &image)?;
    bin_dir::add(arch, IMAGE, &image)
}

/// Builds the test programs with all that they start, and the package of the built agent where systemd can
/// run it.
pub(crate) fn build_tests(arch: Arch, profile: Profile) -> Result<()> {
    if arch.is_ours() {
        bin_dir::add(arch, PACKAGE, &dist::debian_package_of(arch, &build::agent_path(profile))?)?;
    }
    gather(arch, &mut tests(arch)?)
}

/// Compiles the test programs, so that `build_tests` need not. It needs no built agent.
pub(crate) fn compile_tests(arch: Arch) -> Result<()> {
    building::executables("the tests", &mut tests(arch)?).map(drop)
}

/// Returns the command for tests that need neither root nor a VM.
pub(crate) fn plain_tests(arguments: &[&str]) -> Result<Command> {
    let mut command = cargo(Arch::ours()?, "test", build::OF_TESTS)?;
    command.args(arguments);
    Ok(command)
}

/// Returns the command that runs one of these programs as root on this machine, with the others in its PATH.
pub(crate) fn as_root(name: &str, variables: &[(&str, String)]) -> Result<Command> {
    beside_the_others(bin_dir::path(Arch::ours()?)?.join(name), variables)
}

/// Returns the command that runs a [`script`] of these programs in the same way.
pub(crate) fn script_as_root(script: &str, variables: &[(&str, String)]) -> Result<Command> {
    let mut command = beside_the_others("sh", variables)?;
    command.args(["-c", script]);
    Ok(command)
}

/// Returns a shell script that runs test programs with their arguments, one test at a time. Each program
/// runs, even if the one before it failed.
pub(crate) fn script(programs: &[impl Display]) -> String {
    let runs = programs.iter().map(|program| format!("{program} --test-threads=1 || failed=1; "));
    format!("{}exit ${{failed:-0}}", runs.collect::<String>())
}

fn beside_the_others(program: impl AsRef<OsStr>, variables: &[(&str, String)]) -> Result<Command> {
    let bin = bin_dir::path(Arch::ours()?)?;
    let path = format!("{}:{}", bin.display(), env::var("PATH").unwrap_or_default());
    let mut command = mounts::command([("PATH", path)].iter().chain(variables))?;
    command.arg(program);
    Ok(command)
}

fn tests(arch: Arch) -> Result<Command> {
    let mut cargo = cargo(arch, "test", build::OF_TESTS)?;
    cargo.arg("--no-run").args(TESTS.iter().flat_map(|name| ["--test", name]));
    Ok(cargo)
}

fn cargo(arch: Arch, verb: &str, packages: &str) -> Result<Command> {
    cross::ensure(arch)?;
    let mut cargo = workspace::cargo();
    cargo.arg(verb).args(packages.split_ascii_whitespace());
    cross::cargo(&mut cargo, arch);
    Ok(cargo)
}

/// Builds, and puts the programs of the tests crate into their folder.
fn gather(arch: Arch, cargo: &mut Command) -> Result<()> {
    let tests = workspace::root().join("tests");
    let mut built = building::executables("the tests' programs", cargo)?;
    built.retain(|it| it.source.starts_with(&tests));
    ensure!(!built.is_empty(), "cargo built no program of {}", tests.display());
    for it in built {
        bin_dir::add(arch, &it.name, &it.path)?;
    }
    Ok(())
}
