//! How JSON names a process and a network namespace. Facts have another form: there, a key is an object of
//! its own, and 0 means that a part is not known.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::{
    id::{NetnsKey, TaskKey},
    scalar::{Decimal, known},
};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TaskRef")]
pub struct TaskJson {
    pid: u32,
    /// When it started, since boot; with the pid its identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_ns: Option<Decimal<u64>>,
}

#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NetnsRef")]
pub struct NetnsJson {
    /// As in `/proc/PID/ns/net`; the kernel uses it again at once.
    inode: Option<u32>,
    /// Never used again; Linux 5.14 and later give it.
    cookie: Option<Decimal<u64>>,
}

impl From<TaskKey> for TaskJson {
    fn from(key: TaskKey) -> Self {
        Self { pid: key.pid, start_ns: known(key.start) }
    }
}

impl From<TaskJson> for TaskKey {
    fn from(it: TaskJson) -> Self {
        Self::new(it.pid, it.start_ns.map_or(0, |Decimal(start)| start))
    }
}

impl From<NetnsKey> for NetnsJson {
    fn from(key: NetnsKey) -> Self {
        Self { inode: Some(key.inode), cookie: known(key.cookie) }
    }
}

impl From<NetnsJson> for NetnsKey {
    fn from(it: NetnsJson) -> Self {
        Self::new(it.inode.unwrap_or(0), it.cookie.map_or(0, |Decimal(cookie)| cookie))
    }
}
