//! Plugins whose executables are missing for a while. The runtime keeps a record of each sandbox that it
//! fails to make.

use anyhow::{Result, ensure};
use serde_json::Value;
use tests::{keyed::Faults, node::Node, story::service};

use super::{findings, rarer::Kubelet, wait_for_candidates, watch};

/// How often the kubelet asks the runtime for another sandbox.
const TRIES: u32 = 3;

/// If only `loopback` is missing, the runtime calls the other plugin, but no DEL. If both are missing it
/// calls no plugin, and only the records show the sandboxes.
#[test]
fn sandboxes_that_the_runtime_fails_to_make_are_no_duplicates_and_their_clean_up_is_in_order() -> Result<()> {
    let _kubelet = Kubelet::start()?;
    let node = Node::start_keyed(Faults::default())?;
    let mut kubelet = node.kubelet()?;
    let stream = watch(&node)?;
    let mut pods = Vec::new();
    for missing in [&["loopback"][..], &["loopback", "keyed"]] {
        let pod = service(&format!("incomplete-{}", missing.len()));
        for plugin in missing {
            node.hide_plugin(plugin)?;
        }
        kubelet.prepare(&pod)?;
        for attempt in 0..TRIES {
            ensure!(kubelet.run_sandbox(&pod, attempt).is_err(), "a sandbox was made without {missing:?}");
        }
        // Their records are older than the grace when somebody cleans up. Meanwhile the agent would report
        // every problem of the clean-up before.
        wait_for_candidates();
        for plugin in missing {
            node.show_plugin(plugin)?;
        }
        for sandbox in kubelet.cri().list_pod_sandbox()? {
            kubelet.stop_sandbox(&sandbox.id)?;
            kubelet.remove_sandbox(&sandbox.id)?;
        }
        pods.push(pod);
    }
    wait_for_candidates();
    for pod in &pods {
        kubelet.remove_cgroup(pod)?;
        kubelet.remove_logs(pod)?;
    }
    let (received, _) = stream.end()?;
    let is_wrong = |it: &&Value| {
        let kind = it["kind"].as_str().unwrap_or_default();
        ["duplicate_sandbox", "stuck_stop", "teardown_out_of_order"].contains(&kind)
    };
    let found = findings(&received);
    let wrong: Vec<&Value> = found.values().filter(is_wrong).collect();
    ensure!(wrong.is_empty(), "{wrong:#?}");
    node.stop()
}
