//! By which runtime something is done, where a node has several: what another one does does not show that a runtime is
//! ready, and its plugins are not cut off by a runtime's end.

use probe_common::runtime::{CONTAINERD, Form, Helper, RUNTIMES, Runtime, of_distributions};

use crate::{engine::world::World, model::id::TaskKey};

impl World {
    /// The runtime that this process is or works for. None: that is not known.
    pub(in crate::engine::world) fn runtime_of(&self, process: TaskKey) -> Option<&'static Runtime> {
        let comm = &self.processes.get(process)?.comm;
        match Helper::of(comm) {
            Some(helper) => (helper.form == Some(Form::Shim)).then_some(&CONTAINERD),
            None => named(comm),
        }
    }
}

/// The runtime that is asked at this socket, by its usual place. Distributions have a containerd of their own.
pub(in crate::engine::world) fn at_socket(socket: &str) -> Option<&'static Runtime> {
    let of_distribution = || of_distributions(|row| row.sockets).any(|own| *own == socket);
    let usual = RUNTIMES.iter().find(|row| row.sockets.contains(&socket));
    usual.or_else(|| of_distribution().then_some(&CONTAINERD))
}

/// Whether what this runtime does can be the work of the daemon of that name: they are the same, or one runs the
/// containers of the other.
pub(super) fn is_work_of(runtime: Option<&'static Runtime>, comm: &str) -> bool {
    let (Some(one), Some(other)) = (runtime, named(comm)) else { return true };
    let serves = |one: &Runtime, other: &Runtime| other.kind.is_some_and(|kind| one.serves.contains(&kind));
    one.daemon == other.daemon || serves(one, other) || serves(other, one)
}

fn named(comm: &str) -> Option<&'static Runtime> {
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
