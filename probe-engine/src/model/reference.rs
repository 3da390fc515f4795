//! The names of pods, sandboxes, containers and cgroups in events.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::model::{
    fact::NameSource,
    id::{CgroupKey, ContainerId, PodUid},
};

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PodRef {
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub uid: Option<PodUid>,
    /// Where the name comes from; where there is none, where the UID comes from.
    pub source: Option<NameSource>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerRef {
    pub id: ContainerId,
    /// Its name in the pod's specification.
    pub name: Option<String>,
    /// How many containers of this name the pod had before, as its runtime says.
    pub attempt: Option<u32>,
    /// Its image, as its runtime names it.
    pub image: Option<Box<str>>,
}

impl ContainerRef {
    /// Makes the reference of a container that the runtime has not described.
    #[must_use]
    pub fn new(id: ContainerId, name: Option<String>) -> Self {
        Self { id, name, attempt: None, image: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupRef {
    pub key: CgroupKey,
    pub path: String,
}
