//! A process as events name it, and how it ended.

use serde::{Deserialize, Serialize};

use crate::model::id::TaskKey;

/// The pid of kthreadd, the parent of all kernel threads.
const KTHREADD: u32 = 2;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub key: TaskKey,
    pub parent: TaskKey,
    pub comm: String,
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
