//! Events as objects of core/v1. For this older API `kubectl describe` shows the count and the first time,
//! and the text and the type may be changed later, which events.k8s.io/v1 forbids.

use jiff::Timestamp as WallTime;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use serde_json::{Value, json};

use super::plan::{EventAction, Object, Step, Subject};
use crate::{api_server::text::cut, model::hash::fnv};

/// The namespace of Events about nodes, which the kubelet uses too.
const OF_NODES: &str = "default";
/// The reporting component, as `kubectl describe` shows it.
const COMPONENT: &str = "sandprobe";
/// The longest message, bytes (`NoteLengthLimit` of the API server).
const MAX_MESSAGE: usize = 1024;
/// The longest part of an object's name in the name of its Event, bytes.
const MAX_NAME: usize = 200;

/// An Event on the API server.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Place {
    /// Returns the place of an Event. It is the same for the next agent, so that each agent does not report a
    /// finding again.
    pub(super) fn of((object, key): &Subject, node: &str) -> Self {
        let (namespace, name, uid) = match object {
            Object::Node => (OF_NODES, node, node),
            Object::Pod { namespace, name, uid } => (namespace.as_str(), name.as_str(), uid.as_str()),
        };
        let sum = fnv(format!("{node}\n{uid}\n{key}").as_bytes());
        let name = cut(name, MAX_NAME).trim_end_matches(['-', '.']);
        Self { namespace: namespace.to_owned(), name: format!("{name}.{sum:016x}") }
    }

    /// The path of the namespace's Events.
    pub(super) fn collection(&self) -> String {
        format!("/api/v1/namespaces/{}/events", self.namespace)
    }
}

/// Makes the Event of a finding that is reported for the first time.
pub(super) fn event(step: &Step, place: &Place, node: &str, now: WallTime) -> Event {
    let (object, _) = &step.subject;
    let involved_object = match object {
        // `kubectl describe node` looks for Events of the node's own agents by this UID.
        Object::Node => ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            uid: Some(node.to_owned()),
            ..ObjectReference::default()
        },
        Object::Pod { namespace, name, uid } => ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(namespace.clone()),
            name: Some(name.clone()),
            uid: Some(uid.as_str().to_owned()),
            ..ObjectReference::default()
        },
    };
    Event {
        metadata: ObjectMeta {
            namespace: Some(place.namespace.clone()),
            name: Some(place.name.clone()),
            ..ObjectMeta::default()
        },
        involved_object,
        reason: Some(step.reason.word().to_owned()),
        message: Some(text(step)),
        type_: Some(kind(step.action).to_owned()),
        source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: Some(node.to_owned()) }),
        reporting_component: Some(COMPONENT.to_owned()),
        reporting_instance: Some(node.to_owned()),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        ..Event::default()
    }
}

/// Makes the patch of an existing Event (JSON merge patch).
pub(super) fn change(step: &Step, now: WallTime) -> Value {
    let mut change = json!({ "type": kind(step.action), "message": text(step), "lastTimestamp": Time(now) });
    if let EventAction::Again { count } = step.action {
        change["count"] = json!(count.saturating_add(1));
    }
    change
}

/// The type of the Event. A finished finding is a Normal Event.
fn kind(action: EventAction) -> &'static str {
    match action {
        EventAction::Begin | EventAction::Again { .. } => "Warning",
        EventAction::End => "Normal",
    }
}

