//! containerd's: a directory for each sandbox, `ROOT/io.containerd.grpc.v1.cri/sandboxes/ID`, in every version since
//! 1.1. It is made when the sandbox's own container is, and goes with `RemovePodSandbox`.

use std::path::Path;

use super::Records;
use crate::{
    model::{
        fact::{RuntimeKind, RuntimeSandbox},
        id::ContainerId,
    },
    source::host::{HostRoot, ReadError},
};

/// By whoever starts it: itself, k3s, rke2, k0s, microk8s.
pub(super) const ROOTS: [&str; 5] = [
    "/var/lib/containerd",
    "/var/lib/rancher/k3s/agent/containerd",
    "/var/lib/rancher/rke2/agent/containerd",
    "/var/lib/k0s/containerd",
    "/var/snap/microk8s/common/var/lib/containerd",
];
const PLUGIN: &str = "io.containerd.grpc.v1.cri";
const SANDBOXES: &str = "sandboxes";

/// What any containerd has in its root.
const DATABASE: &str = "io.containerd.metadata.v1.bolt";

/// `only`: it runs, and no other runtime does that the kubelet could use.
pub(super) fn read(host: &HostRoot, root: &Path, only: bool) -> Records {
    let plugin = root.join(PLUGIN);
    let sandboxes = match sandboxes(host, &plugin) {
        // The plugin makes its directory with its first sandbox, and may not be in use at all.
        Err(ReadError::Absent) if only => {
            host.folder(root.join(DATABASE)).map(|_database| (Vec::new(), true))
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
    // What else there may be is no sandbox.
    let ids = entries.entries.iter().filter_map(|entry| ContainerId::parse(&entry.name));
    Ok((ids.map(|id| RuntimeSandbox { id, pod: None }).collect(), entries.left_out == 0))
}
