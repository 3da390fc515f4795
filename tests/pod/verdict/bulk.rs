//! After a kubelet had started, containers of several pods are restarted in their sandboxes, and one pod gets
//! another sandbox. Later a process kills the containers.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tests::{
    kubelet::{Kubelet, Pod, PodStart, Started, wait_runs},
    story::service,
    stream::Stream,
};

use super::minutes;
use crate::LIMIT;

/// Each of them waits this long for further containers.
const SETTLE: Duration = Duration::from_secs(60);
const BY_KUBELET: &str = "restarted_in_bulk/kubelet";
const REPLACED_KEY: &str = "sandboxes_replaced/kubelet";
const REPLACED: &str = "replaced";
const BY_PROCESS: &str = "restarted_in_bulk/killer/";

/// Three pods whose containers are restarted, one that is started anew, and a healthy one.
pub(super) struct Bulk {
    starts: Vec<PodStart>,
    replaced: PodStart,
    twin: Pod,
}

impl Bulk {
    pub(super) fn start(kubelet: &mut Kubelet) -> Result<Self> {
        let twin = service("left-alone");
        kubelet.start(&twin, LIMIT)?;
        let pods = ["bulk-0", "bulk-1", "bulk-2"].map(service);
        let starts: Result<Vec<PodStart>> = pods.iter().map(|pod| kubelet.start(pod, LIMIT)).collect();
        Ok(Self { starts: starts?, replaced: kubelet.start(&service(REPLACED), LIMIT)?, twin })
    }

    /// Ends each container, and starts another one in its sandbox; once by the runtime, as for a kubelet that
    /// takes them for changed, and once by this process. The sandbox of one pod is taken for changed too.
    pub(super) fn restart(&self, kubelet: &mut Kubelet) -> Result<()> {
        kubelet.stop_sandbox(&self.replaced.sandbox.id)?;
        let sandbox = kubelet.run_sandbox(&self.replaced.pod, 1)?;
        kubelet.run_container(&self.replaced.pod, &sandbox, &self.replaced.pod.containers[0], 1)?;
        for start in &self.starts {
            let first = &start.parts.first().context("no container")?.started;
            kubelet.cri().stop_container(&first.id, Duration::ZERO)?;
            let second = again(kubelet, start, first, 1)?;
            kill(Pid::from_raw(second.pid), Signal::SIGKILL).context("kill a container")?;
            again(kubelet, start, &second, 2)?;
        }
        Ok(())
    }

    pub(super) fn until_told(stream: &mut Stream) -> Result<()> {
        for key in [BY_KUBELET, BY_PROCESS, REPLACED_KEY] {
            stream.until_after(SETTLE, key, |event| {
                let told = event["finding"]["key"].as_str();
                event["event"] == "finding.confirmed" && told.is_some_and(|told| told.starts_with(key))
            })?;
        }
        Ok(())
    }

    pub(super) fn end(&self, kubelet: &mut Kubelet) -> Result<()> {
        let starts = self.starts.iter().chain([&self.replaced]);
        for pod in starts.map(|start| &start.pod).chain([&self.twin]) {
            kubelet.end(pod)?;
        }
        Ok(())
    }
}

/// Waits for a container's end, and starts the next one.
fn again(kubelet: &mut Kubelet, start: &PodStart, ended: &Started, attempt: u32) -> Result<Started> {
    kubelet.wait_exit(&ended.id, LIMIT)?;
    let started = kubelet.run_container(&start.pod, &start.sandbox, &start.pod.containers[0], attempt)?;
    wait_runs(started.pid)?;
    Ok(started)
}

#[test]
fn containers_that_are_restarted_in_bulk_are_found_with_who_did_it() -> Result<()> {
    let seen = minutes::seen()?;
    let it = seen.only("sandboxes_replaced")?;
    let detail = &it["detail"];
    ensure!(detail["daemon"] == "kubelet" && detail["count"] == 1, "{it:#}");
    ensure!(detail["first_pods"][0] == format!("default/{REPLACED}"), "{it:#}");
    for (key, is_by) in [
        (BY_KUBELET, (|detail| detail["daemon"] == "kubelet") as fn(&Value) -> bool),
        (BY_PROCESS, |detail| detail["killer"]["pid"] == std::process::id()),
    ] {
        let it = seen.with_key(key)?;
        let detail = &it["detail"];
        ensure!(is_by(detail) && detail["containers"] == 3 && detail["count"] == 3, "{it:#}");
        let pods = ["default/bulk-0", "default/bulk-1", "default/bulk-2"];
        ensure!(detail["first_pods"] == serde_json::json!(pods), "{it:#}");
    }
    Ok(())
}
