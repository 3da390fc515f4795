//! The processes that matter: the tops of containers, the programs that make pods, and CNI plugins at work.
//!
//! They are chosen by the names by which the hooks choose (`probe_common::name`). Every other process is looked at
//! only for its parent, its cgroup and its network namespace.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, HashMap},
};

use probe_common::{name, text::sixteen};

use super::{Listing, Node, cgroupfs, proc};
use crate::{
    engine::{
        fact::{Fact, List, ProcessFound, Task},
        id::{CgroupKey, NetnsKey, TaskKey},
        time::Timestamp,
    },
    source::{
        cgroup,
        host::{Folder, Miss},
    },
};

/// Bytes kept of a command line and looked at of an environment.
const ARGUMENTS: usize = 4096;
const ENVIRONMENT: usize = 1 << 20;
/// How far above a plugin its caller can be: other plugins and a wrapper's shell stand between.
const ANCESTORS: usize = 4;

/// Every process, by pid.
#[derive(Debug)]
pub(super) struct Table {
    /// Before any of them was read.
    pub(super) begun: Timestamp,
    /// None of those that were there is missing.
    pub(super) is_whole: bool,
    processes: BTreeMap<u32, Process>,
}

#[derive(Debug)]
pub(super) struct Process {
    /// Just before it was read.
    pub(super) at: Timestamp,
    stat: proc::Stat,
    cgroup: String,
    /// Inodes of its namespaces; 0 = it has given them up, or they may not be read.
    pub(super) netns: u32,
    pub(super) mnt_ns: u32,
    /// Why its network namespace may not be read.
    pub(super) hidden: Option<Miss>,
    container: Option<String>,
}

impl Table {
    /// The network namespace of the node itself, which is no pod's: init's, or where that may not be read the one
    /// that most programs outside of containers are in.
    pub(super) fn own_netns(&self) -> Option<u32> {
        let init = self.processes.get(&1).map(|init| init.netns).filter(|netns| *netns != 0);
        init.or_else(|| {
            let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
            for process in self.processes.values().filter(|process| process.container.is_none()) {
                *counts.entry(process.netns).or_default() += u32::from(process.netns != 0);
            }
            let most = counts.into_iter().max_by_key(|(_, count)| *count);
            most.filter(|(_, count)| *count > 0).map(|(netns, _)| netns)
        })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Process)> {
        self.processes.iter().map(|(pid, process)| (*pid, process))
    }

    fn key(&self, pid: u32) -> TaskKey {
        TaskKey::new(pid, self.processes.get(&pid).map_or(0, |process| process.stat.start))
    }

    /// Whether a runtime is among its ancestors.
    fn called(&self, process: &Process) -> bool {
        let mut parent = process.stat.parent;
        (0..ANCESTORS).any(|_| {
            let Some(found) = self.processes.get(&parent) else { return false };
            parent = found.stat.parent;
            found.is_caller()
        })
    }

    /// The first program in a container's cgroup: its parent is in none. One whose own parent has ended is in the
    /// care of its pid namespace's init, which may be in another container of the pod.
    fn is_top(&self, process: &Process) -> bool {
        let outside = |parent: &Process| parent.container.is_none();
        process.container.is_some() && self.processes.get(&process.stat.parent).is_none_or(outside)
    }
}

impl Process {
    /// A program of the node that makes pods: in a container a name proves nothing.
    fn is_caller(&self) -> bool {
        self.container.is_none() && self.has_name_of(&name::CALLERS)
    }

    /// One that may have mounts of its own, in which it holds namespaces.
    pub(super) fn is_runtime(&self) -> bool {
        self.is_caller() || self.container.is_none() && self.has_name_of(&name::RUNTIMES)
    }

    fn has_name_of(&self, names: &[[u8; 16]]) -> bool {
        names.contains(&sixteen(&self.stat.comm))
    }
}

