//! The settings that the loader passes to the eBPF programs: offsets of this kernel, and switches for this
//! node.

use std::{path::Path, time::Duration};

use nix::errno::Errno;
use probe_common::knob::{ABSENT, NETS_MAX, Offsets, Switches};

use super::{btf::Btf, error::Error};
use crate::source::{
    host::{HostRoot, ReadError},
    node::cgroup::Hierarchy,
};

/// Looks up every struct member. Members of one kind of hook may be missing; `support` then rules that hook
/// out.
pub(super) fn offsets(btf: &Btf) -> Result<Offsets, Error> {
    let mut missing = Vec::new();
    let offsets = Offsets::find(|member| {
        let found = match member.paths {
            [] => btf.size(member.of),
            paths => paths.iter().find_map(|path| btf.member(member.of, path)),
        };
        if found.is_none() && member.needed {
            missing.push(member.to_string());
        }
        found
    });
    if missing.is_empty() { Ok(offsets) } else { Err(Error::Members(missing.join(", "))) }
}

/// Returns how many slots the hooks use if they may use `nets`.
pub(super) fn room(nets: u32) -> u32 {
    nets.clamp(1, NETS_MAX).next_power_of_two()
}

/// Identifies a node to the hooks. Nodes that are containers (kind) share one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NodeId {
    /// See [`Switches::root_cgroup`].
    pub(super) root_cgroup: u64,
    /// The namespaces of its first process.
    pub(super) pid_ns: u32,
    pub(super) netns: u32,
}

impl NodeId {
    pub(super) fn read(root: &HostRoot, hierarchy: &Hierarchy) -> Result<Self, Error> {
        Ok(Self {
            root_cgroup: root.folder(&hierarchy.mount).and_then(|folder| folder.inode()).unwrap_or(0),
            pid_ns: namespace(root, "pid")?,
            netns: namespace(root, "net")?,
        })
    }
}

/// Returns the switches for the hierarchy that identifies containers. `cleanup_net` is the address of the
/// work function that tears network namespaces down; 0 if it is unknown.
pub(super) fn switches(
    btf: &Btf,
    node: NodeId,
    hierarchy: &Hierarchy,
    all_execs: bool,
    cleanup_net: u64,
    nets: u32,
    patience: Duration,
) -> Result<Switches, Error> {
    Ok(Switches {
        cleanup_net,
        patience: u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX),
        root_cgroup: node.root_cgroup,
        hierarchy: hierarchy.id,
        subsys: subsys(btf, hierarchy)?,
        host_pid_ns: node.pid_ns,
        // On a node that is a container (kind), the first process is not in the initial network namespace.
        // Kernels that give the initial one a fixed number name it here.
        init_netns: btf.enumerator("init_ns_ino", "NET_NS_INIT_INO").unwrap_or(node.netns),
        all_execs: all_execs.into(),
        oom_passes_task: btf.tracepoint_passes_pointer("mark_victim", 0).unwrap_or(false).into(),
        nets: room(nets),
        _pad: [0; 4],
    })
}

/// Returns the subsystem of a task that leads to the hierarchy, for cgroup v1.
fn subsys(btf: &Btf, hierarchy: &Hierarchy) -> Result<u32, Error> {
    if hierarchy.id == 0 {
        return Ok(ABSENT);
    }
    hierarchy
        .controllers
        .iter()
        .find_map(|controller| btf.enumerator("cgroup_subsys_id", &format!("{controller}_cgrp_id")))
        .ok_or_else(|| Error::Members(format!("a cgroup controller of {}", hierarchy.mount)))
}

/// Returns the inode of the namespace of the node's first process. That process may have capabilities that
/// this one does not have, so its namespace may not be readable; then both are in the same namespace.
fn namespace(root: &HostRoot, kind: &str) -> Result<u32, Error> {
    const FIRST: &str = "/proc/1/ns";
    let link = match root.folder(FIRST).and_then(|folder| folder.link(kind)) {
        Err(ReadError::Unreadable(Errno::EACCES)) => HostRoot::open(Path::new("/"))
            .map_err(|error| Error::Namespaces { path: FIRST, why: error.to_string() })?
            .folder("/proc/thread-self/ns")
            .and_then(|folder| folder.link(kind)),
        link => link,
    };
    let inode = link.and_then(|link| inode_of(&link).ok_or(ReadError::Malformed));
    inode.map_err(|miss| Error::Namespaces { path: FIRST, why: miss.to_string() })
}

/// Parses `pid:[4026531836]`.
fn inode_of(link: &str) -> Option<u32> {
    link.split_once(":[")?.1.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::{Error, Hierarchy, HostRoot, NodeId, inode_of};

    #[test]
    fn a_namespace_link_holds_its_inode() {
        assert_eq!(inode_of("pid:[4026531836]"), Some(4_026_531_836));
        assert_eq!(inode_of("pid:[x]"), None);
        assert_eq!(inode_of("pid"), None);
    }

    #[test]
    fn a_node_is_known_by_its_first_process_and_its_cgroups() {
        let place = tempfile::tempdir().expect("a folder");
        let (first, cgroups) = (place.path().join("proc/1/ns"), place.path().join("sys/fs/cgroup"));
        let hierarchy = Hierarchy { id: 0, controllers: Vec::new(), mount: "/sys/fs/cgroup".to_owned() };
        let read = || NodeId::read(&HostRoot::open(place.path()).expect("the root"), &hierarchy);
        fs::create_dir_all(&first).expect("folders");
        let error = read().expect_err("no namespaces");
        assert!(matches!(error, Error::Namespaces { .. }), "{error}");
        symlink("pid:[12]", first.join("pid")).expect("a link");
        symlink("net:[34]", first.join("net")).expect("a link");
        let node = read().expect("a node");
        assert_eq!(node, NodeId { root_cgroup: 0, pid_ns: 12, netns: 34 });
        fs::create_dir_all(&cgroups).expect("folders");
        assert_ne!(read().expect("a node").root_cgroup, 0);
    }
}
