//! The sandboxes that runtimes keep on record, the dead among them, until they are removed.
//!
//! What is in files survives a reboot. containerd makes its own only after the sandbox's CNI ADD, so a sandbox that is
//! still being made is not in it, and neither is one whose ADD failed and could not be undone; of that one the runtime
//! itself knows, and is asked.

mod containerd;
#[cfg(feature = "cri")]
mod cri;
mod docker;
mod storage;

use std::{collections::BTreeMap, path::PathBuf};

use super::{
    Listing, Node,
    daemon::{Daemon, Kind},
    kubelet,
};
use crate::{
    engine::{
        fact::{Fact, List, PodName, RuntimeKind, RuntimeRead, RuntimeSandbox},
        time::Timestamp,
    },
    source::host::Miss,
};

/// What was read of one runtime.
struct Records {
    place: PathBuf,
    kind: Option<RuntimeKind>,
    /// The sandboxes, and whether they are all.
    sandboxes: Result<(Vec<RuntimeSandbox>, bool), Miss>,
}

/// Longest name of a pod or a namespace, bytes (DNS subdomain).
const NAME: usize = 253;

pub(super) fn list<'a>(node: Node<'a>, daemons: &[Daemon]) -> Listing<'a> {
    let mut list = Listing::begin(List::Runtimes, node);
    list.found(list.now(), Fact::KubeletExpected(kubelet::expected(node.root, daemons)));
    let runs = |kind: Kind| daemons.iter().any(|daemon| daemon.kind == kind);
    let alone = !runs(Kind::Crio) && !runs(Kind::Docker);
    for (root, running) in roots(daemons, Kind::Containerd, &containerd::ROOTS) {
        let at = list.now();
        let records = containerd::read(node.root, &root, running && alone);
        tell(&mut list, at, records, running && alone);
    }
    for (root, running) in roots(daemons, Kind::Crio, &storage::ROOTS) {
        let at = list.now();
        let records = storage::read(node.root, &root);
        tell(&mut list, at, records, running);
    }
    for (root, running) in roots(daemons, Kind::Docker, &docker::ROOTS) {
        let at = list.now();
        let records = docker::read(node.root, &root, &mut list);
        tell(&mut list, at, records, running);
    }
    #[cfg(feature = "cri")]
    for (socket, kind) in cri::sockets(daemons) {
        let at = list.now();
        tell(&mut list, at, cri::read(node.root, &socket, kind), false);
    }
    list
}

/// Where runtimes of a kind keep their things, or usually do, and whether one runs that does.
fn roots(daemons: &[Daemon], kind: Kind, usual: &[&str]) -> BTreeMap<PathBuf, bool> {
    let mut found: BTreeMap<_, _> = usual.iter().map(|root| (PathBuf::from(root), false)).collect();
    found.extend(daemons.iter().filter(|it| it.kind == kind).map(|it| (it.root.clone(), true)));
    found
}

/// A runtime that is not there keeps nothing, and is not told of. One that `must` be, for it runs, keeps its records
/// where we do not know.
fn tell(list: &mut Listing<'_>, at: Timestamp, Records { place, kind, sandboxes }: Records, must: bool) {
    let (sandboxes, complete) = match sandboxes {
        Err(Miss::Absent) if !must => return,
        Err(why) => {
            list.skip(&place, why);
            (Vec::new(), false)
        }
        Ok((sandboxes, complete)) => {
            if !complete {
                list.skip(&place, Miss::Malformed);
            }
            (sandboxes, complete)
        }
    };
    let place = place.display().to_string();
    list.found(at, Fact::RuntimeRead(RuntimeRead { place, kind, sandboxes, complete }));
}

/// A pod's name without what cannot be one; `None` if nothing is left.
fn named(mut pod: PodName) -> Option<PodName> {
    let graphic = |name: &String| name.bytes().all(|byte| byte.is_ascii_graphic());
    let is_name = |name: &String| !name.is_empty() && name.len() <= NAME && graphic(name);
    pod.namespace = pod.namespace.filter(is_name);
    pod.name = pod.name.filter(is_name);
    (pod != PodName::default()).then_some(pod)
}
