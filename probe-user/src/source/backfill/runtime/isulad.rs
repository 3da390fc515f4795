//! iSulad's sandboxes, by the bundles that it keeps for all containers until they are removed: `ROOT/engines/RUNTIME/ID`.
//! Their annotations are those of containerd's CRI plugin.
//!
//! A bundle that cannot be read may be a sandbox's. It is told by its id, as with Docker.

use std::path::{Path, PathBuf};

use super::{
    super::{Listing, spec},
    Records,
};
use crate::{
    model::{
        fact::{Role, RuntimeKind, RuntimeSandbox},
        id::ContainerId,
    },
    source::{
        host::{FILE, HostRoot, ReadError},
        name::named,
    },
};

/// The folder in its root that has one for each of its OCI runtimes.
pub(in crate::source::backfill) const ENGINES: &str = "engines";
/// The most containers that are read.
const MOST: usize = 1 << 14;

/// The folders with the bundles of one OCI runtime each.
pub(in crate::source::backfill) fn engines<'a>(
    host: &HostRoot,
    roots: impl Iterator<Item = &'a Path>,
) -> Vec<PathBuf> {
    let places = roots.map(|root| root.join(ENGINES));
    let folders =
        places.filter_map(|place| host.folder(&place).and_then(|it| Ok((it.entries()?, place))).ok());
    let of_engines = folders.flat_map(|(found, place)| {
        let names = found.entries.into_iter().filter(|entry| entry.directory);
        names.map(move |entry| place.join(entry.name)).collect::<Vec<_>>()
    });
    of_engines.collect()
}

pub(super) fn read(host: &HostRoot, root: &Path, list: &mut Listing<'_>) -> Records {
    let place = root.join(ENGINES);
    let mut unread = 0;
    let sandboxes = sandboxes(host, root, &place, &mut unread, list);
    Records { unread, ..Records::new(place, Some(RuntimeKind::Isulad), sandboxes) }
}

fn sandboxes(
    host: &HostRoot,
    root: &Path,
    place: &Path,
    unread: &mut u64,
    list: &mut Listing<'_>,
) -> Result<(Vec<RuntimeSandbox>, bool), ReadError> {
    let mut complete = host.folder(place)?.entries()?.left_out == 0;
    let mut found = Vec::new();
    for engine in engines(host, [root].into_iter()) {
        let folder = host.folder(&engine)?;
        let entries = folder.entries()?;
        complete &= entries.left_out == 0 && entries.entries.len() <= MOST;
        for entry in entries.entries.iter().take(MOST) {
            let Some(id) = ContainerId::parse(&entry.name) else { continue };
            let config = folder.folder(&entry.name).and_then(|it| it.read("config.json", FILE));
            match config.and_then(|config| spec::parse(&config, &id).ok_or(ReadError::Malformed)) {
                Ok(it) if it.role == Role::Sandbox => {
                    found.push(RuntimeSandbox { id, pod: it.pod.and_then(named) });
                }
                Ok(_) | Err(ReadError::Absent) => {}
                Err(why) => {
                    list.set_aside(engine.join(&entry.name).join("config.json"), why);
                    found.push(RuntimeSandbox { id, pod: None });
                    *unread += 1;
                }
            }
        }
    }
    Ok((found, complete))
}
