//! Docker. The database of its networks is in its root directory; an option or the configuration may name
//! another root.
//!
//! Its records are a file for each container, with the labels that dockershim and cri-dockerd set for the
//! kubelet. They say which containers are sandboxes.

use std::path::{Path, PathBuf};

use probe_common::runtime::DOCKER;
use serde::Deserialize;

use super::{
    Place, Reader, Records,
    daemon::{
        Daemon, Kind, Process, opened,
        settings::{self, UnreadSetting},
    },
    list_containers,
};
use crate::{
    model::{
        fact::{ContainerFound, NameSource, PodName, Role, RuntimeKind, RuntimeSandbox},
        id::{ContainerId, PodUid},
    },
    source::{
        backfill::Listing,
        host::{ReadError, memo::Memo},
    },
};

pub(super) const READER: Reader = Reader { daemon, records };

#[derive(Debug, Default, Deserialize)]
struct Configuration {
    #[serde(rename = "data-root", alias = "graph")]
    root: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Record {
    #[serde(rename = "Name", default)]
    name: String,
    #[serde(rename = "Config", default)]
    config: RecordConfig,
}

#[derive(Debug, Default, Deserialize)]
struct RecordConfig {
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

fn daemon(process: &Process<'_>) -> Daemon {
    let read = configuration(process);
    let (config, unread) = read.map_or_else(|unread| (None, Some(unread)), |config| (Some(config), None));
    let root = DOCKER
        .database
        .and_then(|database| opened::folder_of(process.folder, database))
        .or_else(|| process.option(&["--data-root", "--graph", "-g"]))
        .or_else(|| Some(process.absolute(config.as_ref()?.root.as_deref().filter(|root| !root.is_empty())?)))
        .or_else(|| if config.is_some() { DOCKER.roots.first().map(PathBuf::from) } else { None });
    Daemon { root, unread, ..Daemon::new(Kind::Runtime(RuntimeKind::Docker)) }
}

fn configuration(process: &Process<'_>) -> Result<Configuration, UnreadSetting> {
    let named = process.option(&["--config-file"]);
    let usual = DOCKER.configuration.first().map(Path::new);
    let Some(path) = named.as_deref().or(usual) else { return Ok(Configuration::default()) };
    match settings::read(process.files(), path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map_err(|_not_json| UnreadSetting { path: path.to_owned(), why: ReadError::Malformed }),
        Err(UnreadSetting { why: ReadError::Absent, .. }) if named.is_none() => Ok(Configuration::default()),
        Err(unread) => Err(unread),
    }
}

fn records(place: Place<'_>, memo: &mut Memo<Vec<RuntimeSandbox>>, list: &mut Listing<'_>) -> Vec<Records> {
    let folder = place.root.join("containers");
    let mut records = Records::new(folder.clone(), Some(RuntimeKind::Docker), Ok((Vec::new(), true)));
    records.sandboxes = place.host.folder(folder).and_then(|folder| {
        list_containers(&folder, "config.v2.json", parse, memo, list, &mut records.unread)
    });
    vec![records]
}

/// Parses `config.v2.json`; `None` if it is not a record.
pub(in crate::source::backfill) fn parse(record: &[u8], id: &ContainerId) -> Option<ContainerFound> {
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
