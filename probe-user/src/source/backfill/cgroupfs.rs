//! The cgroup directories of one hierarchy.
//!
//! A directory's inode is the id by which the hooks know it (`kernfs_node.id`).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use probe_common::name::container_of;

use super::{Listing, Node};
use crate::{
    model::{
        fact::{Cgroup, Fact, List, NESTED},
        id::{CgroupKey, ContainerId},
        time::Timestamp,
    },
    source::host::{ENTRIES, FILE, Folder, ReadError, lines},
};

/// Deeper directories are skipped. Containers are at depth six or less.
const MAX_DEPTH: u32 = 32;
/// Further directories are skipped.
const MAX_DIRECTORIES: usize = ENTRIES;

/// Lists the directories, and the containers that they belong to.
pub(super) fn list(node: Node<'_>) -> (Listing<'_>, BTreeSet<ContainerId>) {
    let list = Listing::begin(List::Cgroups, node);
    let mut walk = Walk {
        list,
        hierarchy: node.hierarchy.id,
        found: Vec::new(),
        containers: BTreeSet::new(),
        nested: BTreeMap::new(),
    };
    match node.root.folder(&node.hierarchy.mount) {
        Ok(top) => {
            walk.below(&top, "", 0);
        }
        // A hierarchy that is known to be mounted cannot be absent.
        Err(why) => {
            let why = if why == ReadError::Absent { ReadError::NotPlain } else { why };
            walk.list.skip(&node.hierarchy.mount, why);
        }
    }
    let Walk { mut list, found, containers, .. } = walk;
    for (at, cgroup, populated) in found {
        list.found(at, Fact::CgroupFound { cgroup, populated });
    }
    (list, containers)
}

struct Walk<'a> {
    list: Listing<'a>,
    hierarchy: u32,
    found: Vec<(Timestamp, Cgroup, bool)>,
    containers: BTreeSet<ContainerId>,
    /// How many cgroups below each container were found.
    nested: BTreeMap<ContainerId, usize>,
}

impl Walk<'_> {
    /// Lists the directories below `folder`; returns whether any of them holds a process.
    fn below(&mut self, folder: &Folder, path: &str, level: u32) -> bool {
        let Some(entries) = self.list.take(folder.path(), folder.entries()) else { return false };
        let mut populated = false;
        for entry in entries.entries.iter().filter(|entry| entry.directory) {
            if level == MAX_DEPTH || self.found.len() == MAX_DIRECTORIES {
                self.list.skip(folder.path(), ReadError::TooMany(MAX_DIRECTORIES));
                break;
            }
            let at = self.list.now();
            let below = folder.folder(&entry.name).and_then(|below| Ok((below.inode()?, below)));
            let Some((inode, below)) = self.list.take(folder.path().join(&entry.name), below) else {
                continue;
            };
            populated |= self.one(at, inode, &below, format!("{path}/{}", entry.name), level + 1);
        }
        populated
    }

    fn one(&mut self, at: Timestamp, inode: u64, folder: &Folder, path: String, level: u32) -> bool {
        let container = container(&path);
        let nested = container.as_ref().is_some_and(|(_, nested)| *nested);
        if let Some((id, true)) = &container
            && !self.takes_below(id, folder)
        {
            // Something may run there.
            return true;
        }
        self.containers.extend(container.map(|(id, _)| id));
        let key = CgroupKey::new(self.hierarchy, inode);
        let place = self.found.len();
        self.found.push((at, Cgroup { key, path: path.clone(), level, nested }, false));
        let below = self.below(folder, &path, level);
        let own = if self.hierarchy == 0 {
            folder.read("cgroup.events", 4096).map(|text| populated(&text))
        } else {
            // cgroup v1 has no such file: a cgroup is populated if one of its children is.
            folder.head("cgroup.procs", 1).map(|head| !head.is_empty())
        };
        let populated = self.list.take(folder.path(), own).unwrap_or(false) || below;
        self.found[place].2 = populated;
        populated
    }

    /// Returns whether one more cgroup below a container is listed. A container can make any number of
    /// cgroups; the list counts as complete without those beyond the limit.
    fn takes_below(&mut self, container: &ContainerId, folder: &Folder) -> bool {
        let count = self.nested.entry(container.clone()).or_default();
        *count += 1;
        if *count == NESTED + 1 {
            self.list.set_aside(folder.path(), ReadError::TooMany(NESTED));
        }
        *count <= NESTED
    }
}

/// Returns the cgroup of every process by pid, as the directories show it.
pub(super) fn members(node: Node<'_>) -> HashMap<u32, String> {
    let mut found = HashMap::new();
    if let Ok(top) = node.root.folder(&node.hierarchy.mount) {
        members_below(&top, "", MAX_DEPTH, &mut found);
    }
    found
}

