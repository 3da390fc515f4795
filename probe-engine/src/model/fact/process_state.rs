//! What a process does, as `/proc` shows it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::id::TaskKey;

/// What a process did at the time of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessState {
    pub process: TaskKey,
    /// The state of its first thread.
    pub state: RunState,
    /// What its threads do, the largest group first.
    pub threads: Vec<ThreadState>,
}

/// What some threads of a process do alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadState {
    pub state: RunState,
    /// The function of the kernel in which they wait (`wchan`). None: they run, or the kernel does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// How many threads.
    pub count: u32,
}

closed_set! {
    /// The state of a thread (proc(5)).
    pub enum RunState {
        Running,
        Sleeping,
        /// It waits in the kernel, and no signal wakes it.
        Uninterruptible,
        /// A signal has stopped it.
        Stopped,
        /// A debugger has stopped it.
        Traced,
        Ended,
        Other,
    }
}

impl RunState {
    /// Takes the letter in `/proc/PID/stat`.
    #[must_use]
    pub fn of(letter: char) -> Self {
        match letter {
            'R' => Self::Running,
            'S' | 'I' => Self::Sleeping,
            'D' => Self::Uninterruptible,
            'T' => Self::Stopped,
            't' => Self::Traced,
            'Z' | 'X' => Self::Ended,
            _ => Self::Other,
        }
    }
}

impl ThreadState {
    /// Whether its cgroup is frozen: tasks of cgroup v2 wait in `do_freezer_trap`, tasks of v1 in
    /// `__refrigerator`.
    pub(crate) fn is_frozen(&self) -> bool {
        let function = self.function.as_deref().unwrap_or_default();
        function.contains("do_freezer_trap") || function.contains("refrigerator")
    }
}
