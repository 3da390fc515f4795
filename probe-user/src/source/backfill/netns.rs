//! The network namespaces: those that a process is in and those that a file holds.
//!
//! One that only an open file descriptor or a socket keeps alive is in neither, and no file tells of it: even a
//! complete list does not prove that such a one has ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use probe_common::runtime::{self, NETNS};

use super::{
    Listing, Node, proc,
    process::{Table, netns_key},
};
use crate::{
    model::{
        fact::{Fact, List},
        time::Timestamp,
    },
    source::host::{ReadError, mountinfo},
};

/// The name that the folder of namespaces has where `/var/run` is no link.
const OLD: &str = "/var/run/netns";
/// A node with a thousand pods has some ten thousand mounts.
const MOUNTINFO: usize = 16 << 20;

/// The namespaces but the node's own, and their inodes.
pub(super) fn list<'a>(node: Node<'a>, table: &Table) -> (Listing<'a>, BTreeSet<u32>) {
    let mut list = Listing::begin_at(table.begun, List::Netns, node);
    let mut found: BTreeMap<u32, (Timestamp, BTreeSet<String>)> = BTreeMap::new();
    let mut occupied = BTreeSet::new();
    // One whose namespace may not be read can be in any.
    let mut is_told = table.is_whole;
    for (pid, process) in table.iter() {
        found.entry(process.netns).or_insert((process.at, BTreeSet::new()));
        occupied.insert(process.netns);
        // Init's is the node's own, whatever it is, and no pod's.
        is_told &= process.hidden.is_none() || pid == 1;
        if let Some(why) = process.hidden.filter(|_| pid != 1) {
            list.skip(format!("/proc/{pid}/ns/net"), why);
        }
    }
    // Of none is it known then that nobody is in it.
    list.partial |= !is_told;
    for (at, inode, path) in mounted(node, table, &mut list).into_iter().chain(held(&mut list, node)) {
        found.entry(inode).or_insert((at, BTreeSet::new())).1.insert(path);
    }
    // Not to be read, and the node's own.
    found.remove(&0);
    if let Some(own) = table.own_netns() {
        found.remove(&own);
    }
    let inodes = found.keys().copied().collect();
    for (inode, (at, mounts)) in found {
        let mounts = mounts.into_iter().collect();
        let vacant = is_told && !occupied.contains(&inode);
        list.found(at, Fact::NetnsFound { netns: netns_key(inode), mounts, vacant });
    }
    (list, inodes)
}

/// As the mount tables say, of the node's init and of each runtime that has mounts of its own.
fn mounted(node: Node<'_>, table: &Table, list: &mut Listing<'_>) -> Vec<(Timestamp, u32, String)> {
    let mut tables: BTreeMap<u32, u32> = BTreeMap::new();
    for (pid, process) in table.iter().filter(|(pid, process)| *pid == 1 || process.is_runtime()) {
        tables.entry(process.mnt_ns).or_insert(pid);
    }
    let mut found = Vec::new();
    for pid in tables.into_values() {
        let folder = format!("/proc/{pid}");
        let at = list.now();
        let text = node.root.folder(&folder).and_then(|folder| folder.read("mountinfo", MOUNTINFO));
        let text = list.take(Path::new(&folder).join("mountinfo"), text).unwrap_or_default();
        let mounts = mountinfo::parse(&text).into_iter();
        found
            .extend(mounts.filter_map(|mount| Some((at, proc::namespace("net", &mount.root)?, mount.point))));
    }
    found
}

/// As the files themselves say, wherever they are reached from here.
fn held(list: &mut Listing<'_>, node: Node<'_>) -> Vec<(Timestamp, u32, String)> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for path in [NETNS, OLD].iter().chain(runtime::of_runtimes(|row| row.netns)) {
        let folder =
            node.root.folder(path).and_then(|folder| Ok((folder.inode()?, folder.entries()?, folder)));
        let Some((inode, entries, folder)) = list.take(path, folder) else { continue };
        // `/var/run` is a link to `/run` on most nodes.
        if !seen.insert(inode) {
            continue;
        }
        for entry in entries.entries.iter().filter(|entry| !entry.directory) {
            let at = list.now();
            let path = folder.path().join(&entry.name);
            let inode = folder.namespace(&entry.name);
            let Some(Some(inode)) = list.take(&path, inode) else { continue };
            match u32::try_from(inode) {
                Ok(inode) => found.push((at, inode, path.to_string_lossy().into_owned())),
                Err(_) => list.skip(path, ReadError::Malformed),
            }
        }
    }
    found
}
