//! The objects, and the checks that refuse invalid ones.

use k8s_openapi::api::core::v1::{Event, Node};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use super::{State, connection::Request};

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Value,
}

/// The kind of object at a path.
#[derive(Debug)]
pub(super) enum Kind {
    Events { namespace: String },
    Event { namespace: String, name: String },
    NodeStatus { name: String },
}

impl Kind {
    pub(super) fn of(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.strip_prefix("/api/v1/")?.split('/').collect();
        Some(match *parts.as_slice() {
            ["namespaces", namespace, "events"] => Self::Events { namespace: namespace.to_owned() },
            ["namespaces", namespace, "events", name] => {
                Self::Event { namespace: namespace.to_owned(), name: name.to_owned() }
            }
            ["nodes", name, "status"] => Self::NodeStatus { name: name.to_owned() },
            _ => return None,
        })
    }

    /// Returns the resource as rules name it.
    pub(super) fn resource(&self) -> &'static str {
        match self {
            Self::Events { .. } | Self::Event { .. } => "events",
            Self::NodeStatus { .. } => "nodes/status",
        }
    }
}

pub(super) fn refused(code: u16, reason: &str, message: &str) -> Answer {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    Answer { status: code, body }
}

fn invalid(why: &str) -> Answer {
    refused(422, "Invalid", why)
}

/// Refuses members that the type does not keep: they are misspelt, misplaced or mistyped.
fn check<T: DeserializeOwned + Serialize>(object: &Value) -> Result<(), Answer> {
    let back = serde_json::from_value::<T>(object.clone()).map_err(|why| invalid(&why.to_string()))?;
    let back = serde_json::to_value(back).map_err(|why| invalid(&why.to_string()))?;
    if back == *object { Ok(()) } else { Err(invalid(&format!("{object} is kept as {back}"))) }
}

/// Whether this is a DNS subdomain (RFC 1123), as names of objects must be.
fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(is_inner)
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

/// `pkg/apis/core/validation/events.go`
fn check_event(event: &Value) -> Result<(), Answer> {
    check::<Event>(event)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let involved = &event["involvedObject"];
    let (namespace, of) = (text(&event["metadata"]["namespace"]), text(&involved["namespace"]));
    let fits = if of.is_empty() { namespace == "default" } else { namespace == of };
    if !fits {
        return Err(invalid("involvedObject.namespace: does not match event.namespace"));
    }
    if !is_name(&text(&event["metadata"]["name"])) {
        return Err(invalid("metadata.name: no subdomain"));
    }
    if !["Normal", "Warning"].contains(&event["type"].as_str().unwrap_or_default()) {
        return Err(invalid("type: neither Normal nor Warning"));
    }
    if text(&event["message"]).len() > 1024 || text(&event["reason"]).len() > 128 {
        return Err(invalid("it is too long"));
    }
    Ok(())
}

fn body(request: &Request, kind: &str) -> Result<Value, Answer> {
    if request.header("content-type") != Some(kind) {
        return Err(refused(415, "UnsupportedMediaType", &format!("{:?}", request.header("content-type"))));
    }
    serde_json::from_slice(&request.body).map_err(|why| refused(400, "BadRequest", &why.to_string()))
}

pub(super) fn create_event(state: &mut State, namespace: &str, request: &Request) -> Result<Answer, Answer> {
    let mut event = body(request, "application/json")?;
    // These may be left out, as with `kubectl`.
    for (key, value) in [("apiVersion", "v1"), ("kind", "Event")] {
        event.as_object_mut().ok_or_else(|| invalid("no object"))?.entry(key).or_insert_with(|| value.into());
    }
    check_event(&event)?;
    if event["metadata"]["namespace"] != namespace {
        return Err(refused(400, "BadRequest", "the namespace of the object does not match the path"));
    }
    let name = event["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let key = (namespace.to_owned(), name);
    if state.events.contains_key(&key) {
        return Err(refused(409, "AlreadyExists", "it exists already"));
    }
    state.events.insert(key, event.clone());
    Ok(Answer { status: 201, body: event })
}

pub(super) fn patch_event(
    state: &mut State,
    namespace: &str,
    name: &str,
    request: &Request,
) -> Result<Answer, Answer> {
    let patch = body(request, "application/merge-patch+json")?;
    let key = (namespace.to_owned(), name.to_owned());
    let event = state.events.get_mut(&key).ok_or_else(|| refused(404, "NotFound", "no such event"))?;
    let mut changed = event.clone();
    merge(&mut changed, &patch);
    check_event(&changed)?;
    *event = changed.clone();
    Ok(Answer { status: 200, body: changed })
}

/// Merges by RFC 7396, for patches that remove nothing.
fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(target.entry(key).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

/// Applies a strategic merge patch of conditions, whose key is their type.
pub(super) fn patch_node(state: &mut State, request: &Request) -> Result<Answer, Answer> {
    let patch = body(request, "application/strategic-merge-patch+json")?;
    check::<Node>(&with_head(&patch)?)?;
    // An empty patch returns the present object.
    if patch == json!({}) {
        return Ok(Answer { status: 200, body: state.node.clone() });
    }
    let only = |object: &Value, key: &str| object.as_object().is_some_and(|it| it.keys().eq([key]));
    if !only(&patch, "status") || !only(&patch["status"], "conditions") {
        return Err(invalid("more than conditions"));
    }
    let mut node = state.node.clone();
    let kept = node["status"]["conditions"].as_array_mut().ok_or_else(|| invalid("no conditions"))?;
    for condition in patch["status"]["conditions"].as_array().into_iter().flatten() {
        match kept.iter_mut().find(|it| it["type"] == condition["type"]) {
            Some(old) => merge(old, condition),
            None => kept.push(condition.clone()),
        }
    }
    check::<Node>(&node)?;
    state.node = node.clone();
    Ok(Answer { status: 200, body: node })
}

fn with_head(patch: &Value) -> Result<Value, Answer> {
    let mut whole = Map::from_iter([
        ("apiVersion".to_owned(), "v1".into()),
        ("kind".to_owned(), "Node".into()),
        ("metadata".to_owned(), json!({})),
    ]);
    whole.extend(patch.as_object().ok_or_else(|| invalid("no object"))?.clone());
    Ok(whole.into())
}
