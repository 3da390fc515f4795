//! A node whose runtime can make no network, until its cause is repaired.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use tests::{
    keyed::Faults,
    kubelet::{Container, Pod},
    node::Node,
    story::service,
    stream::Stream,
};

use super::{
    failing::has_own_containerd, findings, rarer::Kubelet, stuck::until_closed, wait_for_candidates, watch,
};
use crate::LIMIT;

const KEY: &str = "node_network_unready/node";
const START: &str = "stuck_start/";
/// The files are read this often if no pod starts or ends. It is confirmed when it has lasted for as long.
const MINUTE: Duration = Duration::from_secs(60);

/// The file is cut off, as after a power loss, while no pod starts or ends. Then a plugin is missing, and a
/// pod that begins meanwhile waits for it. The agent reads the files at once when a pod starts or ends.
#[test]
#[expect(clippy::print_stderr, reason = "a test that tests nothing says so")]
fn a_node_without_a_network_is_told_until_it_is_repaired() -> Result<()> {
    if has_own_containerd()? {
        eprintln!("not tested: another containerd runs on this machine, and may be the one that serves pods");
        return Ok(());
    }
    let _kubelet = Kubelet::start()?;
    let node = Node::start_keyed(Faults::default())?;
    let mut stream = watch(&node)?;
    let path = node.conflist();
    let whole = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
    fs::write(&path, whole.get(..whole.len() / 2).context("it is empty")?)?;
    until_unready(&mut stream, "bad_configuration")?;
    fs::write(&path, &whole)?;
    live_without_network(&node)?;
    until_closed(&mut stream, KEY)?;
    node.hide_plugin("keyed")?;
    live_without_network(&node)?;
    let mut kubelet = node.kubelet()?;
    let waiting = service("waiting");
    kubelet.prepare(&waiting)?;
    ensure!(kubelet.run_sandbox(&waiting, 0).is_err(), "a sandbox without its plugin is ready");
    until_unready(&mut stream, "plugin_missing")?;
    let start = format!("{START}{}", waiting.uid);
    stream.until_after(2 * MINUTE, &start, |event| {
        event["event"] == "finding.confirmed" && event["finding"]["key"] == *start
    })?;
    node.show_plugin("keyed")?;
    kubelet.run_sandbox(&waiting, 1).context("with its plugin")?;
    until_closed(&mut stream, &start)?;
    kubelet.end(&waiting)?;
    stream.until("the end of the second finding", |event| {
        event["event"] == "finding.closed" && event["finding"]["detail"]["how"] == "plugin_missing"
    })?;
    wait_for_candidates();
    let (received, _) = stream.end()?;
    let found = findings(&received);
    let keys: Vec<&str> = found.keys().map(String::as_str).collect();
    ensure!(keys == [KEY, &start], "{found:#?}");
    let it = &found[&start];
    let detail = &it["detail"];
    ensure!(detail["cause"] == "plugin_not_called" && detail["plugin"] == "keyed", "{it:#}");
    let summary = it["summary"].as_str().context("no summary")?;
    ensure!(it["pod"]["name"] == "waiting" && summary.contains("keyed"), "{it:#}");
    let file = path.display().to_string();
    let confirmed = received.events.iter().filter(|it| it["event"] == "finding.confirmed");
    for it in confirmed.map(|event| &event["finding"]).filter(|it| it["key"] == KEY) {
        let summary = it["summary"].as_str().context("no summary")?;
        ensure!(it["detail"]["config_file"] == *file && summary.contains(&file), "{it:#}");
        let is_file = it["detail"]["how"] == "bad_configuration";
        let reason = if is_file { "EOF while parsing" } else { "the plugin keyed" };
        ensure!(summary.contains(reason), "{summary}");
    }
    node.stop()
}

/// Runs a pod of the node's own network, which calls no plugin.
fn live_without_network(node: &Node) -> Result<()> {
    let pod = Pod { host_network: true, ..Pod::new("host-0", "7a1cb95b-0000-4000-8000-000000000087") };
    let pod = pod.with(Container::shell("main", "true"));
    node.kubelet()?.live(&pod, LIMIT).map(drop)
}

fn until_unready(stream: &mut Stream, how: &str) -> Result<()> {
    stream.until_after(2 * MINUTE, how, |event| {
        event["event"] == "finding.confirmed" && event["finding"]["detail"]["how"] == how
    })
}
