//! Checks a pod's events against the facts about the pod.
//!
//! Ids, inodes, pids and times differ from run to run, so a line names things by their part in the pod.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::kubelet::{PodLife, Step};

/// The events that are the same on every node. The helper programs of a runtime, and how often a cgroup is
/// empty in between, differ with the runtime's version.
const SAME_EVERYWHERE: [&str; 14] = [
    "pod.first_seen",
    "pod.gone",
    "sandbox.created",
    "sandbox.ready",
    "sandbox.stopped",
    "container.started",
    "container.exited",
    "cni.started",
    "cni.finished",
    "netns.created",
    "netns.destroyed",
    "netns.freed",
    "cgroup.created",
    "cgroup.removed",
];

/// Returns the names of these pods' containers, by id.
pub(crate) fn names_in(lives: &[PodLife]) -> BTreeMap<&str, &str> {
    let containers = lives.iter().flat_map(|life| &life.containers);
    containers.map(|container| (container.started.id.as_str(), container.name.as_str())).collect()
}

/// Adds missing container names to these events, and counts them. The name is in the container's bundle,
/// which is removed with it. So the agent does not know the name of a container that ended while the agent
/// was away or late.
pub(crate) fn name_containers(events: &mut [Value], names: &BTreeMap<&str, &str>) -> usize {
    events.iter_mut().map(|event| name_within(event, names)).sum()
}

fn name_within(value: &mut Value, names: &BTreeMap<&str, &str>) -> usize {
    match value {
        Value::Array(parts) => name_containers(parts, names),
        Value::Object(members) => {
            let mut named = members.values_mut().map(|member| name_within(member, names)).sum();
            if let Some(container) = members.get_mut("container")
                && let Some(name) = container["id"].as_str().and_then(|id| names.get(id))
                && container["name"].is_null()
            {
                container["name"] = json!(name);
                named += 1;
            }
            named
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Returns a pod's events as lines: the event's name, and its subject in the pod's terms.
pub(crate) fn lines(events: &[&Value], life: &PodLife) -> Vec<String> {
    events
        .iter()
        .filter(|event| SAME_EVERYWHERE.iter().any(|name| event["event"] == *name))
        .map(|event| line(event, life))
        .collect()
}

fn line(event: &Value, life: &PodLife) -> String {
    let name = event["event"].as_str().unwrap_or_default();
    let (kind, _) = name.split_once('.').unwrap_or((name, ""));
    let detail = match kind {
        "cni" => {
            let cni = &event["cni"];
            let text = |member: &str| cni[member].as_str().unwrap_or("-").to_owned();
            let netns = if text("netns").is_empty() { " blind" } else { "" };
            let from = cni["called_by"].as_str().map(|by| format!(" from {by}")).unwrap_or_default();
            let code = cni["exit_code"].as_u64().map(|code| format!(" exit {code}")).unwrap_or_default();
            format!(" {} {} {}{netns}{from}{code}", text("command"), text("plugin"), text("ifname"))
        }
        "cgroup" => format!(" {}", owner(event, life)),
        "container" => {
            let code = event["process"]["exit_code"].as_u64();
            let code = code.map(|code| format!(" exit {code}")).unwrap_or_default();
            format!(" {}{code}", event["container"]["name"].as_str().unwrap_or("?"))
        }
        _ => String::new(),
    };
    format!("{name}{detail}")
}

/// Returns the owner of a cgroup, by the id in its path.
fn owner(event: &Value, life: &PodLife) -> String {
    let path = event["cgroup"]["path"].as_str().unwrap_or_default();
    if path.contains(&life.sandbox.sandbox.id) {
        return "of the sandbox".to_owned();
    }
    let container = life.containers.iter().find(|container| path.contains(&container.started.id));
    container.map_or("of the pod".to_owned(), |container| format!("of {}", container.name))
}

/// Checks that every expected line is there as often as it is expected, and no other line.
pub(crate) fn check_lines(reported: &[String], expected: &str) -> Result<()> {
    let expected: Vec<_> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut balance = BTreeMap::<&str, i64>::new();
    for line in reported {
        *balance.entry(line).or_default() += 1;
    }
    for line in &expected {
        *balance.entry(line).or_default() -= 1;
    }
    balance.retain(|_, count| *count != 0);
    ensure!(
        balance.is_empty(),
        "too often (+) or not often enough (-): {balance:#?}\nreported: {reported:#?}"
    );
    Ok(())
}

/// Checks that the lines of a chain come in this order. Other lines may come between them.
pub(crate) fn check_order(reported: &[String], chain: &[&str]) -> Result<()> {
    let mut rest = reported.iter();
    for wanted in chain {
        ensure!(
            rest.any(|line| line == wanted),
            "{wanted:?} is out of the order {chain:?}\nreported: {reported:#?}"
        );
    }
    Ok(())
}

/// Checks that every event of the pod names it completely, and that sandbox, netns and containers are the
/// true ones.
pub(crate) fn check_names(events: &[&Value], life: &PodLife) -> Result<()> {
    ensure!(!events.is_empty(), "nothing is reported of {}", life.name);
    for event in events {
        ensure!(event["pod"]["namespace"] == life.namespace && event["pod"]["name"] == life.name, "{event}");
        let sandbox = event["sandbox"]["id"].as_str();
        ensure!(sandbox.is_none_or(|id| id == life.sandbox.sandbox.id), "{event}");
        let inode = event["netns"]["inode"].as_u64();
        ensure!(inode.is_none_or(|inode| inode == life.sandbox.sandbox.netns), "{event}");
    }
    for container in &life.containers {
        let exited = find(events, "container.exited", &container.started.id)?;
        ensure!(exited["process"]["exit_code"] == container.exit.code, "{exited}");
        let started = find(events, "container.started", &container.started.id)?;
        // The container may have ended before the runtime could be asked for the pid.
        ensure!(
            container.started.pid == 0 || started["process"]["pid"] == container.started.pid,
            "{started}"
        );
        // The runtime answers when it has started the program, perhaps before the program runs.
        within(started, Step { asked: container.run.asked, done: container.exit_known })?;
    }
    Ok(())
}

/// Checks that the kernel's time lies between the request and the answer, by one clock. For a listed thing
/// the time is the listing's, which may be later.
pub(crate) fn within(event: &Value, step: Step) -> Result<()> {
    let at = boot_ns(event)?;
    let done = if event["origin"] == "listed" { u64::MAX } else { step.done };
    ensure!((step.asked..=done).contains(&at), "{at} is not in {step:?}: {event}");
    Ok(())
}

fn boot_ns(event: &Value) -> Result<u64> {
    Ok(event["boot_ns"].as_str().with_context(|| format!("no boot_ns: {event}"))?.parse()?)
}

/// Returns the one event with this name about this container.
pub(crate) fn find<'a>(events: &[&'a Value], name: &str, container: &str) -> Result<&'a Value> {
    let mut found =
        events.iter().filter(|event| event["event"] == name && event["container"]["id"] == container);
    let first = found.next().with_context(|| format!("no {name} of container {container}"))?;
    ensure!(found.next().is_none(), "{name} of container {container} is reported twice");
    Ok(first)
}
