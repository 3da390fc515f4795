//! Describes a container from its OCI bundle, or from its runtime's own record.
//!
//! containerd keeps a bundle for each task at `STATE/io.containerd.runtime.v2.task/NAMESPACE/ID`; the state
//! directory of k3s, rke2, k0s and microk8s is another. CRI-O keeps it at
//! `ROOT/overlay-containers/ID/userdata`, iSulad at `ROOT/engines/RUNTIME/ID`. Docker's bundles do not name
//! pods, so Docker's own records at `/var/lib/docker/containers/ID` are read first.

mod shim;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use probe_common::runtime::{self, CRIO, DOCKER, ISULAD};

use super::{
    Listing, Node,
    runtime::{crio, docker, isulad},
    spec,
};
use crate::{
    model::{
        fact::{ContainerFound, Fact, List},
        id::ContainerId,
        time::Timestamp,
    },
    source::host::{FILE, HostRoot, ReadError},
};

/// The folders of containerd's runtimes, with shims of version 2 and before.
const TASKS: [&str; 2] = ["io.containerd.runtime.v2.task", "io.containerd.runtime.v1.linux"];

/// A folder with one entry for each container, and the form of the entries. They are searched in this order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Bundles {
    /// `ID/config.v2.json`
    Docker(PathBuf),
    /// `ID/userdata/config.json`
    Storage(PathBuf),
    /// `ID/config.json`
    Task(PathBuf),
}

/// The folders in which the node keeps its bundles. They are kept between questions, because they seldom
/// change.
#[derive(Debug, Default)]
pub(crate) struct Places(BTreeSet<Bundles>);

impl Places {
    /// Finds the usual folders of bundles, and those of the runtimes that run now.
    #[must_use]
    pub(crate) fn discover(root: &HostRoot) -> Self {
        let mut found = shim::folders(root);
        found.extend(DOCKER.roots.iter().map(|root| Bundles::Docker(Path::new(root).join("containers"))));
        for place in CRIO.run_roots.iter().chain(CRIO.roots) {
            let drivers = crio::drivers(root, place.as_ref()).unwrap_or_default();
            found.extend(drivers.iter().map(|folder| Bundles::Storage(folder.path().to_owned())));
        }
        found
            .extend(isulad::engines(root, ISULAD.roots.iter().map(Path::new)).into_iter().map(Bundles::Task));
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

    /// Describes the container, from the first place that has it.
    pub(crate) fn find(&self, root: &HostRoot, id: &ContainerId) -> Result<ContainerFound, ReadError> {
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

    /// Returns the names of a container's image, from the first place that has them.
    pub(crate) fn images(&self, root: &HostRoot, id: &ContainerId) -> Vec<String> {
        let configs = self.0.iter().filter(|it| !matches!(it, Bundles::Docker(_)));
        let mut images =
            configs.filter_map(|it| it.config(root, id).ok()).map(|config| spec::images(&config));
        images.find(|names| !names.is_empty()).unwrap_or_default()
    }

    /// Returns the containers that have a bundle because they run.
    fn running(&self, root: &HostRoot) -> BTreeSet<ContainerId> {
        let tasks = self.0.iter().filter_map(|bundles| match bundles {
            Bundles::Task(folder) if is_isulads(folder) => None,
            Bundles::Task(folder) => root.folder(folder).and_then(|folder| folder.entries()).ok(),
            // These bundles stay until the container is removed, so they do not show that it runs.
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
        let config = self.config(root, id)?;
        let found = match self {
            Self::Docker(_) => docker::parse(&config, id),
            Self::Storage(_) | Self::Task(_) => spec::parse(&config, id),
        };
        found.ok_or(ReadError::Malformed)
    }

    fn config(&self, root: &HostRoot, id: &ContainerId) -> Result<Vec<u8>, ReadError> {
        match self {
            Self::Docker(folder) => root.folder(folder)?.folder(id.as_str())?.read("config.v2.json", FILE),
            Self::Storage(folder) => {
                root.folder(folder)?.folder(id.as_str())?.folder("userdata")?.read("config.json", FILE)
            }
            Self::Task(folder) => root.folder(folder)?.folder(id.as_str())?.read("config.json", FILE),
        }
    }
}

/// Returns whether the folder is one of iSulad's. There a container has its bundle until it is removed.
fn is_isulads(folder: &Path) -> bool {
    folder.parent().is_some_and(|parent| parent.ends_with(isulad::ENGINES))
}

/// Returns when a container's program was executed. The container's OCI runtime keeps a folder for the
/// container. The last file that is removed from it is `exec.fifo`: the container's init waits on it before
/// it executes its program. runc (`libcontainer`, `handleFifoResult`) and crun remove it once they let init
/// go on.
fn started(node: Node<'_>, id: &ContainerId) -> Option<Timestamp> {
    let states = runtime::of_runtimes(|row| row.oci_states);
    let folders = states.filter_map(|folder| node.root.folder(folder).ok()?.folder(id.as_str()).ok());
    let wall_ns = folders.filter_map(|folder| folder.emptied().ok()?).next()?;
    Some(node.boot_time(wall_ns)).filter(|at| *at > Timestamp::ZERO)
}

/// Lists the containers that run: those `in_cgroups`, and those with a bundle whose processes run elsewhere,
/// as in a virtual machine.
pub(super) fn list<'a>(node: Node<'a>, in_cgroups: &BTreeSet<ContainerId>) -> Listing<'a> {
    let mut list = Listing::begin(List::Containers, node);
    let places = Places::discover(node.root);
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
