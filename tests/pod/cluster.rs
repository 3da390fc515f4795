//! The agent reports a real incident to the cluster: as an Event on the pod and one on the node, which
//! `kubectl describe` shows.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::{
    api_server::ApiServer,
    clock,
    keyed::Faults,
    machine,
    node::Node,
    skipped,
    story::{Stage, job},
    succession::{End, Place},
};

use crate::verdict::{declared_store, grace};

const NODE: &str = "worker-1";

/// Returns the Event on the object of this kind and name.
fn event_on(server: &ApiServer, kind: &str, name: &str) -> Option<Value> {
    let is_on = |it: &&Value| it["involvedObject"]["kind"] == kind && it["involvedObject"]["name"] == name;
    server.events().iter().find(is_on).cloned()
}

/// The redundant sandbox of a finished pod, its killed pause and the leaked address are one incident.
#[test]
fn an_incident_is_one_event_on_its_pod_and_one_on_the_node() -> Result<()> {
    skipped::retry(|_| incident())
}

fn incident() -> Result<()> {
    let mut node = Node::start_keyed(Faults::default())?;
    let server = ApiServer::start(NODE)?;
    let folder = tempfile::tempdir()?;
    let kubeconfig = server.kubeconfig(folder.path())?.display().to_string();
    let mut place = Place::new()?;
    let store = declared_store(&node).context("a store")?;
    let leak_grace = format!("{}s", grace().as_secs());
    let cluster = ["--kubernetes-events", "--kubeconfig", &kubeconfig, "--node", NODE];
    let limits = ["--leak-grace", &leak_grace, "--ipam-store", &store];
    // Things that appear while the node is still listed may be older than the agent.
    let agent = place.run_until_ready(&[&cluster[..], &limits].concat())?;
    let pod = job("redundant");
    let mut stage = Stage::new(&mut node)?;
    stage.redundant_sandbox(&pod)?;
    let leaked = clock::poll("the leak is confirmed", machine::patience(), || {
        let is_it = |event: &Value| {
            event["event"] == "finding.confirmed" && event["finding"]["kind"] == "leaked_address"
        };
        Ok(place.events()?.iter().any(is_it).then_some(()))
    });
    let told = clock::poll("both Events", machine::patience(), || {
        let both = [event_on(&server, "Pod", &pod.name), event_on(&server, "Node", NODE)];
        Ok(both.into_iter().collect::<Option<Vec<Value>>>())
    });
    agent.end(End::Stopped)?;
    stage.clean()?;
    leaked?;
    let told = told.with_context(|| format!("{:#?}\n{}", server.answered(), place.errors()))?;
    ensure!(server.events().len() == 2, "more than two: {:#?}", server.events());
    let concerns = |event: &&Value| {
        event["event"].as_str().is_some_and(|name| name == "gap" || name.starts_with("finding."))
    };
    let events = place.events()?;
    let concerning: Vec<&Value> = events.iter().filter(concerns).collect();
    for event in &told {
        let is_root = event["reason"] == "DuplicateSandbox" && event["type"] == "Warning";
        ensure!(is_root, "{event:#}\nof {concerning:#?}");
        let message = event["message"].as_str().unwrap_or_default();
        ensure!(message.starts_with("a sandbox was made after the pod was done"), "{event:#}");
    }
    let involved = &told[0]["involvedObject"];
    ensure!(involved["uid"] == pod.uid && involved["namespace"] == pod.namespace, "{involved}");
    node.stop()
}
