//! The networks that pods are attached to, as `/etc/cni/net.d` and its like configure them.
//!
//! A configuration may hold others within it (multus' and flannel's delegates): their plugins run too.

mod conf;
mod pool;

use std::{collections::BTreeSet, path::PathBuf};

use probe_common::runtime;

use super::{Listing, Node, daemon::Daemon};
use crate::{
    model::fact::{Fact, Network, NetworksRead},
    source::host::{Folder, HostRoot, ReadError},
};

/// What libcni takes for configurations.
const ENDINGS: [&str; 3] = [".conf", ".conflist", ".json"];
/// Longest file taken, bytes, and most of them in a folder.
const LONGEST: usize = 64 << 10;
const MOST: usize = 64;
/// Plugins of which the pools are known.
const FLANNEL: &str = "flannel";
const HOST_LOCAL: &str = "host-local";

/// A network, and what only the readers of stores need of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Configured {
    pub(super) network: Network,
    /// Where its host-local keeps its store, if not in the usual place.
    pub(super) data_dir: Option<PathBuf>,
}

/// Tells of all networks, and gives them.
pub(super) fn tell(node: Node<'_>, daemons: &[Daemon], list: &mut Listing<'_>) -> Vec<Configured> {
    let at = list.now();
    let mut folders: Vec<(PathBuf, &HostRoot)> =
        runtime::of_distributions(|row| row.networks).map(|path| (PathBuf::from(path), node.root)).collect();
    folders.extend(daemons.iter().filter_map(|it| Some((it.networks.clone()?, it.files(node.root)))));
    let mut seen = BTreeSet::new();
    let mut found: Vec<Configured> = Vec::new();
    let before = list.skipped.count;
    for (path, files) in folders {
        let folder = files.folder(&path).and_then(|folder| Ok((folder.inode()?, folder)));
        let Some((inode, folder)) = list.take(&path, folder) else { continue };
        // The same one by another name.
        if seen.insert(inode) {
            for configured in read(list, &folder).unwrap_or_default() {
                // The first one of a name is the one in use.
                if found.iter().all(|it| it.network.name != configured.network.name) {
                    found.push(configured);
                }
            }
        }
    }
    if found.iter().any(|it| it.network.plugins.iter().any(|kind| kind == FLANNEL)) {
        pool::flannel(node, list, &mut found);
    }
    // What could not be read may name another folder.
    let complete = list.skipped.count == before && daemons.iter().all(|daemon| daemon.unread.is_none());
    let networks = found.iter().map(|it| it.network.clone()).collect();
    list.found(at, Fact::NetworksRead(NetworksRead { networks, complete }));
    found
}

fn read(list: &mut Listing<'_>, folder: &Folder) -> Option<Vec<Configured>> {
    let entries = list.take(folder.path(), folder.entries())?;
    let is_one = |name: &str| ENDINGS.iter().any(|ending| name.ends_with(ending));
    let names: Vec<_> = entries.entries.iter().map(|it| &*it.name).filter(|name| is_one(name)).collect();
    if names.len() > MOST || entries.left_out > 0 {
        list.skip(folder.path(), ReadError::TooMany(MOST));
    }
    let mut found = Vec::new();
    for name in names.into_iter().take(MOST) {
        let parsed =
            folder.read(name, LONGEST).and_then(|bytes| conf::parse(&bytes).ok_or(ReadError::Malformed));
        found.extend(list.take(folder.path().join(name), parsed).into_iter().flatten());
    }
    Some(found)
}
