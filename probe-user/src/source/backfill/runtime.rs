//! The sandboxes that runtimes keep on record, the dead among them, until they are removed.
//!
//! What is in files survives a reboot. containerd makes its own only after the sandbox's CNI ADD, so a sandbox that is
//! still being made is not in it, and neither is one whose ADD failed and could not be undone; of that one the runtime
//! itself knows, and is asked.

mod containerd;
mod cri;
mod docker;
pub(super) mod storage;

use std::{collections::BTreeMap, path::PathBuf};

use probe_common::runtime::{self, Runtime};

use super::{
    Listing, Node,
    daemon::{Daemon, Unread},
    kubelet,
};
use crate::{
    model::{
        fact::{Fact, List, PodName, RuntimeKind, RuntimeRead, RuntimeSandbox},
        time::Timestamp,
    },
    source::host::{HostRoot, ReadError},
};

/// What was read of one runtime.
struct Records {
    place: PathBuf,
    kind: Option<RuntimeKind>,
    /// The sandboxes, and whether they are all.
    sandboxes: Result<(Vec<RuntimeSandbox>, bool), ReadError>,
    /// So many of these could not be read: each may be a sandbox, or none.
    unread: u64,
}

impl Records {
    fn new(
        place: PathBuf,
        kind: Option<RuntimeKind>,
        sandboxes: Result<(Vec<RuntimeSandbox>, bool), ReadError>,
    ) -> Self {
        Self { place, kind, sandboxes, unread: 0 }
    }
}

/// Longest name of a pod or a namespace, bytes (DNS subdomain).
const NAME: usize = 253;

pub(super) fn list<'a>(node: Node<'a>, daemons: &[Daemon]) -> Listing<'a> {
    let mut list = Listing::begin(List::Runtimes, node);
    list.found(list.now(), Fact::KubeletExpected(kubelet::expected(node.root, daemons)));
    let answers = ask(node.root, daemons, &list);
    // What a runtime itself has told is all that there is: where its files are matters no more.
    let has_answered = |daemon: &Daemon| {
        let is_its = |records: &Records| daemon.socket.as_ref() == Some(&records.place);
        answers.iter().any(|(_, it)| is_its(it) && matches!(it.sandboxes, Ok((_, true))))
    };
    let runs = |kind| daemons.iter().any(|daemon| daemon.kind.runtime() == Some(kind));
    let alone = !runs(RuntimeKind::Crio) && !runs(RuntimeKind::Docker);
    let must = |daemon: Option<&Daemon>| {
        daemon.is_some_and(|it| {
            (alone || it.kind.runtime() != Some(RuntimeKind::Containerd)) && !has_answered(it)
        })
    };
    for (root, daemon) in roots(daemons, RuntimeKind::Containerd) {
        let at = list.now();
        let records = containerd::read(files(node, daemon), &root, daemon.is_some() && alone);
        tell(&mut list, at, records, must(daemon));
    }
    for (root, daemon) in roots(daemons, RuntimeKind::Crio) {
        let at = list.now();
        for records in storage::read(files(node, daemon), &root, daemon.is_some()) {
            tell(&mut list, at, records, must(daemon));
        }
    }
    for (root, daemon) in run_roots(daemons) {
        let at = list.now();
        for records in storage::read(files(node, daemon), &root, false) {
            tell(&mut list, at, records, false);
        }
    }
    for (root, daemon) in roots(daemons, RuntimeKind::Docker) {
        let at = list.now();
        let records = docker::read(files(node, daemon), &root, &mut list);
        tell(&mut list, at, records, must(daemon));
    }
    // Where it keeps its records stands in a file that could not be read: that is the one to name.
    for daemon in daemons.iter().filter(|it| it.root.is_none() && must(Some(it))) {
        if let Some(Unread { path, why }) = &daemon.unread {
            let at = list.now();
            let records = Records::new(path.clone(), daemon.kind.runtime(), Err(*why));
            tell(&mut list, at, records, true);
        }
    }
    for (at, records) in answers {
        tell(&mut list, at, records, false);
    }
    list
}

/// The files in which a daemon's paths are looked up; without one, the node's.
fn files<'a>(node: Node<'a>, daemon: Option<&'a Daemon>) -> &'a HostRoot {
    daemon.map_or(node.root, |daemon| daemon.files(node.root))
}

/// Where runtimes of a kind keep their things, or usually do, and which one runs that does.
fn roots(daemons: &[Daemon], kind: RuntimeKind) -> BTreeMap<PathBuf, Option<&Daemon>> {
    let usual = Runtime::of(kind).roots.iter().chain(runtime::of_distributions(move |row| match kind {
        RuntimeKind::Containerd => row.containerd_roots,
        RuntimeKind::Crio | RuntimeKind::Docker => &[],
    }));
    let mut found: BTreeMap<_, _> = usual.map(|root| (PathBuf::from(root), None)).collect();
    let of_kind = daemons.iter().filter(|daemon| daemon.kind.runtime() == Some(kind));
    found.extend(of_kind.filter_map(|daemon| Some((daemon.root.clone()?, Some(daemon)))));
    found
}

/// Where storages are that are to be gone with a reboot.
fn run_roots(daemons: &[Daemon]) -> BTreeMap<PathBuf, Option<&Daemon>> {
    let usual = runtime::of_runtimes(|row| row.run_roots);
    let mut found: BTreeMap<_, _> = usual.map(|root| (PathBuf::from(root), None)).collect();
    found.extend(daemons.iter().filter_map(|daemon| Some((daemon.run_root.clone()?, Some(daemon)))));
    found
}

/// What every runtime that can be asked answers, and when it was asked.
fn ask(root: &HostRoot, daemons: &[Daemon], list: &Listing<'_>) -> Vec<(Timestamp, Records)> {
    let sockets = cri::sockets(daemons).into_iter();
    sockets.map(|(socket, asked)| (list.now(), asked.read(root, socket))).collect()
}

/// A runtime that is not there keeps nothing, and is not told of. One that `must` be, for it runs, keeps its records
/// where we do not know.
fn tell(list: &mut Listing<'_>, at: Timestamp, records: Records, must: bool) {
    let Records { place, kind, sandboxes, unread } = records;
    let (sandboxes, complete) = match sandboxes {
        Err(ReadError::Absent) if !must => return,
        Err(why) => {
            list.skip(&place, why);
            (Vec::new(), false)
        }
        Ok((sandboxes, complete)) => {
            if !complete {
                list.skip(&place, ReadError::Malformed);
            }
            (sandboxes, complete)
        }
    };
    let place = place.display().to_string();
    list.found(at, Fact::RuntimeRead(RuntimeRead { place, kind, sandboxes, complete, unread }));
}

/// A pod's name without what cannot be one; `None` if nothing is left.
fn named(mut pod: PodName) -> Option<PodName> {
    let graphic = |name: &String| name.bytes().all(|byte| byte.is_ascii_graphic());
    let is_name = |name: &String| !name.is_empty() && name.len() <= NAME && graphic(name);
    pod.namespace = pod.namespace.filter(is_name);
    pod.name = pod.name.filter(is_name);
    (pod != PodName::default()).then_some(pod)
}
