//! The agents' pods, and the node of each.
//!
//! Whoever may make a pod in the namespace can give it the agents' labels. So the labels alone are not
//! believed: a pod is an agent's only if a DaemonSet made it, and all agents are of one DaemonSet.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, anyhow, bail};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::kubectl::Kubectl;
use crate::cli::child::Limits;

/// A node, and the pod of its agent; or why none can be asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Agent {
    pub(super) node: String,
    pub(super) pod: Result<String, String>,
}

/// What was found in the namespace.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// In the order of their nodes' names.
    pub(super) agents: Vec<Agent>,
    /// Pods that no DaemonSet made, with the labels and the container of an agent.
    pub(super) strangers: Vec<String>,
}

/// Where the controller of DaemonSets names the node for which it made a pod.
const MADE_FOR: &str =
    "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0";

#[derive(Deserialize)]
struct List<T> {
    items: Vec<T>,
}

#[derive(Deserialize)]
struct DaemonSet {
    metadata: Metadata,
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
    uid: String,
    #[serde(default)]
    deletion_timestamp: Option<String>,
    #[serde(default)]
    owner_references: Vec<Owner>,
}

#[derive(Deserialize)]
struct Owner {
    uid: String,
    /// Only one owner is the controller, which made the object.
    #[serde(default)]
    controller: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    node_name: Option<String>,
    #[serde(default)]
    affinity: Value,
    #[serde(default)]
    containers: Vec<Container>,
}

#[derive(Deserialize)]
struct Container {
    name: String,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    phase: Option<String>,
}

impl Pod {
    /// Returns the node of the pod, or, until it is scheduled, the node that it was made for.
    fn node(&self) -> Option<String> {
        if let Some(node) = &self.spec.node_name {
            return Some(node.clone());
        }
        self.spec.affinity.pointer(MADE_FOR)?.as_str().map(str::to_owned)
    }

    fn made_by(&self) -> Option<&str> {
        let made_it = self.metadata.owner_references.iter().find(|it| it.controller)?;
        Some(&made_it.uid)
    }
}

/// Lists the agents that have this container and these labels.
pub(super) fn list(
    kubectl: &Kubectl,
    selector: &str,
    container: &str,
    limits: Limits<'_>,
) -> anyhow::Result<Found> {
    let words = ["get", "pods", "--selector", selector, "--output", "json"];
    let mut pods: Vec<Pod> = listed(kubectl, "the agents' pods", &words, limits)?;
    // The chart's pods that detach hooks have the labels too.
    pods.retain(|pod| pod.spec.containers.iter().any(|it| it.name == container));
    if pods.is_empty() {
        return Ok(Found::default());
    }
    let words = ["get", "daemonsets", "--output", "json"];
    let sets: Vec<DaemonSet> = listed(kubectl, "whose pods they are", &words, limits)?;
    found(pods, &sets)
}

fn listed<T: DeserializeOwned>(
    kubectl: &Kubectl,
    what: &str,
    words: &[&str],
    limits: Limits<'_>,
) -> anyhow::Result<Vec<T>> {
    let text = kubectl.output(words, limits).map_err(|why| anyhow!("cannot list {what}: {why}"))?;
    let List { items } = serde_json::from_str(&text)
        .with_context(|| format!("what kubectl lists is not a list of {}", words[1]))?;
    Ok(items)
}

fn found(pods: Vec<Pod>, sets: &[DaemonSet]) -> anyhow::Result<Found> {
    let names: BTreeMap<&str, &str> =
        sets.iter().map(|it| (it.metadata.uid.as_str(), it.metadata.name.as_str())).collect();
    let of: BTreeSet<&str> = pods.iter().filter_map(|pod| names.get(pod.made_by()?).copied()).collect();
    if of.len() > 1 {
        let of: Vec<&str> = of.into_iter().collect();
        bail!(
            "pods of several DaemonSets have the labels: {}; name those of the agents by --selector",
            of.join(", ")
        );
    }
    let (own, strangers): (Vec<Pod>, Vec<Pod>) =
        pods.into_iter().partition(|pod| pod.made_by().is_some_and(|uid| names.contains_key(uid)));
    Ok(Found { agents: agents(own), strangers: strangers.into_iter().map(|pod| pod.metadata.name).collect() })
}

/// Returns one agent for each node. While a pod is replaced there are two, and the one that stays is asked.
fn agents(pods: Vec<Pod>) -> Vec<Agent> {
    let mut nodes: BTreeMap<String, Pod> = BTreeMap::new();
    for pod in pods {
        // The pod is on no node, and was made for none.
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

/// Ranks a pod that runs above others, and then one that stays.
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

    use super::{Agent, List, agents, found};

    fn pods(list: serde_json::Value) -> Vec<super::Pod> {
        serde_json::from_value(list).expect("pods")
    }

    #[test]
    fn a_pod_that_no_daemon_set_made_is_no_agent() {
        let pod = |name: &str, node: &str, owners: serde_json::Value| {
            json!({
                "metadata": { "name": name, "ownerReferences": owners },
                "spec": { "nodeName": node, "containers": [{ "name": "sandprobe" }] },
                "status": { "phase": "Running" },
            })
        };
        let by = |uid: &str| json!([{ "kind": "DaemonSet", "uid": uid, "controller": true }]);
        let sets = serde_json::from_value::<Vec<super::DaemonSet>>(json!([
            { "metadata": { "name": "sandprobe", "uid": "u1" } },
            { "metadata": { "name": "other", "uid": "u2" } },
        ]));
        let sets = sets.expect("DaemonSets");
        let all = json!([
            pod("agent", "a", by("u1")),
            pod("alone", "b", json!([])),
            pod("of-replicas", "c", by("u9")),
            pod("named", "d", json!([{ "kind": "DaemonSet", "uid": "u1", "controller": false }])),
        ]);
        let found_all = found(pods(all), &sets).expect("one DaemonSet");
        assert_eq!(found_all.strangers, ["alone", "of-replicas", "named"]);
        assert_eq!(found_all.agents, [Agent { node: "a".to_owned(), pod: Ok("agent".to_owned()) }]);
        let two = json!([pod("agent", "a", by("u1")), pod("agent-2", "a", by("u2"))]);
        let why = found(pods(two), &sets).expect_err("two DaemonSets").to_string();
        assert!(why.contains("several DaemonSets have the labels: other, sandprobe;"), "{why}");
    }

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
