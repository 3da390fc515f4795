//! The names of the daemons that serve pods: runtimes and kubelets.

use probe_common::{event::class, runtime};

/// Whether a process of this name can be a runtime or a kubelet.
pub(super) fn is_daemon(comm: &str) -> bool {
    is_runtime(comm) || is_kubelet(comm)
}

pub(super) fn is_runtime(comm: &str) -> bool {
    runtime::servers().any(|runtime| runtime == comm)
}

pub(super) fn is_kubelet(comm: &str) -> bool {
    runtime::kubelets().any(|kubelet| kubelet == comm)
}

/// Whether the hooks or `/proc` showed that the process is root's. Any user can give a program a daemon's name.
pub(super) fn is_trusted(class: u32) -> bool {
    class & class::CALLER != 0
}

/// Whether a process is root's and has the name of a runtime or a kubelet.
pub(super) fn is_named(comm: &str, class: u32) -> bool {
    is_trusted(class) && is_daemon(comm)
}

/// The part of a program's path that its process's row keeps: all of it for a runtime or a kubelet, nothing for others.
pub(super) fn kept_path(comm: &str, path: &str) -> String {
    if is_daemon(comm) { path.to_owned() } else { String::new() }
}
