//! What a container is, from its OCI bundle or its runtime's own record of it.
//!
//! containerd keeps a bundle per task at `STATE/io.containerd.runtime.v2.task/NAMESPACE/ID` (its state directory
//! is another for k3s, rke2, k0s and microk8s), CRI-O at `ROOT/overlay-containers/ID/userdata`; Docker's bundles say
//! nothing of pods, so its own records at `/var/lib/docker/containers/ID` are read first.

mod shim;
mod spec;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use probe_common::runtime::{self, CRIO, DOCKER};

use super::{Listing, Node, docker, runtime::storage};
use crate::{
    model::{
        fact::{ContainerFound, Fact, List},
        id::ContainerId,
        time::Timestamp,
    },
    source::host::{FILE, HostRoot, ReadError},
};

/// Of containerd's runtimes with and before the shim of version 2.
const TASKS: [&str; 2] = ["io.containerd.runtime.v2.task", "io.containerd.runtime.v1.linux"];

/// A folder with one entry per container, and the form of the entries. The order is the one in which they are asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Bundles {
    /// `ID/config.v2.json`
    Docker(PathBuf),
    /// `ID/userdata/config.json`
    Storage(PathBuf),
    /// `ID/config.json`
    Task(PathBuf),
}

/// All that is known of where a node's bundles are; kept between questions, for it seldom changes.
#[derive(Debug, Default)]
pub struct Places(BTreeSet<Bundles>);

impl Places {
    /// Looks where runtimes keep their bundles, and where those that run now do.
    #[must_use]
    pub fn look(root: &HostRoot) -> Self {
        let mut found = shim::folders(root);
        found.extend(DOCKER.roots.iter().map(|root| Bundles::Docker(Path::new(root).join("containers"))));
        for place in CRIO.run_roots.iter().chain(CRIO.roots) {
            let drivers = storage::drivers(root, place.as_ref()).unwrap_or_default();
            found.extend(drivers.iter().map(|folder| Bundles::Storage(folder.path().to_owned())));
        }
        let states = runtime::of_runtimes(|row| row.states);
        for state in states.chain(runtime::of_distributions(|row| row.containerd_states)) {
            for tasks in TASKS {
                let tasks = PathBuf::from(state).join(tasks);
                let namespaces = root.folder(&tasks).and_then(|folder| folder.entries()).unwrap_or_default();
                found.extend(namespaces.entries.iter().map(|entry| Bundles::Task(tasks.join(&entry.name))));
            }
        }
        Self(found)
    }

    /// What the container is, by the first place that knows it.
    pub fn find(&self, root: &HostRoot, id: &ContainerId) -> Result<ContainerFound, ReadError> {
        let mut worst = ReadError::Absent;
        for bundles in &self.0 {
            match bundles.find(root, id) {
                Ok(found) => return Ok(found),
                Err(ReadError::Absent) => {}
                Err(why) => worst = why,
            }
        }
        Err(worst)
    }

    /// The containers that have a bundle because they run.
    fn running(&self, root: &HostRoot) -> BTreeSet<ContainerId> {
        let tasks = self.0.iter().filter_map(|bundles| match bundles {
            Bundles::Task(folder) => root.folder(folder).and_then(|folder| folder.entries()).ok(),
            // Kept until the container is removed.
            Bundles::Docker(_) | Bundles::Storage(_) => None,
        });
        tasks
            .flat_map(|entries| entries.entries)
            .filter_map(|entry| ContainerId::parse(&entry.name))
            .collect()
    }
}

impl Bundles {
    fn find(&self, root: &HostRoot, id: &ContainerId) -> Result<ContainerFound, ReadError> {
        let found = match self {
            Self::Docker(folder) => {
                docker::parse(&root.folder(folder)?.folder(id.as_str())?.read("config.v2.json", FILE)?, id)
            }
            Self::Storage(folder) => {
                let bundle = root.folder(folder)?.folder(id.as_str())?.folder("userdata")?;
                spec::parse(&bundle.read("config.json", FILE)?, id)
            }
            Self::Task(folder) => {
                spec::parse(&root.folder(folder)?.folder(id.as_str())?.read("config.json", FILE)?, id)
            }
        };
        found.ok_or(ReadError::Malformed)
    }
}

/// When a container's program was executed. Its OCI runtime keeps a folder for it. Of what is in there the last to go is
/// `exec.fifo`, on which the container's init waits for the word to execute its program: runc removes it when it has given
/// the word (`libcontainer`, `handleFifoResult`), crun too.
fn started(node: Node<'_>, id: &ContainerId) -> Option<Timestamp> {
    let states = runtime::of_runtimes(|row| row.oci_states);
    let folders = states.filter_map(|folder| node.root.folder(folder).ok()?.folder(id.as_str()).ok());
    let wall_ns = folders.filter_map(|folder| folder.emptied().ok()?).next()?;
    Some(node.boot_time(wall_ns)).filter(|at| *at > Timestamp::ZERO)
}

/// What runs now: `in_cgroups`, and what has a bundle though its processes are elsewhere, as in a virtual machine.
pub(super) fn list<'a>(node: Node<'a>, in_cgroups: &BTreeSet<ContainerId>) -> Listing<'a> {
    let mut list = Listing::begin(List::Containers, node);
    let places = Places::look(node.root);
    for id in places.running(node.root).union(in_cgroups) {
        let at = list.now();
        let found =
            places.find(node.root, id).map(|found| ContainerFound { started: started(node, id), ..found });
        if let Some(found) = list.take(id.as_str(), found) {
            list.found(at, Fact::ContainerFound(found));
        }
    }
    list
}