pub(super) fn list(node: Node<'_>) -> (Listing<'_>, Table) {
    let mut list = Listing::begin(List::Processes, node);
    let mut table = Table { begun: list.now(), is_whole: false, processes: BTreeMap::new() };
    let proc = node.root.folder("/proc").and_then(|proc| Ok((proc.entries()?, proc)));
    let proc = proc.map_err(|why| if why == Miss::Absent { Miss::NotPlain } else { why });
    let Some((entries, proc)) = list.take("/proc", proc) else { return (list, table) };

    let members = OnceCell::new();
    for entry in &entries.entries {
        let Ok(pid) = entry.name.parse::<u32>() else { continue };
        let at = list.now();
        let found = proc.folder(&entry.name).and_then(|folder| read(&folder, at, node.hierarchy.id));
        // One that has ended and waits for its parent is no more than its exit status.
        if let Some(mut process) = list.take(proc.path().join(&entry.name), found)
            && !matches!(process.stat.state, 'Z' | 'X')
        {
            // In a cgroup namespace of our own, what lies outside of it is told from where we are.
            if process.cgroup.starts_with("/..") {
                let members: &HashMap<u32, String> = members.get_or_init(|| cgroupfs::members(node));
                process.cgroup = members.get(&pid).cloned().unwrap_or(process.cgroup);
            }
            table.processes.insert(pid, process);
        }
    }
    table.is_whole = list.skipped.is_none() && entries.left_out == 0;
    let mut cgroups = Cgroups { node, ids: HashMap::new() };
    for (pid, process) in table.iter() {
        let name = pid.to_string();
        let found =
            proc.folder(&name).and_then(|folder| describe(&table, pid, process, &folder, &mut cgroups));
        if let Some(Some(found)) = list.take(proc.path().join(name), found) {
            list.found(process.at, Fact::ProcessFound(found));
        }
    }
    (list, table)
}

fn read(folder: &Folder, at: Timestamp, hierarchy: u32) -> Result<Process, Miss> {
    let stat = proc::stat(&folder.head("stat", 4096)?).ok_or(Miss::Malformed)?;
    let cgroup = cgroup::path_in(hierarchy, &folder.head("cgroup", 1 << 16)?).unwrap_or_default();
    let container = cgroupfs::container(&cgroup).map(|(id, _)| id.as_str().to_owned());
    let namespace = |kind: &str| {
        let link = folder.link(&format!("ns/{kind}"))?;
        proc::namespace(kind, &link).ok_or(Miss::Malformed)
    };
    let (netns, mnt_ns) = (namespace("net"), namespace("mnt").unwrap_or(0));
    let hidden = netns.err().filter(|why| *why != Miss::Absent);
    Ok(Process { at, stat, cgroup, netns: netns.unwrap_or(0), mnt_ns, hidden, container })
}

/// `None`: it does not matter, or is no longer the same process.
fn describe(
    table: &Table,
    pid: u32,
    process: &Process,
    folder: &Folder,
    cgroups: &mut Cgroups<'_>,
) -> Result<Option<ProcessFound>, Miss> {
    // Init shows which network namespace is the node's own.
    let matters = pid == 1
        || table.is_top(process)
        || [&name::CALLERS[..], &name::RUNTIMES, &name::PAUSES]
            .iter()
            .any(|names| process.has_name_of(names));
    let mut cni = None;
    if !matters {
        if process.container.is_some() || !table.called(process) {
            return Ok(None);
        }
        cni = proc::cni(&folder.head("environ", ENVIRONMENT)?);
        if cni.is_none() {
            return Ok(None);
        }
    }
    let same = proc::stat(&folder.head("stat", 4096)?).is_some_and(|now| now.start == process.stat.start);
    if !same {
        return Ok(None);
    }
    let filename = folder.link("exe").unwrap_or_default();
    Ok(Some(ProcessFound {
        task: Task {
            key: table.key(pid),
            tid: pid,
            parent: table.key(process.stat.parent),
            comm: process.stat.comm.clone(),
            cgroup: cgroups.key(&process.cgroup),
            netns: process.netns,
        },
        argv: proc::arguments(&folder.head("cmdline", ARGUMENTS)?),
        cgroup_path: process.cgroup.clone(),
        ns_pid: proc::ns_pid(&folder.head("status", 1 << 16)?).unwrap_or(0),
        cni,
        filename: filename.strip_suffix(" (deleted)").unwrap_or(&filename).to_owned(),
    }))
}

/// Keys of cgroups by their paths; zero of one that is gone.
struct Cgroups<'a> {
    node: Node<'a>,
    ids: HashMap<String, CgroupKey>,
}

impl Cgroups<'_> {
    fn key(&mut self, path: &str) -> CgroupKey {
        let hierarchy = self.node.hierarchy;
        *self.ids.entry(path.to_owned()).or_insert_with(|| {
            let folder = self.node.root.folder(format!("{}{path}", hierarchy.mount));
            let id = folder.and_then(|folder| folder.inode());
            id.map_or(CgroupKey::default(), |id| CgroupKey::new(hierarchy.id, id))
        })
    }
}

/// A namespace as a listing knows it: without the cookie, which no file tells.
pub(super) fn netns_key(inode: u32) -> NetnsKey {
    NetnsKey::new(inode, 0)
}
