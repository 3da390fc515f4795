//! Findings that need a kubelet, a slow plugin, or a store that the agent does not know.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use tests::{
    keyed::Faults,
    node::Node,
    program,
    story::{Stage, job},
    stream::Stream,
};

use super::{
    REDUNDANT, declared_store, ensure_exactly, grace, kind_and_form, minutes, until_confirmed, watch,
};

/// A program that the agent recognises as the kubelet by its name, as it does the real one. It does nothing.
pub(crate) struct Kubelet {
    child: Child,
    _folder: tempfile::TempDir,
}

impl Kubelet {
    pub(crate) fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let program = folder.path().join("kubelet");
        fs::copy(program::path("actor")?, &program)?;
        let mut command = Command::new(&program);
        let child = command.arg("wait").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut kubelet = Self { child, _folder: folder };
        let mut line = String::new();
        BufReader::new(kubelet.child.stdout.take().context("no output")?).read_line(&mut line)?;
        ensure!(line == "ready\n", "it printed {line:?}");
        Ok(kubelet)
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // It ends when its input is closed.
        let _ = self.child.wait();
    }
}

#[test]
fn a_cgroup_that_a_kubelet_cannot_remove_is_found_until_it_is_gone() -> Result<()> {
    let _kubelet = Kubelet::start()?;
    let mut node = Node::start()?;
    let mut stream = watch(&node)?;
    let mut stage = Stage::new(&mut node)?;
    let (truth, holder) = stage.stuck_cgroup(&job("stuck"))?;
    until_confirmed(&mut stream, &["stuck_cgroup"])?;
    drop(holder);
    stage.clean()?;
    stream.until("the cgroup's removal", |event| {
        event["event"] == "finding.closed" && event["finding"]["kind"] == "stuck_cgroup"
    })?;
    let (received, _) = stream.end()?;
    let found = ensure_exactly(&received, &["stuck_cgroup"])?;
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
    let (received, _) = stream.end()?;
    let found = ensure_exactly(&received, &["cni_slow"])?;
    let it = &found["cni_slow"];
    let detail = &it["detail"];
    ensure!(
        detail["plugin"] == "keyed" && detail["command"] == "ADD" && it["pod"]["name"] == "slow",
        "{it:#}"
    );
    let waits = &detail["waits"];
    ensure!(waits["for"] == "pause" && waits["process"]["comm"] == "keyed", "{it:#}");
    let took: u64 = detail["took_ns"].as_str().context("a time")?.parse()?;
    // The finding is reported when the call has taken too long. The call goes on for another second.
    ensure!((1_000_000_000 * limit..=1_000_000_000 * (limit + 1)).contains(&took), "{it:#}");
    stage.clean()?;
    node.stop()
}

/// The agent does not know the plugin's store.
#[test]
fn without_the_store_the_release_is_unverified_and_no_leak() -> Result<()> {
    let seen = minutes::seen()?;
    ensure!(!seen.redundant.leaked().is_empty(), "{:#?}", seen.redundant);
    ensure!(!seen.has_blind_spot(), "a blind spot was found beside the findings of the stories");
    for form in REDUNDANT {
        let (kind, _) = form.split_once('/').context("a form")?;
        let it = seen.only(kind)?;
        ensure!(kind_and_form(it) == form && it["pod"]["name"] == "unseen", "{it:#}");
    }
    let it = seen.only("unverified_release")?;
    ensure!(it["detail"]["plugin"] == "keyed" && it["severity"] == "info", "{it:#}");
    Ok(())
}
