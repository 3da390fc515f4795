//! What runtimes say when they are asked, over CRI: the kubelet's own `ListPodSandbox`.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use super::{super::daemon::Daemon, Records, named};
use crate::{
    engine::{
        fact::{PodName, RuntimeSandbox},
        id::{ContainerId, PodUid},
    },
    source::{
        cri::{self, Refusal, Sandbox},
        host::{HostRoot, Miss},
    },
};

/// By runtime: containerd, k3s' and rke2's, k0s', microk8s', CRI-O, cri-dockerd.
const SOCKETS: [&str; 6] = [
    "/run/containerd/containerd.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
    "/run/crio/crio.sock",
    "/run/cri-dockerd.sock",
];
/// Most sandboxes taken.
const MOST: usize = 1 << 14;

pub(super) fn sockets(daemons: &[Daemon]) -> BTreeSet<PathBuf> {
    let own = daemons.iter().filter_map(|daemon| daemon.socket.clone());
    SOCKETS.iter().map(PathBuf::from).chain(own).collect()
}

pub(super) fn read(host: &HostRoot, socket: &Path) -> Records {
    Records { place: socket.to_owned(), sandboxes: sandboxes(host, socket) }
}

fn sandboxes(host: &HostRoot, socket: &Path) -> Result<(Vec<RuntimeSandbox>, bool), Miss> {
    let name = socket.file_name().and_then(|name| name.to_str()).ok_or(Miss::NotPlain)?;
    let folder = host.folder(socket.parent().ok_or(Miss::NotPlain)?)?;
    let answer = cri::list(&folder.socket(name)?).map_err(|refusal| match refusal {
        // Left behind by one that ended, or of one that is no CRI runtime.
        Refusal::Nobody | Refusal::OtherService => Miss::Absent,
        Refusal::Unanswered => Miss::Unanswered,
    })?;
    let complete = answer.len() <= MOST;
    Ok((answer.into_iter().take(MOST).filter_map(sandbox).collect(), complete))
}

fn sandbox(Sandbox { id, metadata }: Sandbox) -> Option<RuntimeSandbox> {
    let pod = metadata.and_then(|of| {
        let uid = PodUid::parse(&of.uid);
        named(PodName { namespace: Some(of.namespace), name: Some(of.name), uid })
    });
    Some(RuntimeSandbox { id: ContainerId::parse(&id)?, pod })
}