fn members_below(folder: &Folder, path: &str, depth: u32, found: &mut HashMap<u32, String>) {
    let pids = folder.read("cgroup.procs", FILE).unwrap_or_default();
    let own = if path.is_empty() { "/" } else { path };
    found.extend(lines(&pids).filter_map(|line| Some((line.parse().ok()?, own.to_owned()))));
    let Some(depth) = depth.checked_sub(1) else { return };
    for entry in folder.entries().unwrap_or_default().entries.iter().filter(|entry| entry.directory) {
        if let Ok(below) = folder.folder(&entry.name) {
            members_below(&below, &format!("{path}/{}", entry.name), depth, found);
        }
    }
}

/// Returns whether the cgroup or one below it holds a live process, by `cgroup.events` of cgroup v2.
fn populated(events: &[u8]) -> bool {
    events.split(|byte| *byte == b'\n').any(|line| line == b"populated 1")
}

/// Returns the container that a cgroup belongs to, and whether the cgroup is below the container's own.
pub(super) fn container(path: &str) -> Option<(ContainerId, bool)> {
    let mut names = path.split('/');
    let id = names.by_ref().find_map(|name| ContainerId::parse(container_of(name)?))?;
    Some((id, names.next().is_some()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::{MAX_DIRECTORIES, Node, container, list, populated};
    use crate::{
        model::{
            fact::{Fact, NESTED},
            time::Timestamp,
        },
        source::{host::HostRoot, node::cgroup::Hierarchy},
    };

    /// One container has more cgroups than are read of a whole node.
    #[test]
    fn what_a_container_makes_leaves_no_other_pod_out() {
        let place = tempfile::tempdir().expect("a folder");
        let pod = |uid: char| format!("kubepods/pod{}", uid.to_string().repeat(32));
        let container = |uid: char| format!("{}/{}", pod(uid), uid.to_string().repeat(64));
        let mount = place.path().join("sys/fs/cgroup");
        let crowd = mount.join(container('a'));
        fs::create_dir_all(&crowd).expect("a folder");
        for number in 0..MAX_DIRECTORIES + 500 {
            let halves = crowd.join((number % 2).to_string());
            fs::create_dir_all(halves.join(number.to_string())).expect("a folder");
        }
        for uid in ['0', 'b', 'c', 'd', 'e', 'f'] {
            fs::create_dir_all(mount.join(container(uid)).join("init.scope")).expect("a folder");
        }
        let root = HostRoot::open(place.path()).expect("the root");
        let hierarchy = Hierarchy { id: 0, controllers: Vec::new(), mount: "/sys/fs/cgroup".to_owned() };
        let clock = || Timestamp(1);
        let node = Node { root: &root, hierarchy: &hierarchy, clock: &clock, boot_wall_ns: 0, stores: &[] };
        let (listing, containers) = list(node);
        let (batch, skipped) = listing.end();
        assert_eq!(containers.len(), 7);
        let found = batch.iter().filter_map(|seen| {
            if let Fact::CgroupFound { cgroup, .. } = &seen.fact { Some(cgroup) } else { None }
        });
        let nested: Vec<_> = found.clone().filter(|cgroup| cgroup.nested).collect();
        assert_eq!(nested.len(), NESTED + 6);
        // The root of all pods, and for each pod its own cgroup and its container's.
        assert_eq!(found.count() - nested.len(), 1 + 2 * 7);
        let is_complete =
            matches!(batch.last().map(|seen| &seen.fact), Some(Fact::ListEnded { complete: true, .. }));
        assert!(is_complete && format!("{skipped:?}").contains("TooMany"), "{skipped:?}");
    }

    #[test]
    fn a_path_tells_its_container() {
        let id = "0123456789abcdef".repeat(4);
        let found = |path: String| container(&path).map(|(found, nested)| (found.as_str() == id, nested));
        let slice = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1_2.slice";
        assert_eq!(found(format!("{slice}/cri-containerd-{id}.scope")), Some((true, false)));
        assert_eq!(found(format!("{slice}/crio-{id}.scope/container")), Some((true, true)));
        assert_eq!(found(format!("/kubepods/burstable/pod1-2/{id}")), Some((true, false)));
        assert_eq!(found(format!("/system.slice/docker-{id}.scope")), Some((true, false)));
        assert_eq!(found(format!("{slice}/crio-conmon-{id}.scope")), None);
        assert_eq!(
            found(format!("/system.slice/kubepods-pod1_2.slice:cri-containerd:{id}")),
            Some((true, false))
        );
        // As `/proc/PID/cgroup` shows it.
        assert_eq!(found(format!("0::/kubepods-pod1_2.slice:cri-containerd:{id}/below")), Some((true, true)));
        assert_eq!(found(slice.to_owned()), None);
        assert_eq!(found("/system.slice/containerd.service".to_owned()), None);
    }

    #[test]
    fn events_say_whether_it_is_populated() {
        assert!(populated(b"populated 1\nfrozen 0\n"));
        assert!(!populated(b"populated 0\nfrozen 0\n"));
        assert!(!populated(b""));
    }

    proptest! {
        #[test]
        fn no_path_is_too_strange(path: String, events: Vec<u8>) {
            container(&path);
            populated(&events);
        }
    }
}
