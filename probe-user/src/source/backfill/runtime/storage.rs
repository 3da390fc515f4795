//! CRI-O's records, in the storage that it shares with podman. Files list all containers, and CRI-O adds the
//! pod of each. A sandbox is listed whether or not it has a process of its own.
//!
//! CRI-O's own containers are volatile. They are listed in a file of their own, which is made with the first
//! of them (`containers/storage`, `containers.go`). In a transient storage that file is below the run root,
//! so that a reboot removes it.

use std::path::Path;

use serde::Deserialize;

use super::Records;
use crate::{
    model::{
        fact::{PodName, RuntimeKind, RuntimeSandbox},
        id::{ContainerId, PodUid},
    },
    source::{
        host::{Folder, HostRoot, ReadError, memo::Memo},
        name::named,
    },
};

/// The end of the name of a storage driver's folder: `overlay-containers`.
const DRIVER: &str = "-containers";
const NAMES: [&str; 2] = ["containers.json", "volatile-containers.json"];
/// The longest file that is read, bytes. It has about a kilobyte for each container.
const MAX_BYTES: usize = 16 << 20;

#[derive(Debug, Deserialize)]
struct Container {
    id: String,
    /// The runtime's own metadata, as JSON in a string.
    #[serde(default)]
    metadata: String,
}

/// CRI-O's `RuntimeContainerMetadata`. podman's metadata has no pod.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Metadata {
    pod_id: String,
    /// For a sandbox: the name of the pod.
    metadata_name: Option<String>,
    uid: Option<String>,
    namespace: Option<String>,
}

/// Reads all files. If a runtime that `runs` keeps its containers here, a driver's folder without files means
/// that there are no containers.
pub(super) fn read(
    host: &HostRoot,
    root: &Path,
    runs: bool,
    memo: &mut Memo<Vec<RuntimeSandbox>>,
) -> Vec<Records> {
    let folders = match drivers(host, root) {
        Ok(folders) => folders,
        Err(why) => return vec![records(root, Err(why))],
    };
    let files = folders.iter().flat_map(|folder| NAMES.map(|name| (folder, name)));
    let found: Vec<_> = files
        .filter_map(|(folder, name)| match memo.of(folder).read(name, MAX_BYTES, |bytes, _| parse(bytes)) {
            Err(ReadError::Absent) => None,
            sandboxes => Some(records(&folder.path().join(name), sandboxes)),
        })
        .collect();
    match folders.first() {
        Some(folder) if found.is_empty() && runs => vec![records(folder.path(), Ok(Vec::new()))],
        Some(_) => found,
        None => vec![records(root, Err(ReadError::Absent))],
    }
}

/// Returns the folders of the storage drivers. Usually there is one.
pub(in crate::source::backfill) fn drivers(host: &HostRoot, root: &Path) -> Result<Vec<Folder>, ReadError> {
    let folder = host.folder(root)?;
    let entries = folder.entries()?.entries;
    let drivers = entries.iter().filter(|entry| entry.directory && entry.name.ends_with(DRIVER));
    drivers.map(|entry| folder.folder(&entry.name)).collect()
}

fn records(place: &Path, sandboxes: Result<Vec<RuntimeSandbox>, ReadError>) -> Records {
    let sandboxes = sandboxes.map(|sandboxes| (sandboxes, true));
    Records::new(place.to_owned(), Some(RuntimeKind::Crio), sandboxes)
}

/// Parses a file. An empty file has no containers, as for containers/storage itself.
fn parse(bytes: &[u8]) -> Option<Vec<RuntimeSandbox>> {
    if bytes.is_empty() {
        return Some(Vec::new());
    }
    let containers: Option<Vec<Container>> = serde_json::from_slice(bytes).ok()?;
    Some(containers.unwrap_or_default().iter().filter_map(sandbox).collect())
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
        for nothing in [&b""[..], b"[]", b"null"] {
            assert_eq!(parse(nothing).map(|it| it.len()), Some(0));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes: Vec<u8>) {
            parse(&bytes);
        }
    }
}
