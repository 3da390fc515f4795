//! containerd's records: a directory for each sandbox, `ROOT/io.containerd.grpc.v1.cri/sandboxes/ID`, in
//! every version since 1.1. It is made with the sandbox's container, and `RemovePodSandbox` removes it.

use std::path::Path;

use probe_common::runtime::{CONTAINERD, CRI_PLUGINS};

use super::Records;
use crate::{
    model::{
        fact::{RuntimeKind, RuntimeSandbox},
        id::ContainerId,
    },
    source::host::{HostRoot, ReadError},
};

const SANDBOXES: &str = "sandboxes";

/// Reads containerd's records. `only`: containerd runs, and the kubelet can use no other runtime on this
/// node.
pub(super) fn read(host: &HostRoot, root: &Path, only: bool) -> Records {
    let [plugin, _] = CRI_PLUGINS;
    let plugin = root.join(plugin);
    let sandboxes = match sandboxes(host, &plugin) {
        // The plugin makes its directory with its first sandbox. It may be unused.
        Err(ReadError::Absent) if only => {
            let database = CONTAINERD.database.map(|database| root.join(database));
            let folder = database.as_deref().and_then(Path::parent).ok_or(ReadError::Absent);
            folder.and_then(|folder| host.folder(folder)).map(|_is_there| (Vec::new(), true))
        }
        read => read,
    };
    Records::new(plugin.join(SANDBOXES), Some(RuntimeKind::Containerd), sandboxes)
}

fn sandboxes(host: &HostRoot, plugin: &Path) -> Result<(Vec<RuntimeSandbox>, bool), ReadError> {
    let entries = match host.folder(plugin)?.folder(SANDBOXES) {
        Ok(folder) => folder.entries()?,
        Err(ReadError::Absent) => return Ok((Vec::new(), true)),
        Err(why) => return Err(why),
    };
    // Entries with other names are not sandboxes.
    let ids = entries.entries.iter().filter_map(|entry| ContainerId::parse(&entry.name));
    Ok((ids.map(|id| RuntimeSandbox { id, pod: None }).collect(), entries.left_out == 0))
}
