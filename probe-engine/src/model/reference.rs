//! The names of pods, sandboxes, containers and cgroups in events.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::{
    fact::NameSource,
    id::{CgroupKey, ContainerId, PodUid},
};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PodRef {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<PodUid>,
    /// Where the name comes from; where there is none, where the UID comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<NameSource>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerRef {
    pub id: ContainerId,
    /// Its name in the pod's specification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How many containers of this name the pod had before, as its runtime says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Its image, as its runtime names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
