//! Agents that follow one another during a test. They are killed, stopped or replaced, and their streams
//! together report everything once.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::{clock, guard::unique_name, http, machine, program};

/// An argument that changes the hooks, as an upgrade may.
pub const OTHERS: &[&str] = &["--all-execs"];

/// How an agent ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Killed,
    Stopped,
}

/// The folder of agents that follow one another: their state, the pins of their hooks, and their output.
pub struct Place {
    pub pins: PathBuf,
    folder: TempDir,
    pub runs: usize,
}

impl Place {
    pub fn new() -> Result<Self> {
        let pins = Path::new("/sys/fs/bpf").join(unique_name("sandprobe"));
        Ok(Self { pins, folder: tempfile::tempdir()?, runs: 0 })
    }

    pub fn command(&self, name: &str) -> Result<Command> {
        let mut command = Command::new(program::agent()?);
        command.args([name, "--pin-dir"]).arg(&self.pins);
        Ok(command)
    }

    /// Starts the next agent. The arguments may change its hooks.
    pub fn run(&mut self, arguments: &[&str]) -> Result<Run> {
        self.start(Path::new("none"), arguments)
    }

    /// Starts the next agent, and waits until it has read the whole node.
    pub fn run_until_ready(&mut self, arguments: &[&str]) -> Result<Run> {
        let socket = self.folder.path().join("agent.sock");
        let run = self.start(&socket, arguments)?;
        clock::poll("the agent is ready", machine::patience(), || {
            let Ok(stream) = UnixStream::connect(&socket) else { return Ok(None) };
            Ok(http::get(stream, "/readyz", &[]).and_then(http::Answer::ok).ok())
        })?;
        Ok(run)
    }

    fn start(&mut self, socket: &Path, arguments: &[&str]) -> Result<Run> {
        self.runs += 1;
        let output = |kind| fs::File::create(self.path(self.runs, kind));
        let child = self
            .command("run")?
            .args(["-o", "json", "--listen", "none", "--socket"])
            .arg(socket)
            .arg("--state-dir")
            .arg(self.state())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output("out")?)
            .stderr(output("err")?)
            .spawn()?;
        Ok(Run { child, errors: self.path(self.runs, "err") })
    }

    fn path(&self, run: usize, kind: &str) -> PathBuf {
        self.folder.path().join(format!("{run}.{kind}"))
    }

    pub fn detach(&self) -> Result<String> {
        let output = self.command("detach")?.output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Returns the agents' state directory.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// Returns the events of all agents. Only the last line of a killed agent's file may be incomplete.
    pub fn events(&self) -> Result<Vec<Value>> {
        let mut events = Vec::new();
        for run in 1..=self.runs {
            let text = fs::read_to_string(self.path(run, "out"))?;
            let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            for line in whole {
                events.push(serde_json::from_str(line).with_context(|| format!("run {run}: {line}"))?);
            }
        }
        Ok(events)
    }

    /// Returns the events of all agents as text, one line each.
    #[must_use]
    pub fn shown(&self) -> String {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let line = |event: Value| {
            let [at, name, words] = ["boot_ns", "event", "text"].map(|member| text(&event[member]));
            format!("{} {at} {name} {words}", event["seq"])
        };
        self.events().unwrap_or_default().into_iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Returns the agents' standard error, without the indented lines of their banners.
    #[must_use]
    pub fn errors(&self) -> String {
        let said = (1..=self.runs).filter_map(|run| fs::read_to_string(self.path(run, "err")).ok());
        let said: Vec<String> = said.collect();
        let lines = said.iter().flat_map(|text| text.lines()).filter(|line| !line.starts_with(' '));
        lines.collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.pins.exists() {
            // If this fails, the test has failed before for its own reason.
            self.detach().ok();
        }
    }
}

pub struct Run {
    pub child: Child,
    pub errors: PathBuf,
}

impl Run {
    /// Returns the first line of the agent's banner, once its hooks work.
    pub fn attached(&mut self) -> Result<String> {
        let deadline = Instant::now() + machine::patience();
        loop {
            let text = fs::read_to_string(&self.errors)?;
            if let Some((first, _)) = text.split_once('\n').filter(|_| text.contains("confined: ")) {
                return Ok(first.to_owned());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the agent ended with {status}: {text}");
            }
            ensure!(Instant::now() < deadline, "not attached: {text}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn end(mut self, end: End) -> Result<ExitStatus> {
        let signal = match end {
            End::Killed => Signal::SIGKILL,
            End::Stopped => Signal::SIGTERM,
        };
        kill(Pid::from_raw(i32::try_from(self.child.id())?), signal)?;
        Ok(self.child.wait()?)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Most agents have ended by now.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Checks that the events have each number once, without a gap. An agent that is killed during a write may
/// have written lines without saving that. The next agent writes these lines again with the same numbers.
pub fn check_numbers(events: Vec<Value>) -> Result<(Vec<Value>, usize)> {
    let mut by_number: BTreeMap<u64, Value> = BTreeMap::new();
    let mut repeated = 0;
    for event in events {
        let seq = event["seq"].as_u64().context("no seq")?;
        if let Some(other) = by_number.get(&seq) {
            ensure!(*other == event, "two events with one number: {other} and {event}");
            repeated += 1;
        }
        by_number.insert(seq, event);
    }
    for (seq, expected) in by_number.keys().zip(1..) {
        ensure!(*seq == expected, "{expected} is missing before {seq}");
    }
    Ok((by_number.into_values().collect(), repeated))
}

/// Returns a number below `below`, which differs for each `n`.
#[must_use]
pub fn scattered(n: usize, below: u64) -> u64 {
    ((n as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % below
}