fn text(step: &Step) -> String {
    match step.action {
        EventAction::Begin | EventAction::Again { .. } => cut(&step.text, MAX_MESSAGE).to_owned(),
        EventAction::End => cut(&format!("over: {}", step.text), MAX_MESSAGE).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{MAX_MESSAGE, Place, WallTime, change, event};
    use crate::{
        model::{
            finding::{FindingKind, Key},
            id::PodUid,
        },
        sink::kubernetes::plan::{EventAction, Object, Step},
    };

    const UID: &str = "de300000-0000-4000-8000-000000000001";

    fn step(object: Object, text: &str, action: EventAction) -> Step {
        let key = Key::parse("leaked_address/net/10.0.0.7").expect("a key");
        Step::new((object, key), FindingKind::LeakedAddress, text.to_owned(), action)
    }

    fn pod(name: &str) -> Object {
        Object::Pod {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            uid: PodUid::parse(UID).expect("a UID"),
        }
    }

    #[test]
    fn an_event_is_found_with_its_object() {
        let now = WallTime::from_second(1_795_237_053).expect("a time");
        let on_pod = step(pod("web"), "10.0.0.7 leaked", EventAction::Begin);
        let place = Place::of(&on_pod.subject, "n1");
        let made = serde_json::to_value(event(&on_pod, &place, "n1", now)).expect("JSON");
        let wanted = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "namespace": "shop", "name": place.name },
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web", "uid": UID,
            },
            "reason": "LeakedAddress",
            "message": "10.0.0.7 leaked",
            "type": "Warning",
            "source": { "component": "sandprobe", "host": "n1" },
            "reportingComponent": "sandprobe",
            "reportingInstance": "n1",
            "firstTimestamp": "2026-11-21T04:57:33Z",
            "lastTimestamp": "2026-11-21T04:57:33Z",
            "count": 1,
        });
        assert_eq!(made, wanted);
        let on_node = step(Object::Node, "10.0.0.7 leaked", EventAction::Begin);
        let of_node = Place::of(&on_node.subject, "n1");
        assert_eq!(
            (of_node.namespace.as_str(), of_node.collection().as_str()),
            ("default", "/api/v1/namespaces/default/events")
        );
        let made = serde_json::to_value(event(&on_node, &of_node, "n1", now)).expect("JSON");
        assert_eq!(
            made["involvedObject"],
            json!({ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1" })
        );
    }

    #[test]
    fn only_what_differs_is_changed() {
        let now = WallTime::from_second(1_795_237_053).expect("a time");
        let at = "2026-11-21T04:57:33Z";
        let told = |action| change(&step(Object::Node, "it leaked", action), now);
        // The last agent reported it, and its count goes on.
        assert_eq!(
            told(EventAction::Begin),
            json!({ "type": "Warning", "message": "it leaked", "lastTimestamp": at })
        );
        let again = json!({ "type": "Warning", "message": "it leaked", "lastTimestamp": at, "count": 4 });
        assert_eq!(told(EventAction::Again { count: 3 }), again);
        let over = json!({ "type": "Normal", "message": "over: it leaked", "lastTimestamp": at });
        assert_eq!(told(EventAction::End), over);
    }

    /// The next agent finds the Event of the last one by its name.
    #[test]
    fn an_event_has_a_name_of_its_own_that_stays() {
        let name = |object, node: &str| Place::of(&step(object, "", EventAction::Begin).subject, node).name;
        assert_eq!(name(pod("web"), "n1"), "web.e1350ab6be2300a3");
        assert_eq!(name(Object::Node, "n1"), "n1.128db8038ca7fc4d");
        assert_ne!(name(Object::Node, "n2").rsplit('.').next(), name(Object::Node, "n1").rsplit('.').next());
        // The name of an object has at most 253 bytes.
        let long = "a".repeat(199) + "-" + &"b".repeat(53);
        let cut = name(pod(&long), "n1");
        assert!(cut.len() <= 253 && cut.starts_with(&("a".repeat(199) + ".")), "{cut}");
    }

    #[test]
    fn a_long_text_is_cut_between_letters() {
        for action in [EventAction::Begin, EventAction::End] {
            let text = "\u{20ac}".repeat(MAX_MESSAGE);
            let change = change(&step(Object::Node, &text, action), WallTime::UNIX_EPOCH);
            let cut = change["message"].as_str().expect("a text").len();
            assert!((MAX_MESSAGE - 3..=MAX_MESSAGE).contains(&cut), "{cut}");
        }
    }
}
