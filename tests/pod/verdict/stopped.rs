//! A runtime is asked to end while it makes sandboxes, as in each upgrade.

use std::thread;

use anyhow::{Result, anyhow, ensure};
use serde_json::Value;
use tests::{keyed::Faults, machine, node::Node, story::service};

use super::{findings, wait_for_candidates, watch};
use crate::LIMIT;

#[test]
fn adds_that_a_stopping_runtime_gives_up_are_no_failures_of_the_plugin() -> Result<()> {
    let at_work = if machine::is_emulated() { 20_000 } else { 10_000 };
    let mut node = Node::start_keyed(Faults { add_takes_ms: at_work, ..Faults::default() })?;
    let mut stream = watch(&node)?;
    let pods = ["given-up-1", "given-up-2", "given-up-3"].map(service);
    let mut kubelet = node.kubelet()?;
    let version = kubelet.cri().version()?.runtime_version;
    let asked = pods.iter().map(|pod| {
        kubelet.prepare(pod)?;
        let (mut kubelet, pod) = (kubelet.another()?, pod.clone());
        Ok(thread::spawn(move || kubelet.run_sandbox(&pod, 0)))
    });
    let asked = asked.collect::<Result<Vec<_>>>()?;
    let is_add = |event: &Value, name: &str| {
        event["event"] == name && event["cni"]["command"] == "ADD" && event["cni"]["plugin"] == "keyed"
    };
    let called = pods.iter().try_for_each(|pod| {
        stream.until("its ADD", |event| is_add(event, "cni.started") && event["pod"]["name"] == pod.name)
    });
    node.end_runtime()?;
    let mut given_up = 0;
    for one in asked {
        let answer = one.join().map_err(|_panic| anyhow!("the kubelet's call panicked"))?;
        given_up += usize::from(answer.is_err());
    }
    node.start_runtime()?;
    node.set_faults(Faults::default())?;
    let mut kubelet = node.kubelet()?;
    for listed in kubelet.cri().list_pod_sandbox()? {
        kubelet.stop_sandbox(&listed.id)?;
        kubelet.remove_sandbox(&listed.id)?;
    }
    for pod in &pods {
        kubelet.start(pod, LIMIT)?;
    }
    wait_for_candidates();
    let (received, _) = stream.end()?;
    for pod in &pods {
        kubelet.end(pod)?;
    }
    node.stop()?;

    called?;
    let ended = received.events.iter().filter(|event| is_add(event, "cni.finished"));
    let codes: Vec<_> = ended.filter_map(|event| event["cni"]["exit_code"].as_u64()).collect();
    // A later containerd waits for its calls.
    ensure!(given_up == pods.len() || !version.starts_with("1."), "{version} gave {given_up} up");
    ensure!(codes.iter().filter(|code| **code != 0).count() >= given_up, "they ended with {codes:?}");
    let found = findings(&received);
    let of_plugin = found.values().find(|it| it["kind"] == "cni_failing");
    ensure!(of_plugin.is_none(), "{of_plugin:#?}");
    Ok(())
}
