//! The policies of the chart admit an agent's requests for its own node, and no other request with its token.

mod policy;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::{
    api::{
        core::v1::{
            AttachedVolume, ContainerImage, DaemonEndpoint, NodeAddress, NodeCondition, NodeConfigStatus,
            NodeDaemonEndpoints, NodeFeatures, NodeRuntimeHandler, NodeStatus, NodeSystemInfo,
        },
        rbac::v1::ClusterRole,
    },
    apimachinery::pkg::api::resource::Quantity,
};
use serde_json::{Value, json};

use self::policy::{CLAIM, Policies, Request};
use crate::render;

const FOREIGN_EVENT: &str = "sandprobe may write no Events but its own, of the node on which it runs";
const CHANGED_EVENT: &str = "sandprobe may change no Events but its own, of the node on which it runs";
const OTHER_OBJECT: &str = "sandprobe may write Events of pods, and of the node on which it runs";
const OTHER_NODE: &str = "sandprobe may write the status of no node but the one on which it runs";
const OTHER_CONDITION: &str = "of the conditions of a node sandprobe may write SandboxHealthy alone";
const MORE: &str = "of a node sandprobe may write a condition alone";

/// Returns an Event as an agent makes it (`sink/kubernetes/event.rs`) and the API server completes it.
fn event(node: &str, involved: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": "web.e1350ab6be2300a3", "namespace": "shop" },
        "involvedObject": involved,
        "reason": "LeakedAddress",
        "message": "10.0.0.7 leaked",
        "type": "Warning",
        "source": { "component": "sandprobe", "host": node },
        "reportingComponent": "sandprobe",
        "reportingInstance": node,
        "count": 1,
    })
}

fn of_pod() -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "name": "web", "namespace": "shop", "uid": "u" })
}

fn of_node(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "name": name, "uid": name })
}

/// Returns the object with another value at a path, or without one.
fn with(object: &Value, path: &str, value: Value) -> Value {
    let mut object = object.clone();
    let (parent, name) = path.rsplit_once('/').expect("a path");
    let parent = object.pointer_mut(parent).and_then(Value::as_object_mut).expect("its parent");
    if value.is_null() {
        parent.remove(name);
    } else {
        parent.insert(name.to_owned(), value);
    }
    object
}

#[test]
fn an_agent_writes_its_own_events_alone() -> Result<()> {
    let policies = Policies::rendered()?;
    let (on_pod, on_node) = (event("node-1", &of_pod()), event("node-1", &of_node("node-1")));
    let kubelets =
        with(&with(&on_pod, "/reportingComponent", "kubelet".into()), "/source/component", "kubelet".into());
    let nobodys = with(&on_pod, "/reportingComponent", "".into());
    let of_other = event("node-2", &of_pod());
    let over = |old: &Value| with(old, "/type", "Normal".into());
    let of_set = with(&on_pod, "/involvedObject/kind", "DaemonSet".into());
    let none = Value::Null;
    let failed = format!("{OTHER_OBJECT} (failed)");
    let cases: [(&str, Value, &Value, &[&str]); 14] = [
        ("of a pod", on_pod.clone(), &none, &[]),
        ("of its node", on_node.clone(), &none, &[]),
        ("again, of a pod", over(&on_pod), &on_pod, &[]),
        ("again, of its node", over(&on_node), &on_node, &[]),
        ("as another node's", of_other.clone(), &none, &[FOREIGN_EVENT]),
        ("as the kubelet's", kubelets.clone(), &none, &[FOREIGN_EVENT]),
        ("as nobody's", nobodys.clone(), &none, &[FOREIGN_EVENT]),
        ("of another node", event("node-1", &of_node("node-2")), &none, &[OTHER_OBJECT]),
        ("of a DaemonSet", of_set, &none, &[OTHER_OBJECT]),
        ("of no object", event("node-1", &json!({})), &none, &[&failed]),
        ("another node's, changed", over(&of_other), &of_other, &[CHANGED_EVENT, FOREIGN_EVENT]),
        ("another node's, taken", on_pod.clone(), &of_other, &[CHANGED_EVENT]),
        ("the kubelet's, taken", on_pod.clone(), &kubelets, &[CHANGED_EVENT]),
        ("an older one without a reporter, taken", on_pod.clone(), &nobodys, &[CHANGED_EVENT]),
    ];
    for (name, object, old, wanted) in cases {
        let refused = policies.refuse(&Request::of_node_1("events", object, old.clone()))?;
        ensure!(refused == wanted, "an Event {name}: {refused:#?}");
    }
    Ok(())
}

