//! The agents' pods, and the node of each.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, anyhow};
use serde::Deserialize;

use super::kubectl::Kubectl;

/// A node, and the pod of its agent; or why none can be asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Agent {
    pub(super) node: String,
    pub(super) pod: Result<String, String>,
}

#[derive(Deserialize)]
struct List {
    items: Vec<Pod>,
}

#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    deletion_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    node_name: Option<String>,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    phase: Option<String>,
}

/// The agents by the names of their nodes.
pub(super) fn list(kubectl: &Kubectl, selector: &str, patience: Duration) -> anyhow::Result<Vec<Agent>> {
    let words = ["get", "pods", "--selector", selector, "--output", "json"];
    let text =
        kubectl.output(&words, patience).map_err(|why| anyhow!("cannot list the agents' pods: {why}"))?;
    let List { items } = serde_json::from_str(&text).context("what kubectl lists is no list of pods")?;
    Ok(agents(items))
}

/// One for each node: while a pod is replaced there are two, and the one that stays is asked.
fn agents(pods: Vec<Pod>) -> Vec<Agent> {
    let mut nodes: BTreeMap<String, Pod> = BTreeMap::new();
    for pod in pods {
        // A pod that is not scheduled is on no node.
        let Some(node) = pod.spec.node_name.clone() else { continue };
        match nodes.entry(node) {
            std::collections::btree_map::Entry::Vacant(place) => drop(place.insert(pod)),
            std::collections::btree_map::Entry::Occupied(mut place) => {
                if rank(&pod) > rank(place.get()) {
                    place.insert(pod);
                }
            }
        }
    }
    nodes.into_iter().map(|(node, pod)| Agent { node, pod: name(pod) }).collect()
}

/// A pod that runs comes before others, and then one that stays.
fn rank(pod: &Pod) -> (bool, bool) {
    (is_running(pod), pod.metadata.deletion_timestamp.is_none())
}

fn is_running(pod: &Pod) -> bool {
    pod.status.phase.as_deref() == Some("Running")
}

fn name(pod: Pod) -> Result<String, String> {
    if is_running(&pod) {
        return Ok(pod.metadata.name);
    }
    let phase = pod.status.phase.as_deref().unwrap_or("not known");
    Err(format!("its agent's pod {} does not run: its phase is {phase}", pod.metadata.name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Agent, List, agents};

    #[test]
    fn each_node_has_the_pod_that_runs_and_stays() {
        let pod = |name: &str, node: Option<&str>, phase: &str, ends: bool| {
            let ends = ends.then_some("2026-11-24T00:00:00Z");
            json!({
                "metadata": { "name": name, "deletionTimestamp": ends, "labels": {} },
                "spec": { "nodeName": node, "containers": [] },
                "status": { "phase": phase },
            })
        };
        let list = json!({ "kind": "List", "items": [
            pod("new", Some("b"), "Running", false),
            pod("old", Some("b"), "Running", true),
            pod("going", Some("c"), "Running", true),
            pod("coming", Some("c"), "Pending", false),
            pod("waits", Some("a"), "Pending", false),
            pod("nowhere", None, "Pending", false),
        ]});
        let List { items } = serde_json::from_value(list).expect("a list");
        let agent = |node: &str, pod: &str| Agent { node: node.to_owned(), pod: Ok(pod.to_owned()) };
        let why = "its agent's pod waits does not run: its phase is Pending".to_owned();
        let waits = Agent { node: "a".to_owned(), pod: Err(why) };
        assert_eq!(agents(items), [waits, agent("b", "new"), agent("c", "going")]);
    }
}
