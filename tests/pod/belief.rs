//! The agent follows a real runtime over CRI, and compares its answers with what the kernel shows.

mod ends;
mod hang;
mod observer;
mod withheld;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tests::{
    kubelet::{Container, Exit, Kubelet, Pod, Sandbox, Started, wait_runs},
    stream::Received,
};

use crate::{LIMIT, verdict::findings};

/// After this time every verdict on an end is reported: the runtime's grace, and time for its list.
const AFTERWARDS: Duration = Duration::from_secs(15);
/// The exit code of containers that end by themselves.
const CODE: i32 = 3;
/// The exit code that runtimes and shells give to a program that SIGKILL ended.
const KILLED: i32 = 137;

/// How a container ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// The test kills it with `kill -9`.
    Killed,
    OutOfMemory,
    Exits,
    /// The runtime stops it.
    Stopped,
}

impl End {
    const ALL: [Self; 4] = [Self::Killed, Self::OutOfMemory, Self::Exits, Self::Stopped];

    fn container(self, number: usize) -> Container {
        let name = format!("{self:?}-{number}").to_lowercase();
        match self {
            Self::Killed | Self::Stopped => Container::shell(&name, "exec sleep 1000000"),
            Self::OutOfMemory => Container::eater(&name),
            Self::Exits => Container::shell(&name, &format!("exit {CODE}")),
        }
    }

    fn code(self) -> i32 {
        match self {
            Self::Exits => CODE,
            Self::Killed | Self::OutOfMemory | Self::Stopped => KILLED,
        }
    }

    /// Ends it, if it does not end by itself. Waits until its own program runs, because there is no end to
    /// report before.
    fn cause(self, kubelet: &mut Kubelet, container: &Started) -> Result<()> {
        if matches!(self, Self::Killed | Self::Stopped) {
            wait_runs(container.pid)?;
        }
        match self {
            Self::Killed => kill(Pid::from_raw(container.pid), Signal::SIGKILL).context("kill a container"),
            Self::Stopped => kubelet.cri().stop_container(&container.id, Duration::ZERO),
            Self::OutOfMemory | Self::Exits => Ok(()),
        }
    }

    /// Checks the agent's report of the end.
    fn check(self, exited: &Value) -> Result<()> {
        let process = &exited["process"];
        let by = match self {
            Self::Exits => process["signal"].is_null() && process["killer"].is_null(),
            Self::OutOfMemory => process["oom"] == true,
            Self::Killed => process["killer"]["pid"] == std::process::id(),
            Self::Stopped => process["killer"]["comm"].as_str().is_some_and(|comm| comm.starts_with("runc")),
        };
        let is_oom = process["oom"] == true;
        ensure!(by && is_oom == (self == Self::OutOfMemory), "another cause is told of {self:?}: {exited}");
        ensure!(process["exit_code"] == self.code(), "another code is told of {self:?}: {exited}");
        Ok(())
    }
}

/// A pod whose containers the test ends one by one.
struct Subject {
    pod: Pod,
    sandbox: Sandbox,
    containers: BTreeMap<String, Started>,
}

impl Subject {
    fn run(kubelet: &mut Kubelet, name: &str, uid: &str) -> Result<Self> {
        let pod = Pod::new(name, uid);
        kubelet.prepare(&pod)?;
        let sandbox = kubelet.run_sandbox(&pod, 0)?;
        Ok(Self { pod, sandbox, containers: BTreeMap::new() })
    }

    fn start(&mut self, kubelet: &mut Kubelet, container: &Container) -> Result<Started> {
        let it = kubelet.run_container(&self.pod, &self.sandbox, container, 0)?;
        self.containers.insert(container.name.clone(), it.clone());
        Ok(it)
    }

    fn stop(self, kubelet: &mut Kubelet) -> Result<()> {
        kubelet.stop_sandbox(&self.sandbox.id)?;
        kubelet.remove_cgroup(&self.pod)?;
        kubelet.remove_sandbox(&self.sandbox.id)?;
        kubelet.remove_logs(&self.pod)
    }
}

/// Waits until the runtime knows of the end, and checks its exit code.
fn wait_exit(kubelet: &mut Kubelet, container: &str, end: End) -> Result<()> {
    let Exit { code, .. } = kubelet.wait_exit(container, LIMIT)?;
    ensure!(code == end.code(), "{end:?} ended with {code}, as the runtime says");
    Ok(())
}

/// Returns the keys of all reported findings.
fn told(received: &Received) -> BTreeSet<String> {
    findings(received).into_keys().collect()
}

/// Returns the only event about a container's end.
fn exited<'a>(received: &'a Received, container: &str) -> Result<&'a Value> {
    let mut found = received.named("container.exited").filter(|event| event["container"]["id"] == container);
    match (found.next(), found.next()) {
        (Some(event), None) => Ok(event),
        (first, _) => {
            bail!("the end of {container} is told {} times", if first.is_some() { "several" } else { "no" })
        }
    }
}

/// Returns the kernel's time of an event.
fn boot_ns(event: &Value) -> Result<u64> {
    event["boot_ns"].as_str().context("no time")?.parse().context("the time of an event")
}

/// Returns a recording's observations of this kind, with their times.
fn observed(recording: &Path, kind: &str) -> Result<Vec<(u64, Value)>> {
    let mut found = Vec::new();
    for line in fs::read_to_string(recording)?.lines() {
        let line: Value = serde_json::from_str(line)?;
        let seen = &line["observe"];
        let fact = &seen["fact"][kind];
        if !fact.is_null() {
            found.push((seen["at"].as_str().context("no time")?.parse()?, fact.clone()));
        }
    }
    Ok(found)
}
