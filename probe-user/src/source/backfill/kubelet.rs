//! Whether the node is part of a cluster, and since when a pod has been on it.

use std::path::{Path, PathBuf};

use probe_common::runtime;

use super::daemon::{self, Daemon, Kind};
use crate::{model::id::PodUid, source::host::HostRoot};

/// A folder that the kubelet makes in its root when it first runs.
const TRACE: &str = "pods";

/// Whether a kubelet runs, or has run and so will run again.
pub(super) fn expected(root: &HostRoot, daemons: &[Daemon]) -> bool {
    daemons.iter().any(|daemon| daemon.kind == Kind::Kubelet)
        || usual().any(|kubelet| root.folder(kubelet).and_then(|it| it.folder(TRACE)).is_ok())
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

    pub(super) fn iter(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(PathBuf::as_path)
    }

    /// When the kubelet first handled a pod: the birth time of the folder that it keeps for the pod, through restarts
    /// of its containers and of the node. Wall clock, ns since the epoch.
    #[must_use]
    pub(crate) fn born(&self, root: &HostRoot, uid: &PodUid) -> Option<i64> {
        let folder =
            |kubelet: &PathBuf| root.folder(kubelet).ok()?.folder(TRACE).ok()?.folder(uid.as_str()).ok();
        self.0.iter().find_map(folder)?.born()
    }
}
