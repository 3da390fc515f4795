//! The Debian package, installed, upgraded and removed by dpkg on a node whose init is systemd.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use tests::{command, loaded, program};

use super::{PINS, ensure_systemd, journal, property, wait_ready};

const PROGRAM: &str = "/usr/bin/sandprobe";
const CONFIG: &str = "/etc/sandprobe/sandprobe.toml";
const STATE: &str = "/var/lib/sandprobe";
/// The port in the changed configuration.
const PORT: u16 = 9478;
/// dpkg's usual PATH, without the folder of the tests' programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Removes the package and its remains, also after a failed test.
struct Purged;

impl Drop for Purged {
    fn drop(&mut self) {
        let _ = dpkg(&["--purge", "sandprobe"]);
    }
}

fn dpkg(arguments: &[&str]) -> Result<String> {
    let output = Command::new("dpkg").args(arguments).env("PATH", PATH).stdin(Stdio::null()).output()?;
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    ensure!(output.status.success(), "dpkg {} ended with {}: {said}", arguments.join(" "), output.status);
    Ok(said)
}

fn install() -> Result<String> {
    let package = program::path("sandprobe.deb")?;
    dpkg(&["--install", package.to_str().context("the path of the package is not UTF-8")?])
}

/// Returns the output of systemctl, whatever its exit code.
fn told(verb: &str) -> Result<String> {
    let output = Command::new("systemctl").args([verb, "sandprobe"]).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn exists(path: &str) -> bool {
    Path::new(path).exists()
}

/// Returns the names of the pinned sets. Each contains the id of its ring, which no other set has.
fn pinned() -> Result<BTreeSet<OsString>> {
    fs::read_dir(PINS)?.map(|entry| Ok(entry?.file_name())).collect()
}

fn answers_at_the_changed_port() -> Result<()> {
    TcpStream::connect(("127.0.0.1", PORT)).map(drop).context("the configuration is not in force")
}

#[test]
fn the_debian_package_serves_a_node_from_install_to_purge() -> Result<()> {
    ensure_systemd()?;
    let _purged = Purged;
    install()?;
    ensure!(command::output(PROGRAM, &["--version"])?.starts_with("sandprobe "));
    let plugin = fs::read_link("/usr/bin/kubectl-sandprobe")?;
    ensure!(plugin == Path::new("sandprobe"), "{}", plugin.display());
    let state = (told("is-enabled")?, told("is-active")?);
    ensure!(state == ("disabled".to_owned(), "inactive".to_owned()), "after the installation: {state:?}");

    let config = fs::read_to_string(CONFIG)?;
    let changed = format!("{config}\nlisten = \"127.0.0.1:{PORT}\"\n");
    fs::write(CONFIG, &changed)?;
    let before = loaded::programs()?;
    command::run("systemctl", &["enable", "--now", "sandprobe"])?;
    wait_ready(PROGRAM)?;
    answers_at_the_changed_port()?;
    let (first, hooks) = (property("MainPID")?, pinned()?);
    let started = &loaded::programs()? - &before;
    ensure!(!hooks.is_empty(), "nothing is pinned:\n{}", journal()?);

    // Upgrade: the next agent takes over the hooks, and reads the changed configuration.
    install()?;
    wait_ready(PROGRAM)?;
    let second = property("MainPID")?;
    ensure!(first != second && second != "0", "the upgrade did not restart the agent: {first}, {second}");
    ensure!(fs::read_to_string(CONFIG)? == changed, "the upgrade changed the configuration");
    answers_at_the_changed_port()?;
    ensure!(pinned()? == hooks, "the upgrade replaced the hooks {hooks:?}:\n{}", journal()?);

    // systemd also has eBPF programs for the unit, and makes new ones at each start.
    let kept = &started & &loaded::programs()?;
    ensure!(!kept.is_empty(), "the upgrade made all programs anew: {started:?}");

    // A removal leaves the files that the owner wrote, and nothing in the kernel.
    let said = dpkg(&["--remove", "sandprobe"])?;
    ensure!(!exists(PROGRAM) && !exists(PINS), "{said}");
    loaded::until_gone(&kept)?;
    ensure!(property("ActiveState")? == "inactive", "the agent runs on: {said}");
    ensure!(exists(CONFIG) && exists(STATE), "the removal took more than the package: {said}");

    // A unit that was enabled is enabled again, and is not started.
    install()?;
    let state = (told("is-enabled")?, told("is-active")?);
    ensure!(
        state == ("enabled".to_owned(), "inactive".to_owned()),
        "after the second installation: {state:?}"
    );
    command::run("systemctl", &["start", "sandprobe"])?;
    wait_ready(PROGRAM)?;
    let said = dpkg(&["--purge", "sandprobe"])?;
    for path in [PROGRAM, PINS, STATE, "/etc/sandprobe", "/run/sandprobe"] {
        ensure!(!exists(path), "{path} is left: {said}");
    }
    let wants = "/etc/systemd/system/multi-user.target.wants/sandprobe.service";
    ensure!(fs::symlink_metadata(wants).is_err(), "{wants} is left: {said}");
    let loaded = property("LoadState")?;
    ensure!(loaded == "not-found", "systemd still has the unit: {loaded}: {said}");
    Ok(())
}
