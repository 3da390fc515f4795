//! Docker's own record of a container, with the labels that dockershim and cri-dockerd set for the kubelet.

use serde::Deserialize;

use crate::model::{
    fact::{ContainerFound, NameSource, PodName, Role},
    id::{ContainerId, PodUid},
};

#[derive(Debug, Deserialize)]
struct Record {
    #[serde(rename = "Name", default)]
    name: String,
    #[serde(rename = "Config", default)]
    config: Config,
}

#[derive(Debug, Default, Deserialize)]
struct Config {
    #[serde(rename = "Labels", default)]
    labels: Option<Labels>,
}

#[derive(Debug, Default, Deserialize)]
struct Labels {
    #[serde(rename = "io.kubernetes.docker.type")]
    kind: Option<String>,
    #[serde(rename = "io.kubernetes.sandbox.id")]
    sandbox: Option<String>,
    #[serde(rename = "io.kubernetes.pod.name")]
    pod: Option<String>,
    #[serde(rename = "io.kubernetes.pod.namespace")]
    namespace: Option<String>,
    #[serde(rename = "io.kubernetes.pod.uid")]
    uid: Option<String>,
    #[serde(rename = "io.kubernetes.container.name")]
    container: Option<String>,
}

/// Parses `config.v2.json`; `None` if it is not a record.
pub(super) fn parse(record: &[u8], id: &ContainerId) -> Option<ContainerFound> {
    let record: Record = serde_json::from_slice(record).ok()?;
    let labels = record.config.labels.unwrap_or_default();
    let role = if labels.kind.as_deref() == Some("podsandbox") { Role::Sandbox } else { Role::Container };
    let pod = PodName {
        namespace: labels.namespace,
        name: labels.pod,
        uid: labels.uid.as_deref().and_then(PodUid::parse),
    };
    let (sandbox, name) = match role {
        Role::Sandbox => (Some(id.clone()), None),
        Role::Container => {
            let own = record.name.strip_prefix('/').unwrap_or(&record.name);
            let own = (!own.is_empty()).then(|| own.to_owned());
            (labels.sandbox.as_deref().and_then(ContainerId::parse), labels.container.or(own))
        }
    };
    let pod = (pod != PodName::default()).then_some(pod);
    Some(ContainerFound {
        id: id.clone(),
        role,
        sandbox,
        name,
        pod,
        source: NameSource::Bundle,
        started: None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{ContainerId, Role, parse};

    fn id(text: &str) -> ContainerId {
        ContainerId::parse(text).expect("an id")
    }

    #[test]
    fn labels_name_the_pod() {
        let record = br#"{"ID":"c1","Name":"/k8s_main_web-0_default_u_0","Config":{"Hostname":"web-0","Labels":{
            "io.kubernetes.container.name":"main","io.kubernetes.docker.type":"container","io.kubernetes.pod.name":"web-0",
            "io.kubernetes.pod.namespace":"default","io.kubernetes.pod.uid":"11111111-2222-3333-4444-555555555555",
            "io.kubernetes.sandbox.id":"s1"}}}"#;
        let found = parse(record, &id("c1")).expect("a record");
        let pod = found.pod.expect("a pod");
        assert_eq!((pod.namespace.as_deref(), pod.name.as_deref()), (Some("default"), Some("web-0")));
        assert!(pod.uid.is_some());
        assert_eq!((found.role, found.name.as_deref()), (Role::Container, Some("main")));
        assert_eq!(found.sandbox, Some(id("s1")));

        let record = br#"{"Config":{"Labels":{"io.kubernetes.container.name":"POD",
            "io.kubernetes.docker.type":"podsandbox","io.kubernetes.pod.name":"web-0"}}}"#;
        let found = parse(record, &id("s1")).expect("a record");
        assert_eq!((found.role, found.name, found.sandbox), (Role::Sandbox, None, Some(id("s1"))));
    }

    #[test]
    fn a_container_of_no_pod_has_its_own_name() {
        let found = parse(br#"{"Name":"/db","Config":{"Labels":null}}"#, &id("c1")).expect("a record");
        assert_eq!((found.name.as_deref(), found.pod), (Some("db"), None));
        assert_eq!(parse(b"[1", &id("c1")), None);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes: Vec<u8>) {
            parse(&bytes, &id("c1"));
        }
    }
}
