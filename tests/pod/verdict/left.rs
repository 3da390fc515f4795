//! Sandboxes that a runtime keeps on record after their pods were deleted.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;
use tests::{
    kubelet::{Kubelet, Pod},
    story::job,
    stream::Stream,
};

use super::{kind_and_form, minutes};
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

/// Two stopped sandboxes that the runtime has on record.
pub(super) struct Records {
    deleted: String,
    kept: String,
    kept_pod: Pod,
}

impl Records {
    /// The logs of a completed pod stay as long as the API server has the pod. Until then its sandbox may be
    /// on record.
    pub(super) fn leave(kubelet: &mut Kubelet) -> Result<Self> {
        let (pod, kept_pod) = (job("deleted"), job("kept"));
        let deleted = completed(kubelet, &pod)?;
        let kept = completed(kubelet, &kept_pod)?;
        kubelet.remove_logs(&pod)?;
        Ok(Self { deleted, kept, kept_pod })
    }

    pub(super) fn until_told(&self, stream: &mut Stream) -> Result<()> {
        let is_found = |event: &Value| {
            event["event"] == "finding.confirmed" && kind_and_form(&event["finding"]) == "phantom_sandbox"
        };
        stream.until_after(TWO_LISTS, "the record confirmed", is_found)
    }

    pub(super) fn remove(&self, kubelet: &mut Kubelet) -> Result<()> {
        kubelet.remove_sandbox(&self.deleted)?;
        kubelet.remove_sandbox(&self.kept)?;
        kubelet.remove_logs(&self.kept_pod)
    }
}

#[test]
fn the_record_of_a_deleted_pod_is_found_and_that_of_a_completed_pod_is_not() -> Result<()> {
    let seen = minutes::seen()?;
    let it = seen.only("phantom_sandbox")?;
    let key = it["key"].as_str().unwrap_or_default();
    ensure!(key.starts_with("phantom_sandbox/left_on_record/"), "{key}");
    // Both pods were looked for after the same list.
    ensure!(it["sandboxes"] == serde_json::json!([seen.records.deleted]), "{it:#}");
    ensure!(it["severity"] == "info" && it["detail"]["left_on_record"] == 1, "{it:#}");
    Ok(())
}
