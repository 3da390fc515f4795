//! Whether the node is one of a cluster.

use super::daemon::{Daemon, Kind};
use crate::source::host::HostRoot;

/// Of the kubelet itself, and of k0s' and microk8s'.
const ROOTS: [&str; 3] =
    ["/var/lib/kubelet", "/var/lib/k0s/kubelet", "/var/snap/microk8s/common/var/lib/kubelet"];
/// What a kubelet makes there when it first runs.
const TRACE: &str = "pods";

/// One runs, or has run and so will again.
pub(super) fn expected(root: &HostRoot, daemons: &[Daemon]) -> bool {
    daemons.iter().any(|daemon| daemon.kind == Kind::Kubelet)
        || ROOTS.iter().any(|kubelet| root.folder(kubelet).and_then(|it| it.folder(TRACE)).is_ok())
}