/// Returns a status with all members, so that a new member of a later version does not stay unnoticed.
fn status() -> NodeStatus {
    let quantity = |text: &str| BTreeMap::from([("cpu".to_owned(), Quantity(text.to_owned()))]);
    let condition = |kind: &str, status: &str| NodeCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        ..NodeCondition::default()
    };
    NodeStatus {
        addresses: Some(vec![NodeAddress { address: "10.0.0.1".to_owned(), type_: "InternalIP".to_owned() }]),
        allocatable: Some(quantity("3")),
        capacity: Some(quantity("4")),
        conditions: Some(vec![condition("Ready", "True"), condition("DiskPressure", "False")]),
        config: Some(NodeConfigStatus { error: Some("none".to_owned()), ..NodeConfigStatus::default() }),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint { port: 10250 }),
        }),
        features: Some(NodeFeatures { supplemental_groups_policy: Some(true) }),
        images: Some(vec![ContainerImage { names: None, size_bytes: Some(1) }]),
        node_info: Some(NodeSystemInfo { kernel_version: "6.12".to_owned(), ..NodeSystemInfo::default() }),
        phase: Some("Running".to_owned()),
        runtime_handlers: Some(vec![NodeRuntimeHandler { features: None, name: Some("runc".to_owned()) }]),
        volumes_attached: Some(vec![AttachedVolume {
            device_path: "/dev/a".to_owned(),
            name: "a".to_owned(),
        }]),
        volumes_in_use: Some(vec!["a".to_owned()]),
    }
}

fn node(name: &str) -> Result<Value> {
    let mut status = serde_json::to_value(status())?;
    // Kubernetes has it from 1.35 on.
    status["declaredFeatures"] = json!(["GuaranteedQoSPodCPUResize"]);
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": "u",
            "resourceVersion": "7",
            "labels": { "pool": "small" },
            "annotations": { "a": "b" },
            "finalizers": ["f"],
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Machine", "name": "m", "uid": "m" }],
        },
        "spec": { "podCIDR": "10.1.0.0/24" },
        "status": status,
    }))
}

fn healthy(status: &str, transition: &str) -> Value {
    json!({ "type": "SandboxHealthy", "status": status, "lastTransitionTime": transition })
}

fn conditions(node: &Value, change: impl FnOnce(&mut Vec<Value>)) -> Value {
    let mut all = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    change(&mut all);
    with(node, "/status/conditions", all.into())
}

#[test]
fn an_agent_writes_one_condition_of_its_node_alone() -> Result<()> {
    let policies = Policies::rendered()?;
    let without = node("node-1")?;
    let (ok, ill) = (healthy("True", "1"), healthy("False", "2"));
    let told = |node: &Value, condition: &Value| conditions(node, |all| all.push(condition.clone()));
    let with_ok = told(&without, &ok);
    // A new node.
    let bare = with(&without, "/status/conditions", Value::Null);
    let other = told(&node("node-2")?, &ok);
    let theirs = |change: fn(&mut Vec<Value>)| conditions(&with_ok, change);
    let cases: [(&str, Value, &Value, &[&str]); 15] = [
        ("nothing changed", without.clone(), &without, &[]),
        ("the condition added", with_ok.clone(), &without, &[]),
        ("the first of all conditions", told(&bare, &ok), &bare, &[]),
        ("the condition changed", told(&without, &ill), &with_ok, &[]),
        ("the condition removed", without.clone(), &with_ok, &[]),
        ("the condition first", conditions(&without, |all| all.insert(0, ok.clone())), &without, &[]),
        ("another version", with(&with_ok, "/metadata/resourceVersion", "8".into()), &with_ok, &[]),
        ("another node", other.clone(), &node("node-2")?, &[OTHER_NODE]),
        ("the condition twice", told(&with_ok, &ill), &with_ok, &[OTHER_CONDITION]),
        ("Ready changed", theirs(|all| all[0]["status"] = "False".into()), &with_ok, &[OTHER_CONDITION]),
        ("Ready removed", theirs(|all| drop(all.remove(0))), &with_ok, &[OTHER_CONDITION]),
        ("Ready twice", conditions(&without, |all| all.push(all[0].clone())), &without, &[OTHER_CONDITION]),
        (
            "Ready heard of later",
            theirs(|all| all[0]["lastHeartbeatTime"] = "9".into()),
            &with_ok,
            &[OTHER_CONDITION],
        ),
        (
            "one of another's added",
            theirs(|all| all[2]["type"] = "Mine".into()),
            &without,
            &[OTHER_CONDITION],
        ),
        ("all of them removed", bare.clone(), &without, &[OTHER_CONDITION]),
    ];
    for (name, object, old, wanted) in cases {
        let refused = policies.refuse(&Request::of_node_1("nodes/status", object, old.clone()))?;
        ensure!(refused == wanted, "{name}: {refused:#?}");
    }
    Ok(())
}

