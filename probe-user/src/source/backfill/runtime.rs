//! Lists the sandboxes that runtimes have on record, stopped ones included, until they are removed.
//!
//! Records in files survive a reboot. containerd writes its record only after the sandbox's CNI ADD. So its
//! files lack a sandbox that is still being created, and a sandbox whose ADD failed and could not be undone.
//! The runtime itself knows both, and is asked over CRI.

mod containerd;
mod cri;
mod docker;
pub(super) mod isulad;
pub(super) mod storage;

use std::{collections::BTreeMap, path::PathBuf};

use probe_common::runtime::{self, Runtime};

use super::{
    Listing, Node,
    daemon::{self, Daemon, UnreadSetting},
    kubelet,
};
use crate::{
    model::{
        fact::{ContainerFound, Fact, List, Role, RuntimeKind, RuntimeRead, RuntimeSandbox},
        time::Timestamp,
    },
    source::{
        host::{HostRoot, ReadError, memo::Memo},
        name::named,
    },
};

/// The parsed contents of the runtimes' files.
#[derive(Debug, Default)]
pub(super) struct Memory {
    storages: Memo<Vec<RuntimeSandbox>>,
    docker: Memo<Option<RuntimeSandbox>>,
    isulad: Memo<Option<RuntimeSandbox>>,
}

impl Memory {
    pub(super) fn begin(&mut self, wall_ns: i64) {
        self.storages.begin(wall_ns);
        self.docker.begin(wall_ns);
        self.isulad.begin(wall_ns);
    }
}

/// The records of one runtime.
struct Records {
    place: PathBuf,
    kind: Option<RuntimeKind>,
    /// The sandboxes, and whether the list is complete.
    sandboxes: Result<(Vec<RuntimeSandbox>, bool), ReadError>,
    /// How many records could not be read. Each may be a sandbox's.
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

pub(super) fn list<'a>(node: Node<'a>, daemons: &[Daemon], memory: &mut Memory) -> Listing<'a> {
    let mut list = Listing::begin(List::Runtimes, node);
    list.found(list.now(), Fact::KubeletExpected(kubelet::expected(node.root, daemons)));
    let answers = ask(node.root, daemons, &list);
    let alone = daemons.iter().filter_map(|it| it.kind.runtime()).all(|kind| kind == RuntimeKind::Containerd);
    for (root, daemon) in roots(daemons, RuntimeKind::Containerd) {
        let at = list.now();
        let records = containerd::read(files(node, daemon), &root, daemon.is_some() && alone);
        report(&mut list, at, records, must_exist(daemon, alone, &answers));
    }
    for (root, daemon) in roots(daemons, RuntimeKind::Crio) {
        let at = list.now();
        for records in storage::read(files(node, daemon), &root, daemon.is_some(), &mut memory.storages) {
            report(&mut list, at, records, must_exist(daemon, alone, &answers));
        }
    }
    for (root, daemon) in run_roots(daemons) {
        let at = list.now();
        for records in storage::read(files(node, daemon), &root, false, &mut memory.storages) {
            report(&mut list, at, records, false);
        }
    }
    for (root, daemon) in roots(daemons, RuntimeKind::Docker) {
        let at = list.now();
        let records = docker::read(files(node, daemon), &root, &mut memory.docker, &mut list);
        report(&mut list, at, records, must_exist(daemon, alone, &answers));
    }
    for (root, daemon) in roots(daemons, RuntimeKind::Isulad) {
        let at = list.now();
        let records = isulad::read(files(node, daemon), &root, &mut memory.isulad, &mut list);
        report(&mut list, at, records, must_exist(daemon, alone, &answers));
    }
    // If the path is unknown because a configuration could not be read, name that file.
    for daemon in daemons.iter().filter(|it| it.root.is_none() && must_exist(Some(it), alone, &answers)) {
        if let Some(UnreadSetting { path, why }) = &daemon.unread {
            let at = list.now();
            let records = Records::new(path.clone(), daemon.kind.runtime(), Err(*why));
            report(&mut list, at, records, true);
        }
    }
    for (at, records) in answers {
        report(&mut list, at, records, false);
    }
    list
}

/// Returns whether a daemon's records must exist, because it runs. `alone`: containerd is the only runtime.
fn must_exist(daemon: Option<&Daemon>, alone: bool, answers: &[(Timestamp, Records)]) -> bool {
    let Some(daemon) = daemon else { return false };
    // The answer of a runtime is complete, so its files are not needed.
    let has_answered = answers.iter().any(|(_, records)| {
        daemon.socket.as_ref() == Some(&records.place) && matches!(records.sandboxes, Ok((_, true)))
    });
    (alone || daemon.kind.runtime() != Some(RuntimeKind::Containerd)) && !has_answered
}

