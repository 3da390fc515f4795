//! Docker's own record of each container. dockershim and cri-dockerd label those that are sandboxes.
//!
//! A record that cannot be read may be a sandbox's. It is reported by its id. The list stays complete: the
//! other records, and the absence of others, still count.

use std::path::Path;

use super::{
    super::{Listing, docker},
    Records, sandbox,
};
use crate::{
    model::{
        fact::{RuntimeKind, RuntimeSandbox},
        id::ContainerId,
    },
    source::host::{FILE, HostRoot, ReadError, memo::Memo},
};

/// The file in each container's folder.
const RECORD: &str = "config.v2.json";
/// Further containers are left out.
const MAX_CONTAINERS: usize = 1 << 14;

pub(super) fn read(
    host: &HostRoot,
    root: &Path,
    memo: &mut Memo<Option<RuntimeSandbox>>,
    list: &mut Listing<'_>,
) -> Records {
    let place = root.join("containers");
    let sandboxes = sandboxes(host, &place, memo, list);
    let unread = sandboxes.as_ref().map_or(0, |read| read.unread);
    let sandboxes = sandboxes.map(|read| (read.sandboxes, read.complete));
    Records { unread, ..Records::new(place, Some(RuntimeKind::Docker), sandboxes) }
}

#[derive(Default)]
struct Read {
    sandboxes: Vec<RuntimeSandbox>,
    complete: bool,
    unread: u64,
}

fn sandboxes(
    host: &HostRoot,
    place: &Path,
    memo: &mut Memo<Option<RuntimeSandbox>>,
    list: &mut Listing<'_>,
) -> Result<Read, ReadError> {
    let folder = host.folder(place)?;
    let entries = folder.entries()?;
    let complete = entries.left_out == 0 && entries.entries.len() <= MAX_CONTAINERS;
    let mut found = Read { complete, ..Read::default() };
    for entry in entries.entries.iter().take(MAX_CONTAINERS) {
        let Some(id) = ContainerId::parse(&entry.name) else { continue };
        let read = folder.folder(&entry.name).and_then(|folder| {
            memo.of(&folder).read(RECORD, FILE, |bytes, _| Some(sandbox(docker::parse(bytes, &id)?)))
        });
        match read {
            Ok(sandbox) => found.sandboxes.extend(sandbox),
            Err(ReadError::Absent) => {}
            Err(why) => {
                list.set_aside(place.join(&entry.name).join(RECORD), why);
                found.sandboxes.push(RuntimeSandbox { id, pod: None });
                found.unread += 1;
            }
        }
    }
    Ok(found)
}
