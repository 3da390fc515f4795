//! Listening sockets.

use super::Task;
use crate::model::{id::CgroupKey, scalar::is_default};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A socket of a container began to listen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listened {
    pub task: Task,
    /// The container's own cgroup.
    pub container: CgroupKey,
    pub socket: Listener,
}

/// Where a socket listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Listener {
    /// 0, and absent in JSON: the socket was not bound to a port, and the kernel chose one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub port: u16,
    pub family: Family,
}

closed_set! {
    pub enum Family {
        Ipv4,
        /// Most such sockets take IPv4 too.
        Ipv6,
    }
}