/// Returns the root below which a daemon's paths are resolved; the node's if there is no daemon.
fn files<'a>(node: Node<'a>, daemon: Option<&'a Daemon>) -> &'a HostRoot {
    daemon.map_or(node.root, |daemon| daemon.files(node.root))
}

/// Returns the root directories of the node's containerds, usual or in use.
pub(crate) fn containerd_roots(root: &HostRoot) -> Vec<PathBuf> {
    roots(&daemon::find(root), RuntimeKind::Containerd).into_keys().collect()
}

/// Returns the root directories of runtimes of a kind, usual or in use, each with the daemon that uses it.
fn roots(daemons: &[Daemon], kind: RuntimeKind) -> BTreeMap<PathBuf, Option<&Daemon>> {
    let usual = Runtime::of(kind).roots.iter().chain(runtime::of_distributions(move |row| match kind {
        RuntimeKind::Containerd => row.containerd_roots,
        RuntimeKind::Crio | RuntimeKind::Docker | RuntimeKind::Isulad => &[],
    }));
    let mut found: BTreeMap<_, _> = usual.map(|root| (PathBuf::from(root), None)).collect();
    let of_kind = daemons.iter().filter(|daemon| daemon.kind.runtime() == Some(kind));
    found.extend(of_kind.filter_map(|daemon| Some((daemon.root.clone()?, Some(daemon)))));
    found
}

/// Returns the run roots of storages, which a reboot empties.
fn run_roots(daemons: &[Daemon]) -> BTreeMap<PathBuf, Option<&Daemon>> {
    let usual = runtime::of_runtimes(|row| row.run_roots);
    let mut found: BTreeMap<_, _> = usual.map(|root| (PathBuf::from(root), None)).collect();
    found.extend(daemons.iter().filter_map(|daemon| Some((daemon.run_root.clone()?, Some(daemon)))));
    found
}

/// Asks every runtime that has a known socket; returns each answer with the time of the question.
fn ask(root: &HostRoot, daemons: &[Daemon], list: &Listing<'_>) -> Vec<(Timestamp, Records)> {
    let all = cri::sockets(daemons);
    all.iter().map(|(socket, asked)| (list.now(), asked.read(root, socket.clone(), &all))).collect()
}

/// Returns the sandbox that a container's record describes, if it is one.
fn sandbox(found: ContainerFound) -> Option<RuntimeSandbox> {
    match found.role {
        Role::Sandbox => Some(RuntimeSandbox { id: found.id, pod: found.pod.and_then(named) }),
        Role::Container => None,
    }
}

/// Reports the records of one runtime. A runtime that does not exist keeps nothing, and is not reported. If
/// it `must` exist, because it runs, then its records are at an unknown place.
fn report(list: &mut Listing<'_>, at: Timestamp, records: Records, must: bool) {
    let Records { place, kind, sandboxes, unread } = records;
    let (sandboxes, complete) = match sandboxes {
        Err(ReadError::Absent) if !must => return,
        Err(why) => {
            list.skip(&place, why);
            (Vec::new(), false)
        }
        Ok((sandboxes, complete)) => {
            if !complete {
                // Records that cannot be decoded are a failure of their own.
                list.skip(&place, ReadError::TooMany(sandboxes.len()));
            }
            (sandboxes, complete)
        }
    };
    let place = place.display().to_string();
    list.found(at, Fact::RuntimeRead(RuntimeRead { place, kind, sandboxes, complete, unread }));
}

#[cfg(test)]
mod tests {
    use super::{List, Listing, Node, ReadError, Records, report};
    use crate::{
        model::{fact::RuntimeSandbox, id::ContainerId, time::Timestamp},
        source::{cgroup::Hierarchy, host::HostRoot},
    };

    #[test]
    fn records_of_which_there_are_too_many_are_told_as_that() {
        let root = tempfile::tempdir().expect("a directory");
        let host = HostRoot::open(root.path()).expect("the root");
        let hierarchy = Hierarchy { id: 0, controllers: Vec::new(), mount: "/sys/fs/cgroup".to_owned() };
        let clock = || Timestamp(1);
        let node = Node { root: &host, hierarchy: &hierarchy, clock: &clock, boot_wall_ns: 0, stores: &[] };
        let mut list = Listing::begin(List::Runtimes, node);
        let sandbox = RuntimeSandbox { id: ContainerId::parse("c1").expect("an id"), pod: None };
        report(&mut list, Timestamp(1), Records::new("/x".into(), None, Ok((vec![sandbox], false))), false);
        let (_, skipped) = list.end();
        let first = skipped.partial.get(&List::Runtimes).map(|(_, why)| *why);
        assert_eq!(first, Some(ReadError::TooMany(1)));
    }
}
