//! CRI-O's, in the storage that it shares with podman: one file with all containers, in which CRI-O writes of each
//! which pod it is of. A sandbox is in it whether or not it has a process of its own.

use std::path::Path;

use serde::Deserialize;

use super::{Records, named};
use crate::{
    engine::{
        fact::{PodName, RuntimeKind, RuntimeSandbox},
        id::{ContainerId, PodUid},
    },
    source::host::{FILE, HostRoot, Miss},
};

pub(super) const ROOTS: [&str; 1] = ["/var/lib/containers/storage"];
/// By the storage's driver.
const KINDS: [&str; 3] = ["overlay-containers", "vfs-containers", "btrfs-containers"];
const NAME: &str = "containers.json";

#[derive(Debug, Deserialize)]
struct Container {
    id: String,
    /// What the runtime wrote of it, JSON again.
    #[serde(default)]
    metadata: String,
}

/// CRI-O's `RuntimeContainerMetadata`; podman's has no pod in it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Metadata {
    pod_id: String,
    /// Of a sandbox, the pod's.
    metadata_name: Option<String>,
    uid: Option<String>,
    namespace: Option<String>,
}

pub(super) fn read(host: &HostRoot, root: &Path) -> Records {
    for kind in KINDS {
        let folder = root.join(kind);
        let read = host.folder(&folder).and_then(|folder| folder.read(NAME, FILE));
        if read == Err(Miss::Absent) {
            continue;
        }
        let sandboxes = read.and_then(|bytes| parse(&bytes).ok_or(Miss::Malformed));
        let sandboxes = sandboxes.map(|sandboxes| (sandboxes, true));
        return Records { place: folder.join(NAME), kind: Some(RuntimeKind::Crio), sandboxes };
    }
    Records { place: root.to_owned(), kind: Some(RuntimeKind::Crio), sandboxes: Err(Miss::Absent) }
}

fn parse(bytes: &[u8]) -> Option<Vec<RuntimeSandbox>> {
    let containers: Vec<Container> = serde_json::from_slice(bytes).ok()?;
    Some(containers.iter().filter_map(sandbox).collect())
}

fn sandbox(container: &Container) -> Option<RuntimeSandbox> {
    let of: Metadata = serde_json::from_str(&container.metadata).ok()?;
    if of.pod_id != container.id {
        return None;
    }
    let uid = of.uid.as_deref().and_then(PodUid::parse);
    let pod = named(PodName { namespace: of.namespace, name: of.metadata_name, uid });
    Some(RuntimeSandbox { id: ContainerId::parse(&container.id)?, pod })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::parse;

    #[test]
    fn a_sandbox_is_the_container_with_the_pod_s_own_id() {
        let text = br#"[
            {"id":"s1","names":["k8s_POD_web-0_default_u_0"],"image":"i","layer":"l","created":"2026-01-01T00:00:00Z",
             "metadata":"{\"pod\":true,\"pod-name\":\"k8s_web-0\",\"pod-id\":\"s1\",\"name\":\"k8s_POD_web-0\",\"metadata-name\":\"web-0\",\"uid\":\"11111111-2222-3333-4444-555555555555\",\"namespace\":\"default\"}"},
            {"id":"c1","metadata":"{\"pod-name\":\"k8s_web-0\",\"pod-id\":\"s1\",\"metadata-name\":\"main\"}"},
            {"id":"p1","metadata":"{\"image-name\":\"docker.io/x\",\"name\":\"by podman\"}"},
            {"id":"p2"}]"#;
        let found = parse(text).expect("a storage");
        let told: Vec<_> = found.iter().map(|it| (it.id.as_str(), it.pod.as_ref())).collect();
        let [("s1", Some(pod))] = told[..] else { panic!("{told:?}") };
        assert_eq!((pod.namespace.as_deref(), pod.name.as_deref()), (Some("default"), Some("web-0")));
        assert!(pod.uid.is_some());
        assert_eq!(parse(b"[").map(|it| it.len()), None);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes: Vec<u8>) {
            parse(&bytes);
        }
    }
}
