//! The agent as the shipped systemd unit, with the rights that the unit takes away. Only for a VM whose init
//! is systemd.

mod package;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::Path,
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use tests::{
    clock, command,
    finding::kind_and_form,
    machine,
    node::Node,
    program,
    story::{Stage, job},
    thread,
};

const TEXT: &str = include_str!("../../deploy/systemd/sandprobe.service");
const UNIT: &str = "/etc/systemd/system/sandprobe.service";
const PROGRAM: &str = "/usr/local/bin/sandprobe";
/// The folder in which its hooks outlive it.
const PINS: &str = "/sys/fs/bpf/sandprobe";

/// BPF, PERFMON, SYS_PTRACE and DAC_READ_SEARCH, by their numbers in linux/capability.h.
const CAPABILITIES: u64 = 1 << 39 | 1 << 38 | 1 << 19 | 1 << 2;

/// The unit, installed where the docs say. Dropping it stops and removes it.
struct Unit;

impl Unit {
    fn start() -> Result<Self> {
        ensure_systemd()?;
        let unit = Self;
        let (mut program, mut to) = (File::open(program::path("sandprobe")?)?, File::create(PROGRAM)?);
        io::copy(&mut program, &mut to).with_context(|| format!("write {PROGRAM}"))?;
        drop(to);
        command::run("chmod", &["755", PROGRAM])?;
        fs::write(UNIT, TEXT).with_context(|| format!("write {UNIT}"))?;
        command::run("systemctl", &["daemon-reload"])?;
        command::run("systemctl", &["start", "sandprobe"])?;
        unit.wait_ready()?;
        Ok(unit)
    }

    fn wait_ready(&self) -> Result<()> {
        wait_ready(PROGRAM)
    }

    /// Returns `/proc/PID/status` of its main process.
    fn status(&self) -> Result<BTreeMap<String, String>> {
        let pid = property("MainPID")?;
        let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        Ok(lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        // Removes whatever a failed test has left of it.
        let _ = Command::new("systemctl").args(["stop", "sandprobe"]).status();
        let _ = Command::new(PROGRAM).arg("detach").status();
        let _ = fs::remove_file(UNIT);
        let _ = fs::remove_file(PROGRAM);
        let _ = Command::new("systemctl").arg("daemon-reload").status();
    }
}

fn ensure_systemd() -> Result<()> {
    ensure!(Path::new("/run/systemd/system").is_dir(), "systemd is not the init here");
    Ok(())
}

/// Waits until the unit's agent is ready. The program asks it.
fn wait_ready(program: &str) -> Result<()> {
    let ready = || Ok(run_command(program, &["doctor"])?.iter().any(is_ready).then_some(()));
    clock::poll("the unit's agent is ready", machine::patience(), ready).or_else(|error| {
        bail!("{error:#}; its journal:\n{}\n{:#?}", journal()?, run_command(program, &["doctor"]))
    })
}

/// Returns a property of the unit.
fn property(name: &str) -> Result<String> {
    let value = command::output("systemctl", &["show", "--property", name, "--value", "sandprobe"])?;
    Ok(value.trim().to_owned())
}

fn journal() -> Result<String> {
    command::output("journalctl", &["--unit", "sandprobe", "--output", "cat", "--no-pager"])
}

/// Returns the JSON output of a command of the program: one value, or one on each line.
fn run_command(program: &str, arguments: &[&str]) -> Result<Vec<Value>> {
    let output = Command::new(program).args(arguments).args(["-o", "json"]).output()?;
    let values = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    values.collect::<Result<_, _>>().with_context(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether `doctor` reports that the agent is ready.
fn is_ready(doctor: &Value) -> bool {
    let checks = doctor["checks"].as_array().into_iter().flatten();
    let mut agent = checks.filter(|check| check["name"] == "agent");
    agent.any(|check| check["found"].as_str().is_some_and(|found| found.ends_with("is ready")))
}

#[test]
fn the_shipped_unit_sees_events_with_its_rights() -> Result<()> {
    let mut node = Node::start()?;
    let unit = Unit::start()?;
    let status = unit.status()?;
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        let held = thread::capabilities(property("MainPID")?.parse()?, set)?;
        // Some thread needs rights to read about other processes.
        let all = held.into_iter().fold(0, |all, held| all | held);
        ensure!(all & !CAPABILITIES == 0 && all != 0, "{set} is {all:x}");
    }
    ensure!(fs::read_dir(PINS)?.next().is_some(), "the unit's hooks end with it:\n{}", journal()?);
    ensure!(status["NoNewPrivs"] == "1" && status["Seccomp"] == "2", "{status:?}");

    let mut stage = Stage::new(&mut node)?;
    let truth = stage.redundant_sandbox(&job("under-a-unit"))?;
    let uid = &truth.pods[0].uid;
    // The journal contains one line for each finding.
    let confirmed = || {
        let journal = journal()?;
        let lines = journal.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut findings =
            lines.filter(|line| line["event"] == "finding.confirmed").map(|mut line| line["finding"].take());
        Ok(findings.find(|finding| {
            kind_and_form(finding) == "duplicate_sandbox/after_completion" && finding["pod"]["uid"] == **uid
        }))
    };
    clock::poll("the finding in the journal", machine::patience(), confirmed)?;
    let findings = run_command(PROGRAM, &["findings", "--all"])?;
    ensure!(findings.iter().any(|finding| finding["pod"]["uid"] == **uid), "{findings:#?}");
    stage.clean()?;
    command::run("systemctl", &["restart", "sandprobe"])?;
    unit.wait_ready()?;
    command::run("systemctl", &["stop", "sandprobe"])?;
    let result = property("Result")?;
    ensure!(result == "success", "the unit ended with {result}:\n{}", journal()?);
    drop(unit);
    node.stop()
}
