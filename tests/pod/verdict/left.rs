//! Sandboxes that a runtime keeps on record after their pods were deleted.

use anyhow::{Result, ensure};
use serde_json::Value;
use tests::{
    kubelet::{Kubelet, Pod},
    node::Node,
    story::job,
};

use super::{findings, until_confirmed, wait_for_candidates, watch};
use crate::LIMIT;

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
fn records_of_deleted_pods_are_found_until_they_are_removed() -> Result<()> {
    let _kubelet = super::Kubelet::start()?;
    let node = Node::start()?;
    let mut stream = watch(&node)?;
    let mut kubelet = node.kubelet()?;
    let (deleted, kept) = (job("deleted"), job("kept"));
    let left = completed(&mut kubelet, &deleted)?;
    let healthy = completed(&mut kubelet, &kept)?;
    kubelet.remove_logs(&deleted)?;
    until_confirmed(&mut stream, &["phantom_sandbox"])?;
    wait_for_candidates();
    kubelet.remove_sandbox(&left)?;
    let is_over =
        |event: &Value| event["event"] == "finding.closed" && event["finding"]["kind"] == "phantom_sandbox";
    stream.until("the end of the finding", is_over)?;
    kubelet.remove_sandbox(&healthy)?;
    kubelet.remove_logs(&kept)?;
    let (received, _) = stream.end()?;
    node.stop()?;

    // The kernel may skip runs of hooks, which is a blind spot.
    let mut found = findings(&received);
    found.retain(|_, it| it["kind"] != "blind_spot");
    ensure!(found.len() == 1, "{found:#?}");
    for (key, it) in &found {
        ensure!(key.starts_with("phantom_sandbox/left_on_record/"), "{key}");
        // A closed finding has no sandboxes left.
        let confirmed = received
            .events
            .iter()
            .find(|event| event["event"] == "finding.confirmed" && event["finding"]["key"] == it["key"]);
        let reported = confirmed.map(|event| event["finding"].clone()).unwrap_or_default();
        ensure!(reported["sandboxes"] == serde_json::json!([left]), "{reported:#}");
        ensure!(reported["severity"] == "info" && reported["detail"]["left_on_record"] == 1, "{reported:#}");
    }
    Ok(())
}