/// A write of the status could change these members too.
#[test]
fn an_agent_writes_no_other_member_of_its_node() -> Result<()> {
    let policies = Policies::rendered()?;
    let old = node("node-1")?;
    let members = |parent: &str| -> Result<Vec<String>> {
        let all = old[parent].as_object().context("an object")?;
        Ok(all.keys().map(|name| format!("/{parent}/{name}")).collect())
    };
    // Members that the API server itself keeps, and members that the other tests change.
    let kept = ["/metadata/name", "/metadata/uid", "/metadata/resourceVersion", "/status/conditions"];
    let mut paths = [members("metadata")?, members("status")?].concat();
    paths.retain(|path| !kept.contains(&path.as_str()));
    ensure!(paths.len() == 17, "{paths:?}");
    for path in paths {
        let value = old.pointer(&path).context("a value")?;
        let other = match value {
            Value::Object(members) if path.starts_with("/metadata") => {
                Value::Object(members.iter().map(|(name, _)| (name.clone(), "other".into())).collect())
            }
            Value::Array(items) => Value::Array([&items[..], items].concat()),
            Value::Object(_) => json!({ "other": true }),
            _ => "other".into(),
        };
        let changed = [("removed", with(&old, &path, Value::Null)), ("changed", with(&old, &path, other))];
        for (how, object) in changed {
            let (more, less) = ((&object, &old), (&old, &object));
            for (object, old) in [more, less] {
                let request = Request::of_node_1("nodes/status", object.clone(), old.clone());
                let refused = policies.refuse(&request)?;
                ensure!(refused == [MORE], "{path} {how}: {refused:#?}");
            }
        }
    }
    Ok(())
}

/// A token without a node, as from `kubectl create token`, may write nothing. The policies do not apply to
/// other users.
#[test]
fn a_token_of_no_node_writes_nothing_and_others_are_not_asked() -> Result<()> {
    let policies = Policies::rendered()?;
    let event = Request::of_node_1("events", event("node-1", &of_pod()), Value::Null);
    let node = node("node-1")?;
    let told = conditions(&node, |all| all.push(healthy("True", "1")));
    let condition = Request::of_node_1("nodes/status", told, node);
    for (request, message) in [(event, FOREIGN_EVENT), (condition, OTHER_NODE)] {
        let extra = |extra: Option<Value>| Request { extra, ..request.clone() };
        let failed = format!("{message} (failed)");
        for (claims, wanted) in [
            (json!({}), message),
            (json!({ "authentication.kubernetes.io/pod-name": ["node-1"] }), message),
            (json!({ CLAIM: [] }), message),
            (json!({ CLAIM: ["node-2"] }), message),
            (json!({ CLAIM: ["node-10"] }), message),
        ] {
            let refused = policies.refuse(&extra(Some(claims.clone())))?;
            ensure!(refused == [wanted], "{claims}: {refused:#?}");
        }
        // Without any claim, the expression that reads them fails, and the request is refused.
        let refused = policies.refuse(&extra(None))?;
        ensure!(refused == [failed], "{refused:#?}");
        for user in ["system:node:node-1", "system:serviceaccount:default:sandprobe"] {
            let other = Request { user, ..extra(None) };
            let refused = policies.refuse(&other)?;
            ensure!(refused.is_empty(), "{user}: {refused:#?}");
        }
    }
    Ok(())
}

/// Each right of the agent, as admission names the operation.
#[test]
fn every_right_has_its_policy() -> Result<()> {
    let objects = render::rendered(&["kubernetes.events=true", "kubernetes.condition=true"])?;
    let role: ClusterRole = serde_json::from_value(render::only(&objects, "ClusterRole")?.clone())?;
    let policies = Policies::rendered()?;
    let mut rights = 0;
    for rule in role.rules.unwrap_or_default() {
        ensure!(rule.api_groups == Some(vec![String::new()]), "{:?}", rule.api_groups);
        for resource in rule.resources.unwrap_or_default() {
            for verb in &rule.verbs {
                let operation = match verb.as_str() {
                    "create" => "CREATE",
                    "patch" => "UPDATE",
                    other => bail!("{other} of {resource} is no write that a policy could see"),
                };
                let about = policies.about(operation, &resource).count();
                ensure!(about == 1, "{verb} of {resource} has {about} policies");
                rights += 1;
            }
        }
    }
    ensure!(rights == 3, "{rights} rights");
    Ok(())
}
