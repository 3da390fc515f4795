//! Docker's own record of each container; dockershim and cri-dockerd label those that are sandboxes.

use std::path::Path;

use super::{
    super::{Listing, docker},
    Records, named,
};
use crate::{
    engine::{
        fact::{ContainerFound, Role, RuntimeKind, RuntimeSandbox},
        id::ContainerId,
    },
    source::host::{FILE, HostRoot, Miss},
};

pub(super) const ROOTS: [&str; 1] = ["/var/lib/docker"];
/// Most containers taken.
const MOST: usize = 1 << 14;

pub(super) fn read(host: &HostRoot, root: &Path, list: &mut Listing<'_>) -> Records {
    let place = root.join("containers");
    let sandboxes = sandboxes(host, &place, list);
    Records { place, kind: Some(RuntimeKind::Docker), sandboxes }
}

fn sandboxes(
    host: &HostRoot,
    place: &Path,
    list: &mut Listing<'_>,
) -> Result<(Vec<RuntimeSandbox>, bool), Miss> {
    let folder = host.folder(place)?;
    let entries = folder.entries()?;
    let mut complete = entries.left_out == 0 && entries.entries.len() <= MOST;
    let mut found = Vec::new();
    for entry in entries.entries.iter().take(MOST) {
        let Some(id) = ContainerId::parse(&entry.name) else { continue };
        let record = folder.folder(&entry.name).and_then(|it| it.read("config.v2.json", FILE));
        let parsed = record.and_then(|bytes| docker::parse(&bytes, &id).ok_or(Miss::Malformed));
        match parsed {
            Ok(ContainerFound { role: Role::Sandbox, pod, .. }) => {
                found.push(RuntimeSandbox { id, pod: pod.and_then(named) });
            }
            Ok(ContainerFound { role: Role::Container, .. }) | Err(Miss::Absent) => {}
            // It may have been a sandbox's.
            Err(why) => {
                list.skip(place.join(&entry.name), why);
                complete = false;
            }
        }
    }
    Ok((found, complete))
}
