//! A plugin names a known problem, and the repair that is printed for it ends it.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::{clock, command, machine, node::Node, program, story::service, stream::Stream};

use super::{findings, stuck::until_closed, until_confirmed};

/// An address of a subnet that no pod of the tests has.
const OTHER: &str = "10.230.77.1/24";
/// After so many failures the finding is confirmed.
const TRIES: u32 = 5;

/// Explains the finding of a recording that is still written, once the plugin's message has been read.
fn explain(key: &str, recording: &str) -> Result<Option<Value>> {
    let mut command = Command::new(program::agent()?);
    let output = command.args(["explain", key, "--recording", recording, "-o", "json"]).output()?;
    let explained: Option<Value> = serde_json::from_slice(&output.stdout).ok();
    Ok(explained.filter(|it| it["detail"]["message"]["text"].is_string()))
}

/// The bridge keeps the address of the subnet that the node had before, and so refuses each ADD.
#[test]
fn a_problem_that_a_plugin_names_is_explained_and_its_repair_ends_it() -> Result<()> {
    let node = Node::start()?;
    let bridge = &node.network().bridge;
    command::run("ip", &["link", "add", bridge, "type", "bridge"])?;
    command::run("ip", &["address", "add", OTHER, "dev", bridge])?;
    let folder = tempfile::tempdir()?;
    let recording = folder.path().join("recording").display().to_string();
    let mut stream = Stream::start(&["record", &recording])?;
    let mut kubelet = node.kubelet()?;
    let pod = service("moved");
    kubelet.prepare(&pod)?;
    for attempt in 0..TRIES {
        ensure!(kubelet.run_sandbox(&pod, attempt).is_err(), "ADD {attempt} succeeded");
    }
    until_confirmed(&mut stream, &["cni_failing"])?;

    let explained = clock::poll("the finding in the recording", machine::patience(), || {
        explain("cni_failing/bridge", &recording)
    })?;
    ensure!(explained["known"][0]["id"] == "bridge-other-address", "{explained:#}");
    let cause = explained["cause"].as_str().context("no cause")?;
    ensure!(cause.contains("address of the subnet that the node had before"), "{cause}");
    let summary = explained["summary"].as_str().context("no summary")?;
    ensure!(summary.contains("already has an IP address different from"), "{summary}");
    let repair = explained["repair"].as_array().context("no repair")?;
    let lines: Vec<&str> = repair.iter().filter_map(Value::as_str).collect();
    for line in lines.iter().filter(|line| !line.starts_with('#')) {
        // A command that only looks may find nothing: flannel's file is not here.
        command::output("sh", &["-c", line]).ok();
    }
    let last = kubelet.run_sandbox(&pod, TRIES).with_context(|| format!("after {lines:#?}"))?;
    until_closed(&mut stream, "cni_failing/bridge")?;

    kubelet.stop_sandbox(&last.id)?;
    kubelet.remove_cgroup(&pod)?;
    kubelet.remove_sandbox(&last.id)?;
    kubelet.remove_logs(&pod)?;
    let (received, _) = stream.end()?;
    let found = findings(&received);
    // The DEL after such an ADD may fail too: no rule of iptables was made.
    ensure!(found.keys().all(|key| key.starts_with("cni_failing/bridge")), "{found:#?}");
    node.stop()
}
