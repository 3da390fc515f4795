//! A change that is not reported yet. The code that made it does not wait. The names of its pod and sandbox
//! are looked up when it is reported.

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

use crate::model::{
    change::ChangeKind,
    fact::{Origin, PodName, Role},
    id::{CgroupKey, ContainerId},
    time::Timestamp,
};

/// A change that was not reported yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedChange {
    pub at: Timestamp,
    pub origin: Origin,
    pub late: bool,
    pub subject: Subject,
    pub wait: Wait,
    pub what: ChangeKind,
}

/// The subject of a change. Its context is looked up when the change is reported.
#[serde_as]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// `world::table::pod::Pod::id`.
    #[serde_as(as = "Option<DisplayFromStr>")]
    pub pod: Option<u64>,
    /// A name that came with the event itself (`CNI_ARGS`).
    pub named: Option<PodName>,
    pub sandbox: Option<ContainerId>,
    pub container: Option<ContainerId>,
    /// `world::table::netns::Netns::life`.
    #[serde_as(as = "Option<DisplayFromStr>")]
    pub netns: Option<u64>,
    pub cgroup: Option<CgroupKey>,
}

/// What a change waits for, until its time is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    Nothing,
    /// Its pod's name.
    Name,
    /// Its container's role. If it is another one than this, the change is not reported.
    Role(Role),
}
