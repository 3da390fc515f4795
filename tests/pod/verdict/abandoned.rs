//! A sandbox whose containers have ended, and that nobody stops.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tests::{
    keyed::Faults,
    kubelet::{Container, Pod},
    node::Node,
    story::service,
};

use super::{findings, rarer::Kubelet, stuck::until_closed, watch};
use crate::LIMIT;

/// The kubelet's longest back-off and a margin.
const CONFIRMED_AFTER: Duration = Duration::from_secs(6 * 60);

/// It takes six minutes, since sandprobe cannot know of the kubelet's back-off earlier. The other pod's
/// container runs.
#[test]
fn a_sandbox_whose_container_nobody_starts_again_is_found_until_it_is_stopped() -> Result<()> {
    let _kubelet = Kubelet::start()?;
    let node = Node::start_keyed(Faults::default())?;
    let mut stream = watch(&node)?;
    let mut kubelet = node.kubelet()?;
    let twin = service("works");
    kubelet.start(&twin, LIMIT)?;
    let ended = Pod { containers: vec![Container::shell("main", "exit 3")], ..service("abandoned") };
    kubelet.prepare(&ended)?;
    let sandbox = kubelet.run_sandbox(&ended, 0)?;
    let started = kubelet.run_container(&ended, &sandbox, &ended.containers[0], 0)?;
    kubelet.wait_exit(&started.id, LIMIT)?;
    let key = format!("abandoned_sandbox/{}", sandbox.id);
    stream.until_after(CONFIRMED_AFTER, &key, |event| {
        event["event"] == "finding.confirmed" && event["finding"]["key"] == *key
    })?;
    kubelet.stop_sandbox(&sandbox.id)?;
    until_closed(&mut stream, &key)?;
    kubelet.end(&ended)?;
    kubelet.end(&twin)?;
    let (received, _) = stream.end()?;
    let mut found = findings(&received);
    let it = found.remove(&key).context("not found")?;
    ensure!(it["pod"]["name"] == "abandoned" && it["detail"]["exit_code"] == 3, "{it:#}");
    ensure!(found.is_empty(), "{found:#?}");
    node.stop()
}
