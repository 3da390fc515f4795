//! The containers that each pod of the node is expected to have, from the kubelet's record of the resources
//! that it granted.
//!
//! The kubelet writes `allocated_pods_state` below its root (Kubernetes 1.33 and later, unless the feature
//! gate `InPlacePodVerticalScaling` is off) when it admits a pod, before it makes the pod's cgroup. The
//! record names every main container and every sidecar, with or without resource requests. From 1.36 on it
//! may name the other init containers too. It never names an ephemeral container. The file is JSON in JSON
//! with a checksum: `{"data":"{\"entries\":{UID:{\"ContainerResources\":{NAME:…}}}}"}`; in 1.33
//! `{\"allocationEntries\":{UID:{NAME:…}}}`. The kubelet replaces the whole file.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, de::IgnoredAny};

use super::kubelet::Roots;
use crate::{
    model::{id::PodUid, time::Timestamp},
    source::host::{HostRoot, ReadError, memo::Edition},
};

pub(crate) const FILE: &str = "allocated_pods_state";
/// The longest record that is read, bytes. Later kubelets keep whole pods in it, tens of kilobytes each.
const MAX_BYTES: usize = 32 << 20;
/// How often to search for kubelets with another root directory.
const SEARCH_INTERVAL: Duration = Duration::from_secs(60);

/// The record as it was last read.
#[derive(Debug, Default)]
pub(crate) struct Allocation {
    roots: Option<(Timestamp, Roots)>,
    edition: Option<Edition>,
    pods: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct Checkpoint {
    data: String,
}

#[derive(Deserialize)]
struct Data {
    #[serde(default)]
    entries: BTreeMap<String, Entry>,
    #[serde(default, rename = "allocationEntries")]
    allocation_entries: BTreeMap<String, Names>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default, rename = "ContainerResources")]
    containers: Names,
}

type Names = BTreeMap<String, IgnoredAny>;

impl Allocation {
    /// Returns where the node's kubelets keep their files.
    pub(crate) fn roots(&mut self, root: &HostRoot, now: Timestamp) -> &Roots {
        let known = self.roots.take().filter(|(looked, _)| now < *looked + SEARCH_INTERVAL);
        &self.roots.insert(known.unwrap_or_else(|| (now, Roots::find(root)))).1
    }

    /// Returns the names of the containers that a pod is expected to have; `None` if no kubelet keeps the
    /// record.
    pub(crate) fn containers(
        &mut self,
        root: &HostRoot,
        uid: &PodUid,
        now: Timestamp,
    ) -> Result<Option<Vec<String>>, ReadError> {
        let kept = self.roots(root, now).iter().filter_map(|kubelet| {
            let folder = root.folder(kubelet).ok()?;
            Some((folder.edition(FILE).ok()?, folder))
        });
        let Some((edition, folder)) = kept.take(1).next() else { return Ok(None) };
        if self.edition != Some(edition) {
            self.pods = parse(&folder.read(FILE, MAX_BYTES)?).ok_or(ReadError::Malformed)?;
            self.edition = Some(edition);
        }
        Ok(self.pods.get(uid.as_str()).filter(|names| !names.is_empty()).cloned())
    }
}

fn parse(record: &[u8]) -> Option<BTreeMap<String, Vec<String>>> {
    let data: Data = serde_json::from_str(&serde_json::from_slice::<Checkpoint>(record).ok()?.data).ok()?;
    let entries = data.entries.into_iter().map(|(uid, entry)| (uid, entry.containers));
    let all = entries.chain(data.allocation_entries);
    Some(all.map(|(uid, containers)| (uid, containers.into_keys().collect())).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::{Allocation, HostRoot, PodUid, ReadError, Timestamp, parse};

    const UID: &str = "11111111-2222-3333-4444-555555555555";
    const NOW: Timestamp = Timestamp(1);

    fn uid() -> PodUid {
        PodUid::parse(UID).expect("a UID")
    }

    /// Returns a record as the kubelet writes it: one container with requests, one without.
    fn record(entries: &str) -> String {
        let data = serde_json::to_string(entries).expect("JSON");
        format!(r#"{{"data":{data},"checksum":2840284029}}"#)
    }

    fn told(entries: &str) -> Option<String> {
        let pods = parse(record(entries).as_bytes())?;
        Some(pods.get(UID)?.join(" "))
    }

    #[test]
    fn each_form_of_the_record_names_a_pods_containers() {
        let of_1_33 = format!(
            r#"{{"allocationEntries":{{"{UID}":{{"main":{{"requests":{{"cpu":"1"}}}},"proxy":{{}}}}}}}}"#
        );
        assert_eq!(told(&of_1_33).as_deref(), Some("main proxy"));
        let of_1_34 = format!(
            r#"{{"entries":{{"{UID}":{{"ContainerResources":{{"main":{{"requests":{{"cpu":"1"}}}},"proxy":{{}}}}}}}}}}"#
        );
        assert_eq!(told(&of_1_34).as_deref(), Some("main proxy"));
        let later = format!(
            r#"{{"podList":"CgAS","entries":{{"{UID}":{{"ContainerResources":{{"main":{{}}}},"PodLevelResources":null}}}}}}"#
        );
        assert_eq!(told(&later).as_deref(), Some("main"));
        assert_eq!(told("{}"), None, "no pod was admitted yet");
        for bad in ["", "7", "{\"data\":7}", "{\"data\":\"\"}", "{\"data\":\"7\"}"] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn the_record_is_read_again_when_it_is_another_one() {
        let node = tempfile::tempdir().expect("a directory");
        let host = HostRoot::open(node.path()).expect("the root");
        let mut allocation = Allocation::default();
        assert_eq!(allocation.containers(&host, &uid(), NOW), Ok(None), "no kubelet");
        let kubelet = node.path().join("var/lib/kubelet");
        fs::create_dir_all(&kubelet).expect("a directory");
        // The kubelet writes a new file and renames it over the old one.
        let write = |entries: &str| {
            fs::write(kubelet.join("new"), record(entries)).expect("a file");
            fs::rename(kubelet.join("new"), kubelet.join("allocated_pods_state")).expect("a name");
        };
        write("{}");
        assert_eq!(allocation.containers(&host, &uid(), NOW), Ok(None), "a pod of another source");
        write(&format!(r#"{{"entries":{{"{UID}":{{"ContainerResources":{{"main":{{}}}}}}}}}}"#));
        assert_eq!(allocation.containers(&host, &uid(), NOW), Ok(Some(vec!["main".to_owned()])));
        fs::write(kubelet.join("allocated_pods_state"), "{").expect("a file");
        assert_eq!(allocation.containers(&host, &uid(), NOW), Err(ReadError::Malformed));
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes: Vec<u8>) {
            parse(&bytes);
        }
    }
}
