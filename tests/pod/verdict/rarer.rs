//! Findings that need a kubelet, a slow plugin, or a store that nobody reads.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::{
    keyed::Faults,
    node::Node,
    program,
    story::{Stage, job},
    stream::Stream,
};

use super::{REDUNDANT, declared_store, ensure_exactly, grace, until_confirmed, wait_for_nothing, watch};

/// A program that is known as the kubelet by its name, as the real one is, and does nothing.
struct Kubelet {
    child: Child,
    _folder: tempfile::TempDir,
}

impl Kubelet {
    fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let program = folder.path().join("kubelet");
        fs::copy(program::path("actor")?, &program)?;
        let mut command = Command::new(&program);
        let child = command.arg("wait").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut kubelet = Self { child, _folder: folder };
        let mut line = String::new();
        BufReader::new(kubelet.child.stdout.take().context("no output")?).read_line(&mut line)?;
        ensure!(line == "ready\n", "it said {line:?}");
        Ok(kubelet)
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // Its input was all that it waited for.
        let _ = self.child.wait();
    }
}

#[test]
fn a_cgroup_that_a_kubelet_cannot_remove_is_found_until_it_is_gone() -> Result<()> {
    let _kubelet = Kubelet::start()?;
    let mut node = Node::start()?;
    let mut stream = watch(&node)?;
    let mut stage = Stage::new(&mut node)?;
    let (truth, squatter) = stage.stuck_cgroup(&job("stuck"))?;
    until_confirmed(&mut stream, &["stuck_cgroup"])?;
    drop(squatter);
    stage.clean()?;
    stream.until("that it is gone", |event| {
        event["event"] == "finding.closed" && event["finding"]["kind"] == "stuck_cgroup"
    })?;
    let (told, _) = stream.end()?;
    let found = ensure_exactly(&told, &["stuck_cgroup"])?;
    let it = &found["stuck_cgroup"];
    ensure!(it["pod"]["uid"] == truth.pods[0].uid && it["detail"]["populated"] == true, "{it:#}");
    node.stop()
}

#[test]
fn a_slow_plugin_is_found_while_it_runs() -> Result<()> {
    let limit = grace().as_secs();
    let mut node = Node::start_keyed(Faults::default())?;
    let store = declared_store(&node).context("the plugin has a store")?;
    let mut stream = Stream::start(&["watch", "--cni-slow", &format!("{limit}s"), "--ipam-store", &store])?;
    let mut stage = Stage::new(&mut node)?;
    stage.slow_add(&job("slow"), 1000 * (limit + 1))?;
    until_confirmed(&mut stream, &["cni_slow"])?;
    let (told, _) = stream.end()?;
    let found = ensure_exactly(&told, &["cni_slow"])?;
    let it = &found["cni_slow"];
    let detail = &it["detail"];
    ensure!(
        detail["plugin"] == "keyed" && detail["command"] == "ADD" && it["pod"]["name"] == "slow",
        "{it:#}"
    );
    let took: u64 = detail["took_ns"].as_str().context("a time")?.parse()?;
    // It is told when it has taken too long, and it goes on for another second.
    ensure!((1_000_000_000 * limit..=1_000_000_000 * (limit + 1)).contains(&took), "{it:#}");
    stage.clean()?;
    node.stop()
}

/// The leak, seen by one who was not told of the plugin's store.
#[test]
fn what_nobody_can_look_up_is_not_called_a_leak() -> Result<()> {
    let mut node = Node::start_keyed(Faults::default())?;
    let mut stream = super::watch_store(None)?;
    let mut stage = Stage::new(&mut node)?;
    let truth = stage.redundant_sandbox(&job("unseen"))?;
    ensure!(!truth.leaked().is_empty(), "{truth:#?}");
    let told_of = |event: &Value| event["finding"]["kind"] == "unverified_release";
    // Before, its stores may not have been read again.
    stream.until_after(Duration::from_secs(60), "the plugin", told_of)?;
    until_confirmed(&mut stream, &REDUNDANT)?;
    wait_for_nothing();
    let (told, _) = stream.end()?;
    let found = ensure_exactly(&told, &[&REDUNDANT[..], &["unverified_release"]].concat())?;
    let it = &found["unverified_release"];
    ensure!(it["detail"]["plugin"] == "keyed" && it["severity"] == "info", "{it:#}");
    stage.clean()?;
    node.stop()
}
