//! Stops that do not end until their cause is repaired.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::{
    keyed::Faults,
    kubelet::Pod,
    node::Node,
    story::{Stage, job, service},
    stream::Stream,
};

use super::{findings, until_confirmed, wait_for_candidates, watch};

const CACHE: &str = "/var/lib/cni/results";

pub(super) fn until_closed(stream: &mut Stream, key: &str) -> Result<()> {
    until_closed_after(Duration::ZERO, stream, key)
}

/// Like `until_closed`, for a finding that can close only after `delay`.
pub(super) fn until_closed_after(delay: Duration, stream: &mut Stream, key: &str) -> Result<()> {
    let is_it = |event: &Value| event["event"] == "finding.closed" && event["finding"]["key"] == key;
    stream.until_after(delay, &format!("the end of {key}"), is_it)
}

/// The plugin's own words are in the runtime's log.
#[test]
fn a_del_that_fails_is_told_until_it_is_repaired() -> Result<()> {
    let mut node = Node::start_keyed(Faults::default())?;
    let mut stream = watch(&node)?;
    let mut stage = Stage::new(&mut node)?;
    let pod = job("failing");
    let truth = stage.failing_del(&pod, 3)?;
    let sandbox = truth.pods[0].sandboxes[0].id.clone();
    until_confirmed(&mut stream, &["cni_failing", "stuck_stop"])?;
    stage.repaired(&pod)?;
    let stop = format!("stuck_stop/{sandbox}");
    until_closed(&mut stream, "cni_failing/keyed/DEL")?;
    until_closed(&mut stream, &stop)?;
    wait_for_candidates();
    let (received, _) = stream.end()?;
    stage.clean()?;
    let found = findings(&received);
    let keys: Vec<&str> = found.keys().map(String::as_str).collect();
    ensure!(keys == ["cni_failing/keyed/DEL", &stop], "{found:#?}");
    let it = &found["cni_failing/keyed/DEL"];
    let detail = &it["detail"];
    ensure!(detail["command"] == "DEL" && detail["attempts"] == 3 && detail["pods"] == 1, "{it:#}");
    ensure!(it["pod"]["name"] == "failing" && it["sandboxes"][0] == *sandbox, "{it:#}");
    let text = detail["message"]["text"].as_str().context("no message")?;
    ensure!(text.contains("failed (delete): "), "{it:#}");
    let it = &found[&stop];
    let detail = &it["detail"];
    ensure!(detail["step"] == "del" && detail["plugin"] == "keyed" && detail["attempts"] == 3, "{it:#}");
    let said = detail["said"][0]["text"].as_str().context("nothing is quoted")?;
    ensure!(said.contains("failed (delete): "), "{it:#}");
    node.stop()
}

/// Returns the file that libcni keeps for the sandbox's interface.
fn cached(pod: &Pod, sandbox: &str) -> Result<std::path::PathBuf> {
    for entry in fs::read_dir(CACHE)? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(&format!("{sandbox}-eth0")) {
            return Ok(path);
        }
    }
    anyhow::bail!("libcni has cached nothing for {}", pod.name)
}

/// The file is empty, as after a power cut. The runtime then calls no plugin, so there is no event about it.
#[test]
fn a_stop_that_fails_for_a_torn_file_is_told_until_the_file_is_gone() -> Result<()> {
    let node = Node::start_keyed(Faults::default())?;
    let mut kubelet = node.kubelet()?;
    let mut stream = watch(&node)?;
    let pod = service("torn");
    kubelet.prepare(&pod)?;
    let sandbox = kubelet.run_sandbox(&pod, 0)?.id;
    let file = cached(&pod, &sandbox)?;
    fs::write(&file, "").with_context(|| format!("empty {}", file.display()))?;
    ensure!(kubelet.try_stop_sandbox(&sandbox).is_err(), "the stop succeeded");
    until_confirmed(&mut stream, &["stuck_stop"])?;
    // The file is reported after two readings. The finding names it from then on.
    stream.until("the torn file", |event| {
        event["event"] == "finding.confirmed" && event["finding"]["key"] == "blind_spot/cni_cache"
    })?;
    // The repair that the finding suggests.
    fs::remove_file(&file).with_context(|| format!("remove {}", file.display()))?;
    kubelet.stop_sandbox(&sandbox)?;
    until_closed(&mut stream, &format!("stuck_stop/{sandbox}"))?;
    kubelet.remove_cgroup(&pod)?;
    kubelet.remove_sandbox(&sandbox)?;
    kubelet.remove_logs(&pod)?;
    let (received, _) = stream.end()?;
    let found = findings(&received);
    let it = &found[&format!("stuck_stop/{sandbox}")];
    ensure!(it["pod"]["name"] == "torn" && it["detail"]["step"] == "del", "{it:#}");
    ensure!(it["detail"]["cache_file"] == *file.to_string_lossy(), "{it:#}");
    // The runtime's log has why it called no plugin.
    let said = &it["detail"]["said"][0];
    ensure!(said["by"] == "runtime" && said["source"].is_string() && said["at"].is_string(), "{it:#}");
    let text = said["text"].as_str().context("nothing is quoted")?;
    ensure!(text.contains("unexpected end of JSON input"), "{it:#}");
    let summary = it["summary"].as_str().context("no summary")?;
    ensure!(summary.contains("; the runtime says: failed to destroy network"), "{summary}");
    ensure!(
        found.values().all(|it| matches!(it["kind"].as_str(), Some("stuck_stop" | "blind_spot"))),
        "{found:#?}"
    );
    node.stop()
}
