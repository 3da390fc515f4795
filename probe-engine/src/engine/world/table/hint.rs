//! Facts about pods and containers that are not known yet. A log folder or a cached CNI result proves no
//! running pod, so its facts are kept here until other evidence shows the pod.

use serde::{Deserialize, Serialize};

use crate::model::{
    fact::{NameSource, PodName, Role},
    id::{ContainerId, PodUid},
    time::Timestamp,
};

/// The facts about a container's id for which no process or cgroup is known yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hint {
    pub(crate) id: ContainerId,
    pub(crate) at: Timestamp,
    pub(crate) role: Option<Role>,
    pub(crate) sandbox: Option<ContainerId>,
    pub(crate) name: Option<String>,
    pub(crate) pod: Option<PodName>,
    pub(crate) netns_path: Option<String>,
    /// When its program was executed, by the date of a file of the runtime.
    pub(crate) started: Option<Timestamp>,
    pub(crate) source: NameSource,
}

/// The name of the pod with a UID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    pub(crate) uid: PodUid,
    pub(crate) at: Timestamp,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) source: NameSource,
}

impl Hint {
    pub(crate) fn new(id: ContainerId, source: NameSource) -> Self {
        Self {
            id,
            at: Timestamp::ZERO,
            role: None,
            sandbox: None,
            name: None,
            pod: None,
            netns_path: None,
            started: None,
            source,
        }
    }

    /// Whether it has a fact of what a container is.
    pub(crate) fn says_anything(&self) -> bool {
        self.role.is_some() || self.sandbox.is_some() || self.name.is_some() || self.pod.is_some()
    }

    /// Adds the facts of another hint that this hint lacks.
    pub(in crate::engine::world) fn join(&mut self, other: Self) {
        self.at = self.at.max(other.at);
        self.role = self.role.or(other.role);
        self.sandbox = self.sandbox.take().or(other.sandbox);
        self.name = self.name.take().or(other.name);
        self.pod = self.pod.take().or(other.pod);
        self.netns_path = self.netns_path.take().or(other.netns_path);
        self.started = self.started.or(other.started);
    }
}

impl Name {
    pub(crate) fn pod_name(&self) -> PodName {
        PodName {
            namespace: Some(self.namespace.clone()),
            name: Some(self.name.clone()),
            uid: Some(self.uid.clone()),
        }
    }
}
