//! Lists the network namespaces that a process is in, and those that a file holds.
//!
//! A namespace that only an open file descriptor or a socket keeps alive is in neither list, and no file shows it. So
//! even a complete list does not prove that such a namespace has ended.

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

/// The folder of named namespaces, where `/var/run` is not a link.
const OLD: &str = "/var/run/netns";
/// The longest mount table that is read, bytes. A node with a thousand pods has some ten thousand mounts.
const MOUNTINFO: usize = 16 << 20;

/// Lists all namespaces except the node's own, and gives their inodes.
pub(super) fn list<'a>(node: Node<'a>, table: &Table) -> (Listing<'a>, BTreeSet<u32>) {
    let mut list = Listing::begin_at(table.begun, List::Netns, node);
    let mut found: BTreeMap<u32, (Timestamp, BTreeSet<String>)> = BTreeMap::new();
    let mut occupied = BTreeSet::new();
    // A process whose namespace may not be read can be in any namespace.
    let mut is_told = table.is_whole;
    for (pid, process) in table.iter() {
        found.entry(process.netns).or_insert((process.at, BTreeSet::new()));
        occupied.insert(process.netns);
        // Init is in the node's own namespace, even if that may not be read.
        is_told &= process.hidden.is_none() || pid == 1;
        if let Some(why) = process.hidden.filter(|_| pid != 1) {
            list.skip(format!("/proc/{pid}/ns/net"), why);
        }
    }
    // Then no namespace is known to be without processes.
    list.partial |= !is_told;
    for (at, inode, path) in mounted(node, table, &mut list).into_iter().chain(held(&mut list, node)) {
        found.entry(inode).or_insert((at, BTreeSet::new())).1.insert(path);
    }
    // Zero stands for a namespace that could not be read; the other is the node's own.
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

/// The namespaces in the mount tables of the node's init and of each runtime that has mounts of its own.
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

/// The namespaces whose files can be opened from here.
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
