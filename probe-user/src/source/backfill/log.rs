//! Reads the folder names in `/var/log/pods`, `NAMESPACE_NAME_UID`: the kubelet makes one folder for each
//! pod, so they name every pod, those on the host's network included.
//!
//! For a static pod the UID here, in its cgroup and in its sandbox is the kubelet's own hash of the manifest
//! (32 hex digits). The API server gives the mirror pod another UID and keeps this one in the annotation
//! `kubernetes.io/config.hash`.

use std::path::Path;

use super::{Listing, Node};
use crate::{
    model::{
        fact::{Fact, List, NameSource},
        id::PodUid,
    },
    source::host::{HostRoot, ReadError},
};

const FOLDERS: &str = "/var/log/pods";

pub(super) fn list(node: Node<'_>) -> Listing<'_> {
    let mut list = Listing::begin(List::Pods, node);
    let at = list.now();
    let entries = node.root.folder(FOLDERS).and_then(|folder| folder.entries());
    let Some(entries) = list.take(FOLDERS, entries) else { return list };
    for entry in entries.entries {
        match parse(&entry.name) {
            Some(fact) => list.found(at, fact),
            None => list.skip(Path::new(FOLDERS).join(&entry.name), ReadError::Malformed),
        }
    }
    for name in entries.not_utf8 {
        list.skip(Path::new(FOLDERS).join(name), ReadError::NotUtf8);
    }
    if entries.left_out > 0 {
        list.skip(FOLDERS, ReadError::TooMany(crate::source::host::ENTRIES));
    }
    list
}

/// Finds the name of one pod: `PodFound`, or `PodUnknown` if it is gone. A pod without a folder counts as
/// gone only if other pods have folders and all could be read: a kubelet may be configured to put its logs
/// elsewhere.
#[must_use]
pub(crate) fn find(root: &HostRoot, uid: &PodUid) -> Option<Fact> {
    let read = root.folder(FOLDERS).and_then(|folder| folder.entries()).ok()?;
    let is_whole = read.left_out == 0 && read.not_utf8.is_empty();
    let folders: Vec<Fact> = read.entries.iter().filter_map(|entry| parse(&entry.name)).collect();
    let is_used = is_whole && !folders.is_empty();
    let own = folders.into_iter().find(|it| matches!(it, Fact::PodFound { uid: own, .. } if own == uid));
    own.or_else(|| is_used.then(|| Fact::PodUnknown(uid.clone())))
}

fn parse(folder: &str) -> Option<Fact> {
    let (namespace, name, uid) = pod(folder)?;
    Some(Fact::PodFound {
        uid,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        source: NameSource::LogFolder,
    })
}

/// Splits `NAMESPACE_NAME_UID`. No part can hold an underscore: all are DNS names of the API.
pub(super) fn pod(folder: &str) -> Option<(&str, &str, PodUid)> {
    let mut parts = folder.split('_');
    let namespace = parts.next()?;
    let name = parts.next()?;
    let uid = parts.next()?;
    if parts.next().is_some() || !is_dns_name(namespace) || !is_dns_name(name) {
        return None;
    }
    Some((namespace, name, PodUid::parse(uid)?))
}

fn is_dns_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 253
        && text.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || matches!(it, b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::{Fact, HostRoot, PodUid, find, pod};

    /// A kubelet that is configured to put its pods' logs elsewhere leaves the folder empty, or has none.
    #[test]
    fn a_pod_without_a_folder_is_gone_where_others_have_one() {
        let root = tempfile::tempdir().expect("a folder");
        let uid = PodUid::parse("11111111-2222-3333-4444-555555555555").expect("a UID");
        let host = HostRoot::open(root.path()).expect("the root");
        assert_eq!(find(&host, &uid), None);
        let folders = root.path().join("var/log/pods");
        fs::create_dir_all(&folders).expect("a folder");
        assert_eq!(find(&host, &uid), None);
        fs::create_dir(folders.join("default_web-1_22222222-2222-3333-4444-555555555555")).expect("a folder");
        assert_eq!(find(&host, &uid), Some(Fact::PodUnknown(uid.clone())));
        fs::create_dir(folders.join(format!("default_web-0_{uid}"))).expect("a folder");
        assert!(matches!(find(&host, &uid), Some(Fact::PodFound { .. })));
    }

    #[test]
    fn a_folder_names_its_pod() {
        let found = |folder| pod(folder).map(|(namespace, name, uid)| format!("{namespace}/{name} {uid}"));
        assert_eq!(
            found("default_web-0_11111111-2222-3333-4444-555555555555").as_deref(),
            Some("default/web-0 11111111-2222-3333-4444-555555555555")
        );
        assert_eq!(
            found("kube-system_etcd-node.a_0123456789abcdef0123456789abcdef").as_deref(),
            Some("kube-system/etcd-node.a 0123456789abcdef0123456789abcdef")
        );
        for bad in ["", "default_web-0", "a_b_c_d", "A_b_0123456789abcdef0123456789abcdef", "lost+found"] {
            assert_eq!(found(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_name_is_too_strange(name: String) {
            pod(&name);
        }
    }
}
