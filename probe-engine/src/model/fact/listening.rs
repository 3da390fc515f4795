//! Sockets that listen.

use super::Task;
use crate::model::id::CgroupKey;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

/// A socket of a container began to listen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listened {
    pub task: Task,
    /// The container's own cgroup.
    pub container: CgroupKey,
    pub socket: Listener,
}

/// At what a socket listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Listener {
    /// 0: it was bound to none, and the kernel chose one.
    pub port: u16,
    pub family: Family,
}

#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    IntoStaticStr,
    VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Family {
    Ipv4,
    /// Most such sockets take IPv4 too.
    Ipv6,
}
