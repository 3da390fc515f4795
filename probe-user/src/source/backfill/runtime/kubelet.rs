//! Whether the node is part of a cluster, and since when a pod has been on it.

use std::path::{Path, PathBuf};

use probe_common::runtime;

use super::daemon::{self, Daemon, Kind};
use crate::{
    model::id::PodUid,
    source::host::{Folder, HostRoot},
};

/// The folder that the kubelet makes in its root when it first runs. It has a folder for each pod.
const PODS: &str = "pods";
/// The folders of the volume plugins for which the kubelet asks the API server before it makes the pod's
/// sandbox: for an object, a token, or the volume's place.
const ASKED_FOR: [&str; 4] =
    ["kubernetes.io~projected", "kubernetes.io~secret", "kubernetes.io~configmap", "kubernetes.io~csi"];

/// Returns whether a kubelet runs, or has run and so will run again.
pub(super) fn expected(root: &HostRoot, daemons: &[Daemon]) -> bool {
    daemons.iter().any(|daemon| daemon.kind == Kind::Kubelet)
        || usual().any(|kubelet| root.folder(kubelet).and_then(|it| it.folder(PODS)).is_ok())
}

fn usual() -> impl Iterator<Item = &'static &'static str> {
    runtime::of_distributions(|row| row.kubelet_roots)
}

/// The root directories of kubelets: the usual ones, and those of the kubelets that run.
#[derive(Debug)]
pub(crate) struct Roots(Vec<PathBuf>);

impl Roots {
    #[must_use]
    pub(crate) fn find(root: &HostRoot) -> Self {
        let own = daemon::find(root).into_iter().filter(|daemon| daemon.kind == Kind::Kubelet);
        let mut roots: Vec<PathBuf> = own.filter_map(|daemon| daemon.root).collect();
        roots.extend(usual().map(PathBuf::from));
        Self(roots)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(PathBuf::as_path)
    }

    /// Returns the folder that a kubelet keeps for a pod.
    fn pod(&self, root: &HostRoot, uid: &PodUid) -> Option<Folder> {
        self.0
            .iter()
            .find_map(|kubelet| root.folder(kubelet).ok()?.folder(PODS).ok()?.folder(uid.as_str()).ok())
    }

    /// Returns whether a pod has a volume for which its kubelet asks the API server.
    #[must_use]
    pub(crate) fn needs_api(&self, root: &HostRoot, uid: &PodUid) -> bool {
        let volumes = self.pod(root, uid).and_then(|pod| pod.folder("volumes").ok()?.entries().ok());
        volumes.is_some_and(|all| all.entries.iter().any(|it| ASKED_FOR.contains(&it.name.as_str())))
    }

    /// Returns when the kubelet first handled a pod: the birth time of the folder that it keeps for the pod,
    /// through restarts of its containers and of the node. Wall clock, ns since the epoch.
    #[must_use]
    pub(crate) fn born(&self, root: &HostRoot, uid: &PodUid) -> Option<i64> {
        self.pod(root, uid)?.born()
    }
}
