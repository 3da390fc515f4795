//! Cgroup directories of the hierarchy that identifies containers.

pub(crate) mod rows;

pub(crate) use rows::{Crowd, Table};

use serde::{Deserialize, Serialize};

use crate::{
    engine::world::path::Place,
    model::{
        id::{CgroupKey, ContainerId, PodUid},
        time::Timestamp,
    },
};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    pub(crate) key: CgroupKey,
    pub(crate) path: String,
    pub(crate) level: u32,
    /// The pod UID in the path.
    pub(crate) pod: Option<PodUid>,
    pub(crate) container: Option<ContainerId>,
    /// A program in a container made the cgroup, below the container's own directory.
    pub(crate) nested: bool,
    pub(crate) created_at: Option<Timestamp>,
    pub(crate) found_at: Option<Timestamp>,
    /// When the kernel last reported that the cgroup became empty.
    pub(crate) emptied_at: Option<Timestamp>,
    pub(crate) populated: Option<bool>,
    pub(crate) state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    #[default]
    Live,
    Removed {
        at: Timestamp,
    },
}

impl State {
    /// A directory is removed only once: the kernel does not reuse its id.
    pub(crate) fn step(self, at: Timestamp) -> Option<Self> {
        match self {
            Self::Live => Some(Self::Removed { at }),
            Self::Removed { .. } => None,
        }
    }
}

impl Cgroup {
    #[must_use]
    pub(crate) fn is_live(&self) -> bool {
        self.state == State::Live
    }

    /// Whether this is the directory that a runtime made for a container.
    #[must_use]
    pub(crate) fn is_container(&self) -> bool {
        self.container.is_some() && !self.nested
    }

    /// Whether this is the directory that the kubelet made for a pod.
    #[must_use]
    pub(crate) fn is_pod(&self) -> bool {
        self.pod.is_some() && self.container.is_none() && Place::read(&self.path).is_pod()
    }
}
