//! The agents' pods, and the node of each.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, anyhow};
use serde::Deserialize;
use serde_json::Value;

use super::kubectl::Kubectl;

/// A node, and the pod of its agent; or why none can be asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Agent {
    pub(super) node: String,
    pub(super) pod: Result<String, String>,
}

/// Where the controller of DaemonSets names the node for which it made a pod.
const MADE_FOR: &str =
    "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0";

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
    #[serde(default)]
    affinity: Value,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    phase: Option<String>,
}

impl Pod {
    /// The node that it is on, or, until it is scheduled, that it was made for.
    fn node(&self) -> Option<String> {
        let made_for = || self.spec.affinity.pointer(MADE_FOR)?.as_str().map(str::to_owned);
        self.spec.node_name.clone().or_else(made_for)
    }
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
        // A pod that is on no node and was made for none.
        let Some(node) = pod.node() else { continue };
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
        let mut full = pod("full", None, "Pending", false);
        full["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!({ "nodeSelectorTerms": [{ "matchFields": [
            { "key": "metadata.name", "operator": "In", "values": ["d"] },
        ]}]});
        let list = json!({ "kind": "List", "items": [
            full,
            pod("new", Some("b"), "Running", false),
            pod("old", Some("b"), "Running", true),
            pod("going", Some("c"), "Running", true),
            pod("coming", Some("c"), "Pending", false),
            pod("waits", Some("a"), "Pending", false),
            pod("nowhere", None, "Pending", false),
        ]});
        let List { items } = serde_json::from_value(list).expect("a list");
        let agent = |node: &str, pod: &str| Agent { node: node.to_owned(), pod: Ok(pod.to_owned()) };
        let pending = |node: &str, pod: &str| {
            let why = format!("its agent's pod {pod} does not run: its phase is Pending");
            Agent { node: node.to_owned(), pod: Err(why) }
        };
        let expected = [pending("a", "waits"), agent("b", "new"), agent("c", "going"), pending("d", "full")];
        assert_eq!(agents(items), expected);
    }
}
