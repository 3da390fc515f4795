//! Reads the networks that pods are attached to, as configured in `/etc/cni/net.d` and similar folders.
//!
//! A configuration may hold other networks (the delegates of multus and flannel). Their plugins run too.

mod conf;
mod loading;
mod pool;

use std::{collections::BTreeSet, path::PathBuf};

use probe_common::runtime;

use super::{
    Listing, Node,
    runtime::daemon::{Daemon, Kind},
};
use crate::{
    model::{
        fact::{Fact, Network, NetworksRead, NodeFolders},
        time::Timestamp,
    },
    source::host::{Folder, HostRoot, ReadError, memo::Memo},
};

/// The file names that libcni reads as configurations.
const ENDINGS: [&str; 3] = [".conf", ".conflist", ".json"];
/// The longest file that is read, in bytes.
const MAX_BYTES: usize = 64 << 10;
/// Further files of a folder are skipped.
const MAX_FILES: usize = 64;
/// Plugins whose address pools are known.
const FLANNEL: &str = "flannel";
const HOST_LOCAL: &str = "host-local";

/// A network, and what the readers of address stores need to know of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Configured {
    pub(super) network: Network,
    /// The folder of its host-local store, if it is not the usual one.
    pub(super) data_dir: Option<PathBuf>,
}

/// Reports all networks to the engine, and returns them.
pub(super) fn report(
    node: Node<'_>,
    daemons: &[Daemon],
    memo: &mut Memo<Vec<Configured>>,
    list: &mut Listing<'_>,
) -> Vec<Configured> {
    let at = list.now();
    let mut folders: Vec<(PathBuf, &HostRoot)> =
        runtime::of_distributions(|row| row.networks).map(|path| (PathBuf::from(path), node.root)).collect();
    folders.extend(daemons.iter().filter_map(|it| Some((it.networks.clone()?, it.files(node.root)))));
    let mut seen = BTreeSet::new();
    let mut found: Vec<Configured> = Vec::new();
    let mut undecodable = Vec::new();
    let mut written = None;
    let mut networks = Vec::new();
    let before = list.skipped.count;
    for (path, files) in folders {
        let folder = files.folder(&path).and_then(|folder| Ok((folder.inode()?, folder)));
        let Some((inode, folder)) = list.take(&path, folder) else { continue };
        // Otherwise it is the same folder under another name.
        if seen.insert(inode) {
            networks.push(path.display().to_string());
            let (configurations, first) =
                read(node, list, &folder, memo, &mut undecodable).unwrap_or_default();
            written = written.into_iter().chain(first).min();
            for configured in configurations {
                // If two have the same name, libcni uses the first.
                if found.iter().all(|it| it.network.name != configured.network.name) {
                    found.push(configured);
                }
            }
        }
    }
    if found.iter().any(|it| it.network.plugins.iter().any(|kind| kind == FLANNEL)) {
        pool::flannel(node, list, &mut found);
    }
    // A configuration that could not be read may name another folder.
    let complete = list.skipped.count == before && daemons.iter().all(|daemon| daemon.unread.is_none());
    let kubelets = daemons.iter().filter(|it| it.kind == Kind::Kubelet);
    let kubelet = kubelets.filter_map(|it| it.root.as_ref()).map(|root| root.display().to_string()).next();
    let (loading, plugins) = loading::read(node, daemons);
    let folders = NodeFolders { networks, plugins, kubelet };
    let networks = found.iter().map(|it| it.network.clone()).collect();
    let read = NetworksRead { networks, complete, undecodable, written, folders, loading };
    list.found(at, Fact::NetworksRead(read));
    found
}

/// Reads the networks in a folder. Returns them, and the earliest change of one of their files since boot.
fn read(
    node: Node<'_>,
    list: &mut Listing<'_>,
    folder: &Folder,
    memo: &mut Memo<Vec<Configured>>,
    undecodable: &mut Vec<String>,
) -> Option<(Vec<Configured>, Option<Timestamp>)> {
    let entries = list.take(folder.path(), folder.entries())?;
    let names: Vec<_> =
        entries.entries.iter().map(|it| &*it.name).filter(|name| is_configuration(name)).collect();
    if names.len() > MAX_FILES || entries.left_out > 0 {
        list.skip(folder.path(), ReadError::TooMany(MAX_FILES));
    }
    // libcni reads such files too.
    for name in entries.not_utf8.iter().filter(|name| is_configuration(name)) {
        list.skip(folder.path().join(name), ReadError::NotUtf8);
    }
    let mut files = memo.of(folder);
    let mut found = Vec::new();
    let mut written = None;
    for name in names.into_iter().take(MAX_FILES) {
        let parsed = files.read(name, MAX_BYTES, |bytes, _| conf::parse(bytes));
        if parsed.is_ok() {
            let changed = folder.edition(name).ok().map(|it| node.boot_time(it.changed_wall_ns()));
            written = changed.filter(|at| *at > Timestamp::ZERO).into_iter().chain(written).min();
        }
        let path = folder.path().join(name);
        if matches!(parsed, Err(ReadError::Malformed)) {
            undecodable.push(path.display().to_string());
        }
        found.extend(list.take(path, parsed).into_iter().flatten());
    }
    Some((found, written))
}

fn is_configuration(name: &str) -> bool {
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}
