//! The names of the daemons that serve pods: runtimes and kubelets.
//!
//! Where a node has several runtimes, the work of one does not show that another is ready.

use probe_common::{
    event::class,
    runtime::{self, CONTAINERD, RUNTIMES, Runtime, of_distributions},
};

/// Whether a process of this name can be a runtime or a kubelet.
pub(crate) fn is_daemon(comm: &str) -> bool {
    is_runtime(comm) || is_kubelet(comm)
}

pub(crate) fn is_runtime(comm: &str) -> bool {
    runtime::servers().any(|runtime| runtime == comm)
}

pub(crate) fn is_kubelet(comm: &str) -> bool {
    runtime::kubelets().any(|kubelet| kubelet == comm)
}

/// Whether the hooks or `/proc` showed that the process is root's. Any user can give a program a daemon's
/// name.
pub(crate) fn is_trusted(class: u32) -> bool {
    class & class::CALLER != 0
}

/// Whether a process is root's and has the name of a runtime or a kubelet.
pub(crate) fn is_named(comm: &str, class: u32) -> bool {
    is_trusted(class) && is_daemon(comm)
}

/// The part of a program's path that its process's row keeps: all of it for a runtime or a kubelet, nothing
/// for others.
pub(crate) fn kept_path(comm: &str, path: &str) -> String {
    if is_daemon(comm) { path.to_owned() } else { String::new() }
}

/// The runtime that is asked at this socket, by its usual place. Distributions have a containerd of their
/// own.
pub(crate) fn at_socket(socket: &str) -> Option<&'static Runtime> {
    let usual = RUNTIMES.iter().find(|row| row.sockets.contains(&socket));
    usual.or_else(|| of_distributions(|row| row.sockets).any(|own| *own == socket).then_some(&CONTAINERD))
}

/// Whether what this runtime does can be the work of the daemon of that name: they are the same, or one runs
/// the containers of the other.
pub(crate) fn is_work_of(runtime: Option<&'static Runtime>, comm: &str) -> bool {
    let (Some(one), Some(other)) = (runtime, runtime_named(comm)) else { return true };
    one.daemon == other.daemon || serves(one, other) || serves(other, one)
}

/// Whether one runtime runs the containers of the other.
fn serves(one: &Runtime, other: &Runtime) -> bool {
    other.kind.is_some_and(|kind| one.serves.contains(&kind))
}

pub(crate) fn runtime_named(comm: &str) -> Option<&'static Runtime> {
    RUNTIMES.iter().find(|row| row.programs().any(|program| program == comm))
}

#[cfg(test)]
mod tests {
    use probe_common::runtime::{CONTAINERD, CRIO, DOCKER};

    use super::{at_socket, is_work_of};

    #[test]
    fn a_socket_tells_its_runtime_by_its_usual_place() {
        for (socket, daemon) in [
            ("/run/containerd/containerd.sock", Some("containerd")),
            ("/run/k3s/containerd/containerd.sock", Some("containerd")),
            ("/run/crio/crio.sock", Some("crio")),
            ("/srv/own.sock", None),
        ] {
            assert_eq!(at_socket(socket).map(|row| row.daemon), daemon, "{socket}");
        }
    }

    #[test]
    fn a_runtime_does_the_work_of_those_that_it_serves() {
        for (by, comm, is_its) in [
            (&CONTAINERD, "containerd", true),
            (&CONTAINERD, "dockerd", true),
            (&DOCKER, "containerd", true),
            (&DOCKER, "cri-dockerd", true),
            (&CRIO, "containerd", false),
            (&CONTAINERD, "crio", false),
            (&CRIO, "another", true),
        ] {
            assert_eq!(is_work_of(Some(by), comm), is_its, "{} {comm}", by.name);
        }
        assert!(is_work_of(None, "crio"), "it is not known whose it is");
    }
}
