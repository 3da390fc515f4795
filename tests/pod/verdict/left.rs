//! Sandboxes that a runtime keeps on record after their pods were deleted.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;
use tests::{
    kubelet::{Kubelet, Pod},
    node::Node,
    story::job,
};

use super::{findings, kind_and_form, watch};
use crate::LIMIT;

/// The agent reads a runtime's list once a minute. One list shows the sandbox not ready; after the next one
/// the agent looks whether its pod is on the node.
const TWO_LISTS: Duration = Duration::from_secs(2 * 60);

/// Runs a pod to its completion, stops its sandbox and removes its cgroup. The sandbox stays on record, and
/// so do the pod's logs.
fn completed(kubelet: &mut Kubelet, pod: &Pod) -> Result<String> {
    kubelet.prepare(pod)?;
    let sandbox = kubelet.run_sandbox(pod, 0)?;
    for container in &pod.containers {
        let started = kubelet.run_container(pod, &sandbox, container, 0)?;
        kubelet.wait_exit(&started.id, LIMIT)?;
    }
    kubelet.stop_sandbox(&sandbox.id)?;
    kubelet.remove_cgroup(pod)?;
    Ok(sandbox.id)
}

/// The logs of a completed pod stay as long as the API server has the pod. Until then its sandbox may be on
/// record.
#[test]
fn the_record_of_a_deleted_pod_is_found_and_that_of_a_completed_pod_is_not() -> Result<()> {
    let _kubelet = super::Kubelet::start()?;
    let node = Node::start()?;
    let mut stream = watch(&node)?;
    let mut kubelet = node.kubelet()?;
    let (deleted, kept) = (job("deleted"), job("kept"));
    let left = completed(&mut kubelet, &deleted)?;
    let healthy = completed(&mut kubelet, &kept)?;
    kubelet.remove_logs(&deleted)?;
    let is_found = |event: &Value| {
        event["event"] == "finding.confirmed" && kind_and_form(&event["finding"]) == "phantom_sandbox"
    };
    stream.until_after(TWO_LISTS, "the record confirmed", is_found)?;
    let (received, _) = stream.end()?;
    kubelet.remove_sandbox(&left)?;
    kubelet.remove_sandbox(&healthy)?;
    kubelet.remove_logs(&kept)?;
    node.stop()?;

    // The kernel may skip runs of hooks, which is a blind spot.
    let mut found = findings(&received);
    found.retain(|_, it| it["kind"] != "blind_spot");
    ensure!(found.len() == 1, "{found:#?}");
    for (key, it) in &found {
        ensure!(key.starts_with("phantom_sandbox/left_on_record/"), "{key}");
        // Both pods were looked for after the same list.
        ensure!(it["sandboxes"] == serde_json::json!([left]), "{it:#}");
        ensure!(it["severity"] == "info" && it["detail"]["left_on_record"] == 1, "{it:#}");
    }
    Ok(())
}
