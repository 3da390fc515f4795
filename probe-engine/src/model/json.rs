//! How JSON for users names a process and a network namespace. Recordings have another form: there, a key is
//! an object of its own, and 0 means that a part is not known.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::{
    id::{NetnsKey, TaskKey},
    process::Process,
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

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ProcessRef")]
pub struct ProcessJson<'a> {
    #[serde(flatten)]
    task: TaskJson,
    /// The thread's name, at most 15 bytes.
    comm: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<TaskJson>,
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

impl<'a> From<&'a Process> for ProcessJson<'a> {
    fn from(it: &'a Process) -> Self {
        let parent = (it.parent != TaskKey::default()).then(|| it.parent.into());
        Self { task: it.key.into(), comm: Cow::Borrowed(&it.comm), parent }
    }
}

impl From<Process> for ProcessJson<'static> {
    fn from(it: Process) -> Self {
        let parent = ProcessJson::from(&it).parent;
        Self { task: it.key.into(), comm: Cow::Owned(it.comm), parent }
    }
}

impl From<ProcessJson<'_>> for Process {
    fn from(it: ProcessJson<'_>) -> Self {
        let parent = it.parent.map(TaskKey::from).unwrap_or_default();
        Self { key: it.task.into(), parent, comm: it.comm.into_owned() }
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
