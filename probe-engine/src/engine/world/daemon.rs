//! The daemons that a node needs for its pods, by their names: runtimes and kubelets.

use probe_common::{event::class, runtime};

/// Whether a process of this name can be one of them.
pub(super) fn is_daemon(comm: &str) -> bool {
    is_runtime(comm) || is_kubelet(comm)
}

pub(super) fn is_runtime(comm: &str) -> bool {
    runtime::servers().any(|runtime| runtime == comm)
}

pub(super) fn is_kubelet(comm: &str) -> bool {
    runtime::kubelets().any(|kubelet| kubelet == comm)
}

/// Whether hooks or `/proc` said that a process of a daemon's name is root's: anybody else can name a program as he likes.
pub(super) fn is_trusted(class: u32) -> bool {
    class & class::CALLER != 0
}
