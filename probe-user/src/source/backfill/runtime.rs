//! Lists the sandboxes that runtimes have on record, stopped ones included, until they are removed.
//!
//! Records in files survive a reboot. containerd writes its record only after the sandbox's CNI ADD. So its
//! files lack a sandbox that is still being created, and a sandbox whose ADD failed and could not be undone.
//! The runtime itself knows both, and is asked over CRI.

mod containerd;
mod cri;
pub(super) mod crio;
pub(super) mod daemon;
pub(super) mod docker;
pub(super) mod isulad;
pub(crate) mod kubelet;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use probe_common::runtime::{self, RUNTIMES, Runtime};

use super::{Listing, Node};
use crate::{
    model::{
        fact::{ContainerFound, Fact, List, Role, RuntimeKind, RuntimeRead, RuntimeSandbox},
        id::ContainerId,
        time::Timestamp,
    },
    source::{
        cri::name::named,
        host::{FILE, Folder, HostRoot, ReadError, memo::Memo},
    },
};
use daemon::{Daemon, Process, settings::UnreadSetting};

/// Further containers of Docker and iSulad are left out.
const MAX_CONTAINERS: usize = 1 << 14;

/// How a runtime that a kubelet can use is read.
struct Reader {
    /// Finds the paths of the daemon that a process is.
    daemon: fn(&Process<'_>) -> Daemon,
    /// Reads the records in a directory of the runtime.
    records: fn(Place<'_>, &mut Memo<Vec<RuntimeSandbox>>, &mut Listing<'_>) -> Vec<Records>,
}

/// Returns the row of a runtime.
const fn reader(kind: RuntimeKind) -> Reader {
    match kind {
        RuntimeKind::Containerd => containerd::READER,
        RuntimeKind::Crio => crio::READER,
        RuntimeKind::Docker => docker::READER,
        RuntimeKind::Isulad => isulad::READER,
    }
}

/// A directory of a runtime.
struct Place<'a> {
    host: &'a HostRoot,
    root: &'a Path,
    /// A daemon that runs keeps its records here.
    runs: bool,
    /// The kubelet can use no runtime but containerd.
    is_alone: bool,
}

/// The sandboxes, and whether the list is complete.
type Sandboxes = Result<(Vec<RuntimeSandbox>, bool), ReadError>;

/// The records of one runtime.
struct Records {
    place: PathBuf,
    kind: Option<RuntimeKind>,
    sandboxes: Sandboxes,
    /// How many records could not be read. Each may be a sandbox's.
    unread: u64,
}

impl Records {
    fn new(place: PathBuf, kind: Option<RuntimeKind>, sandboxes: Sandboxes) -> Self {
        Self { place, kind, sandboxes, unread: 0 }
    }
}

pub(super) fn list<'a>(
    node: Node<'a>,
    daemons: &[Daemon],
    memo: &mut Memo<Vec<RuntimeSandbox>>,
) -> Listing<'a> {
    let mut list = Listing::begin(List::Runtimes, node);
    list.found(list.now(), Fact::KubeletExpected(kubelet::expected(node.root, daemons)));
    let answers = ask(node.root, daemons, &list);
    let alone = daemons.iter().filter_map(|it| it.kind.runtime()).all(|kind| kind == RuntimeKind::Containerd);
    for kind in RUNTIMES.iter().filter_map(|row| row.kind) {
        let roots = roots(daemons, kind).into_iter().map(|(root, daemon)| (root, daemon, daemon));
        // Nothing must be in a run root.
        let run_roots = run_roots(daemons, kind).into_iter().map(|(root, daemon)| (root, daemon, None));
        for (root, daemon, owner) in roots.chain(run_roots) {
            let at = list.now();
            let host = files(node, daemon);
            let place = Place { host, root: &root, runs: owner.is_some(), is_alone: alone };
            for records in (reader(kind).records)(place, memo, &mut list) {
                report(&mut list, at, records, must_exist(owner, alone, &answers));
            }
        }
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
    let mut found = in_use(daemons, kind, Runtime::of(kind).roots, |daemon| daemon.root.as_ref());
    if kind == RuntimeKind::Containerd {
        for root in runtime::of_distributions(|row| row.containerd_roots) {
            found.entry(root.into()).or_default();
        }
    }
    found
}

/// Returns the run roots of storages, which a reboot empties.
fn run_roots(daemons: &[Daemon], kind: RuntimeKind) -> BTreeMap<PathBuf, Option<&Daemon>> {
    in_use(daemons, kind, Runtime::of(kind).run_roots, |daemon| daemon.run_root.as_ref())
}

fn in_use<'a>(
    daemons: &'a [Daemon],
    kind: RuntimeKind,
    usual: &[&str],
    own: fn(&Daemon) -> Option<&PathBuf>,
) -> BTreeMap<PathBuf, Option<&'a Daemon>> {
    let mut found: BTreeMap<_, _> = usual.iter().map(|root| (PathBuf::from(root), None)).collect();
    let of_kind = daemons.iter().filter(|daemon| daemon.kind.runtime() == Some(kind));
    found.extend(of_kind.filter_map(|daemon| Some((own(daemon)?.clone(), Some(daemon)))));
    found
}

/// Asks every runtime that has a known socket; returns each answer with the time of the question.
fn ask(root: &HostRoot, daemons: &[Daemon], list: &Listing<'_>) -> Vec<(Timestamp, Records)> {
    let all = cri::sockets(daemons);
    all.iter().map(|(socket, asked)| (list.now(), asked.read(root, socket.clone(), &all))).collect()
}

/// Lists the sandboxes in a folder that has a folder for each container, by the `file` in each. Also returns
/// whether the list is complete.
///
/// A record that cannot be read may be a sandbox's. It is reported by its id, and counted as `unread`. The
/// list stays complete: the other records, and the absence of others, still count.
fn list_containers(
    folder: &Folder,
    file: &str,
    parse: fn(&[u8], &ContainerId) -> Option<ContainerFound>,
    memo: &mut Memo<Vec<RuntimeSandbox>>,
    list: &mut Listing<'_>,
    unread: &mut u64,
) -> Sandboxes {
    let entries = folder.entries()?;
    let mut found = Vec::new();
    for entry in entries.entries.iter().take(MAX_CONTAINERS) {
        let Some(id) = ContainerId::parse(&entry.name) else { continue };
        let read = folder.folder(&entry.name).and_then(|own| {
            memo.of(&own).read(file, FILE, |bytes, _| Some(sandbox(parse(bytes, &id)?).into_iter().collect()))
        });
        match read {
            Ok(sandbox) => found.extend(sandbox),
            Err(ReadError::Absent) => {}
            Err(why) => {
                list.set_aside(folder.path().join(&entry.name).join(file), why);
                found.push(RuntimeSandbox { id, pod: None });
                *unread += 1;
            }
        }
    }
    Ok((found, entries.left_out == 0 && entries.entries.len() <= MAX_CONTAINERS))
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
        source::{host::HostRoot, node::cgroup::Hierarchy},
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
