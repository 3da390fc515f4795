//! A running pod loses its address.

use anyhow::{Context as _, Result, ensure};
use tests::{command, node::Node, story::service};

use super::{ensure_exactly, until_confirmed, watch};
use crate::LIMIT;

/// The sandbox is stopped as the repair says, and the finding closes. The pod beside it keeps its address.
#[test]
fn an_address_that_somebody_removes_is_found_until_the_sandbox_is_stopped() -> Result<()> {
    let node = Node::start()?;
    let mut stream = watch(&node)?;
    let (pod, twin) = (service("robbed"), service("healthy"));
    let mut kubelet = node.kubelet()?;
    kubelet.start(&twin, LIMIT)?;
    let start = kubelet.start(&pod, LIMIT)?;
    stream.until("its container", |event| {
        event["event"] == "container.started" && event["pod"]["name"] == pod.name
    })?;
    let netns = format!("--net=/proc/{}/ns/net", start.sandbox.pid);
    command::run("nsenter", &[&netns, "ip", "-4", "address", "flush", "dev", "eth0"])?;
    until_confirmed(&mut stream, &["lost_network"])?;
    for sandbox in kubelet.cri().list_pod_sandbox()? {
        kubelet.stop_sandbox(&sandbox.id)?;
        kubelet.remove_sandbox(&sandbox.id)?;
    }
    stream.until("its end", |event| {
        event["event"] == "finding.closed" && event["finding"]["kind"] == "lost_network"
    })?;
    let (received, _) = stream.end()?;
    for pod in [&pod, &twin] {
        kubelet.end(pod)?;
    }
    node.stop()?;
    let found = ensure_exactly(&received, &["lost_network"])?;
    let it = found.get("lost_network").context("not found")?;
    ensure!(it["pod"]["name"] == pod.name && it["detail"]["ifname"] == "eth0", "{it:#}");
    Ok(())
}
