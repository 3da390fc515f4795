//! Builds the programs of the tests crate and the agent into the folder that VMs have in PATH, too.
//!
//! All are static, so that one build works on this machine and in every VM.

use crate::{build, dist, mounts, vm, workspace};
use anyhow::Result;
use std::env;
use std::process::Command;

/// Test programs that need root: for hooks in a kernel, and for pods of a real container runtime.
pub(crate) const TESTS: [&str; 2] = ["kernel", "pod"];

/// The agent as a container image, for tests that run it as a pod.
const IMAGE: &str = "sandprobe-image.tar";
/// The agent as a Debian package, for the test that installs it.
const PACKAGE: &str = "sandprobe.deb";

/// Builds the agent and the programs that the tests, the demo and VMs start.
pub(crate) fn build() -> Result<()> {
    let agent = build::agent(&build::Args::default())?;
    vm::add("sandprobe", &agent)?;
    let image = agent.with_file_name(IMAGE);
    dist::image_of(&agent, &image)?;
    vm::add(IMAGE, &image)?;
    gather(cargo("build").arg("--bins"))
}

/// Builds the test programs, and the package of the built agent.
pub(crate) fn build_tests() -> Result<()> {
    vm::add(PACKAGE, &dist::debian_package_of(&build::agent_path())?)?;
    gather(cargo("test").arg("--no-run").args(TESTS.iter().flat_map(|name| ["--test", name])))
}

/// The command that runs one of these programs as root on this machine, with the others in its PATH.
pub(crate) fn as_root(name: &str, variables: &[(&str, String)]) -> Result<Command> {
    let bin = vm::bin()?;
    let path = format!("{}:{}", bin.display(), env::var("PATH").unwrap_or_default());
    let mut command = mounts::command([("PATH", path)].iter().chain(variables))?;
    command.arg(bin.join(name));
    Ok(command)
}

fn cargo(verb: &str) -> Command {
    let mut cargo = workspace::cargo();
    cargo.args([verb, "--package", "tests", "--features", "kernel,node,browser", "--target"]);
    cargo.arg(workspace::static_target());
    cargo
}

fn gather(cargo: &mut Command) -> Result<()> {
    for built in workspace::executables(cargo)? {
        vm::add(&built.name, &built.path)?;
    }
    Ok(())
}
