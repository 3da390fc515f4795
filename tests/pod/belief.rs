//! The agent follows a real runtime over CRI, and compares what it says with what the kernel shows.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::net::UnixStream,
    path::Path,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    sys::{
        signal::{Signal, kill},
        socket::{getsockopt, sockopt::PeerCredentials},
    },
    unistd::Pid,
};
use serde_json::Value;
use tests::{
    kubelet::{Container, Pod, Started},
    machine,
    node::Node,
    skipped,
    stream::{Received, Stream},
};

use crate::LIMIT;

/// How many containers end in each way.
const EACH: usize = 8;
const UID: &str = "00000000-0142-4000-8000-0000000be11e";
/// How long the runtime is stopped.
const STOPPED: Duration = Duration::from_secs(20);
/// By then every verdict on an end would have been told: the runtime's grace, and time for its list.
const AFTERWARDS: Duration = Duration::from_secs(15);
/// The exit code of those that end by themselves.
const CODE: i64 = 3;

/// A runtime that is stopped. It goes on when the test ends.
struct Stopped(Pid);

impl Stopped {
    fn stop(socket: &Path) -> Result<Self> {
        let peer = getsockopt(&UnixStream::connect(socket)?, PeerCredentials)?;
        let pid = Pid::from_raw(peer.pid());
        kill(pid, Signal::SIGSTOP).context("stop the runtime")?;
        Ok(Self(pid))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may have ended, with the test.
        kill(self.0, Signal::SIGCONT).ok();
    }
}

/// The findings of a kind that were told, by their keys.
fn told(received: &Received, kinds: &[&str]) -> BTreeSet<String> {
    let all = received.events.iter().filter_map(|event| event["finding"]["key"].as_str());
    all.filter(|key| kinds.iter().any(|kind| key.starts_with(kind))).map(str::to_owned).collect()
}

const KINDS: [&str; 4] =
    ["stale_runtime_status/", "phantom_sandbox/", "missed_runtime_event/", "blind_spot/cri"];

/// For each container the time of the first list that has it as ended, and the exit code that the runtime told.
fn noticed(recording: &Path) -> Result<BTreeMap<String, (u64, Option<i64>)>> {
    let mut all: BTreeMap<String, (u64, Option<i64>)> = BTreeMap::new();
    for line in fs::read_to_string(recording)?.lines() {
        let line: Value = serde_json::from_str(line)?;
        let seen = &line["observe"];
        let came = seen["fact"]["runtime_status"]["came"].as_array().into_iter().flatten();
        for it in came.filter(|it| it["state"] == "exited") {
            let id = it["id"].as_str().context("no id")?.to_owned();
            let at = seen["at"].as_str().context("no time")?.parse()?;
            let known = all.entry(id).or_insert((at, None));
            known.1 = known.1.or(it["exit_code"].as_i64());
        }
    }
    Ok(all)
}

fn ends(received: &Received) -> Result<BTreeMap<String, u64>> {
    let of = |event: &Value| {
        let id = event["container"]["id"].as_str().context("no container")?.to_owned();
        Ok((id, event["boot_ns"].as_str().context("no time")?.parse()?))
    };
    received.named("container.exited").map(of).collect()
}

#[test]
#[expect(clippy::print_stderr, reason = "figures for whoever looks")]
fn a_runtime_that_notices_every_end_is_not_accused_and_one_that_hangs_is_a_blind_spot() -> Result<()> {
    skipped::retry(|_| {
        let node = Node::start()?;
        let folder = tempfile::tempdir()?;
        let recording = folder.path().join("recording");
        let path = recording.display().to_string();
        let mut stream = Stream::start(&["record", &path])?;

        let mut pod = Pod::new("belief", UID);
        for number in 0..EACH {
            pod = pod.with(Container::shell(&format!("killed-{number}"), "exec sleep 1000000"));
            pod = pod.with(Container::shell(&format!("stopped-{number}"), "exec sleep 1000000"));
            pod = pod.with(Container::shell(&format!("exits-{number}"), &format!("sleep 5; exit {CODE}")));
        }
        pod = pod.with(Container::shell("last", "exec sleep 1000000"));
        let mut kubelet = node.kubelet()?;
        kubelet.prepare(&pod)?;
        let sandbox = kubelet.run_sandbox(&pod, 0)?;
        let mut started: BTreeMap<String, Started> = BTreeMap::new();
        for container in &pod.containers {
            let it = kubelet.run_container(&pod, &sandbox, container, 0)?;
            started.insert(container.name.clone(), it);
        }
        for number in 0..EACH {
            let killed = &started[&format!("killed-{number}")];
            kill(Pid::from_raw(killed.pid), Signal::SIGKILL).context("kill a container")?;
            kubelet.cri().stop_container(&started[&format!("stopped-{number}")].id, Duration::ZERO)?;
        }
        for (name, it) in started.iter().filter(|(name, _)| *name != "last") {
            kubelet.wait_exit(&it.id, LIMIT).with_context(|| format!("the end of {name}"))?;
        }
        thread::sleep(AFTERWARDS);
        stream.until("some time", |event| event["event"] == "container.exited")?;
        ensure!(told(&stream.received, &KINDS).is_empty(), "{:?}", told(&stream.received, &KINDS));

        let last = &started["last"];
        let stopped = Stopped::stop(node.socket())?;
        kill(Pid::from_raw(last.pid), Signal::SIGKILL).context("kill the last container")?;
        thread::sleep(STOPPED);
        drop(stopped);
        let is_blind =
            |event: &Value| event["event"] == "finding.closed" && event["finding"]["detail"]["what"] == "cri";
        stream.until("the end of the blind spot", is_blind)?;
        kubelet.wait_exit(&last.id, machine::patience())?;
        thread::sleep(AFTERWARDS);
        let (received, _) = stream.end()?;
        kubelet.stop_sandbox(&sandbox.id)?;
        kubelet.remove_cgroup(&pod)?;
        kubelet.remove_sandbox(&sandbox.id)?;
        kubelet.remove_logs(&pod)?;
        node.stop()?;

        let told = told(&received, &KINDS);
        ensure!(told.len() == 1 && told.iter().all(|key| key.starts_with("blind_spot/cri")), "{told:?}");
        let (noticed, ends) = (noticed(&recording)?, ends(&received)?);
        let mut late = Vec::new();
        for (name, Started { id, .. }) in &started {
            let (at, code) = noticed.get(id).with_context(|| format!("no list has the end of {name}"))?;
            let end = ends.get(id).with_context(|| format!("no hook saw the end of {name}"))?;
            let expected = if name.starts_with("exits") { CODE } else { 137 };
            ensure!(*code == Some(expected), "{name} ended with {code:?} as the runtime says");
            let lag = Duration::from_nanos(at.saturating_sub(*end));
            let limit = if name == "last" { STOPPED * 2 } else { machine::patience() };
            ensure!(lag < limit, "the end of {name} was known after {lag:?}");
            if name != "last" {
                late.push(lag);
            }
        }
        late.sort_unstable();
        eprintln!("{} ends: known after {:?} to {:?}", late.len(), late.first(), late.last());
        Ok(())
    })
}
