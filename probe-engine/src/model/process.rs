//! A process as events name it, and how it ended. The state and recordings give it these names too.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::{FromInto, serde_as};

use crate::model::{id::TaskKey, json::TaskJson, scalar::is_default};

/// The pid of kthreadd, the parent of all kernel threads.
const KTHREADD: u32 = 2;

#[serde_as]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ProcessRef")]
pub struct Process {
    #[serde_as(as = "FromInto<TaskJson>")]
    #[serde(flatten)]
    #[schemars(with = "TaskJson")]
    pub key: TaskKey,
    /// The thread's name, at most 15 bytes.
    pub comm: String,
    #[serde_as(as = "FromInto<TaskJson>")]
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(with = "TaskJson")]
    pub parent: TaskKey,
}

impl Process {
    /// Whether it is a kernel thread, which works on behalf of others.
    pub(crate) fn is_kernel_thread(&self) -> bool {
        self.parent.pid == KTHREADD
    }
}

/// How a process ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The exit code, or 128 + the signal's number as shells and runtimes count.
    pub code: u32,
    pub signal: Option<u32>,
    /// The process that sent the signal that ended it.
    pub killer: Option<Process>,
    /// The OOM killer chose it.
    pub oom: bool,
}
