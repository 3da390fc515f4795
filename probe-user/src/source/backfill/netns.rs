//! Lists the network namespaces that a process is in, and those that a file holds.
//!
//! A namespace that only an open file descriptor or a socket keeps alive is in neither list, and no file
//! shows it. So even a complete list does not prove that such a namespace has ended.

use std::collections::{BTreeMap, BTreeSet};

use nix::errno::Errno;
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
    source::host::{HostRoot, ReadError, mountinfo},
};

/// The folder of named namespaces, where `/var/run` is not a link.
const OLD_NETNS: &str = "/var/run/netns";
/// The longest mount table that is read, bytes. A node with a thousand pods has some ten thousand mounts.
const MAX_MOUNTINFO_BYTES: usize = 16 << 20;

/// Lists all namespaces except the node's own, and returns their inodes.
pub(super) fn list<'a>(node: Node<'a>, table: &Table) -> (Listing<'a>, BTreeSet<u32>) {
    let mut list = Listing::begin_at(table.begun, List::Netns, node);
    let mut found: BTreeMap<u32, (Timestamp, BTreeSet<String>)> = BTreeMap::new();
    let mut occupied = BTreeSet::new();
    // A process whose namespace may not be read can be in any namespace.
    let mut all_known = table.is_whole;
    for (pid, process) in table.iter() {
        found.entry(process.netns).or_insert((process.at, BTreeSet::new()));
        occupied.insert(process.netns);
        // Init is in the node's own namespace, even if that may not be read.
        if pid != 1
            && let Some(why) = process.hidden
        {
            all_known = false;
            list.skip(format!("/proc/{pid}/ns/net"), why);
        }
    }
    // Then no namespace is known to be without processes.
    list.partial |= !all_known;
    for (at, inode, path) in mounted(node, table, &mut list).into_iter().chain(held(&mut list, node)) {
        found.entry(inode).or_insert((at, BTreeSet::new())).1.insert(path);
    }
    // Zero means a namespace that could not be read; the other is the node's own.
    found.remove(&0);
    if let Some(own) = table.own_netns() {
        found.remove(&own);
    }
    let inodes = found.keys().copied().collect();
    for (inode, (at, mounts)) in found {
        let mounts = mounts.into_iter().collect();
        let vacant = all_known && !occupied.contains(&inode);
        list.found(at, Fact::NetnsFound { netns: netns_key(inode), mounts, vacant });
    }
    (list, inodes)
}

/// Returns the namespaces in the mount tables of the node's init and of each runtime that has mounts of its
/// own.
fn mounted(node: Node<'_>, table: &Table, list: &mut Listing<'_>) -> Vec<(Timestamp, u32, String)> {
    let mut tables: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (pid, process) in table.iter().filter(|(pid, process)| *pid == 1 || process.is_runtime()) {
        tables.entry(process.mnt_ns).or_default().push(pid);
    }
    let mut found = Vec::new();
    for pids in tables.into_values() {
        let at = list.now();
        let mut read = pids.into_iter().filter_map(|pid| {
            let path = format!("/proc/{pid}/mountinfo");
            list.take(path, mount_table(node.root, pid))
        });
        let text = read.next().unwrap_or_default();
        let mounts = mountinfo::parse(&text).into_iter();
        found
            .extend(mounts.filter_map(|mount| Some((at, proc::namespace("net", &mount.root)?, mount.point))));
    }
    found
}

/// Reads the mount table of a process. A process that ends leaves its mount namespace before it is gone; the
/// kernel then returns `EINVAL` (`mounts_open_common`).
fn mount_table(root: &HostRoot, pid: u32) -> Result<Vec<u8>, ReadError> {
    let text =
        root.folder(format!("/proc/{pid}")).and_then(|folder| folder.read("mountinfo", MAX_MOUNTINFO_BYTES));
    text.map_err(|why| if why == ReadError::Unreadable(Errno::EINVAL) { ReadError::Absent } else { why })
}

/// Returns the namespaces whose files can be opened from here.
fn held(list: &mut Listing<'_>, node: Node<'_>) -> Vec<(Timestamp, u32, String)> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for path in [NETNS, OLD_NETNS].iter().chain(runtime::of_runtimes(|row| row.netns)) {
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

#[cfg(test)]
mod tests {
    use std::{path::Path, process::Command};

    use nix::{
        sys::wait::{Id, WaitPidFlag, waitid},
        unistd::Pid,
    };

    use super::{HostRoot, ReadError, mount_table};

    #[test]
    fn a_process_that_has_ended_has_no_mounts_and_is_no_failure() {
        let root = HostRoot::open(Path::new("/")).expect("the root");
        let mut child = Command::new("true").spawn().expect("a process");
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
        // It stays as a zombie until it is waited for.
        waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).expect("its end");
        assert_eq!(mount_table(&root, child.id()), Err(ReadError::Absent));
        child.wait().expect("its status");
        assert_eq!(mount_table(&root, child.id()), Err(ReadError::Absent));
        assert!(mount_table(&root, std::process::id()).is_ok_and(|text| !text.is_empty()));
    }
}
