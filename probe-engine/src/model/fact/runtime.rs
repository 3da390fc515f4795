//! What a runtime says over CRI of its sandboxes and containers. It is what the runtime believes, and no evidence that
//! it is so.

use serde::{Deserialize, Serialize};

use crate::model::{
    fact::{PodName, Role},
    id::ContainerId,
    time::Timestamp,
};

/// How a runtime can be asked from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeLink {
    /// The runtime's socket.
    pub socket: String,
    pub answer: Answer,
    pub events: EventStream,
    /// When it was asked what it has not answered since. None: at the time of this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

closed_set! {
    pub enum Answer {
        Answers,
        /// It answers, and its list could not be read in time.
        Slow,
        /// It accepts connections and answers nothing. That is told again each time.
        Hangs,
        /// It cannot be asked by this program, and may answer others.
        Unreachable,
        /// Nobody listens at its socket.
        Gone,
        /// It was gone for so long that nobody tries to reach it any more.
        GivenUp,
    }
}

closed_set! {
    pub enum EventStream {
        /// Every event from now on is told.
        Open,
        /// Events are missed.
        Closed,
        /// The runtime has no such stream, or one that only one client may read.
        None,
    }
}

/// What a runtime has on its list, at the time of the question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeStatus {
    pub socket: String,
    /// These are all that it has. Otherwise they are those that changed since the list before.
    pub whole: bool,
    pub came: Vec<Stated>,
    /// They are no longer on the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<ContainerId>,
}

/// What a runtime says of a sandbox or a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stated {
    pub id: ContainerId,
    pub role: Role,
    /// The sandbox of a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<ContainerId>,
    pub state: Believed,
    /// When the runtime made it; zero if that was before this boot.
    pub made_at: Timestamp,
    /// How it ended, if the runtime was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Described::is_empty")]
    pub described: Described,
}

/// As what a runtime made a sandbox or a container: the names that it was given then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    /// A container's name in the pod's spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How many there were before it: sandboxes of the pod, or containers of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// A container's image, as the runtime names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Its pod: by a sandbox's metadata, by a container's labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodName>,
}

impl Described {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

closed_set! {
    pub enum Believed {
        Created,
        /// Of a sandbox: ready.
        Running,
        /// Of a sandbox: not ready.
        Exited,
        /// The runtime does not know it itself.
        Unknown,
    }
}

/// An event of a runtime's own stream, at the time at which it came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeEvent {
    pub socket: String,
    /// A sandbox or a container.
    pub id: ContainerId,
    pub what: RuntimeEventKind,
}

closed_set! {
    pub enum RuntimeEventKind {
        Created,
        Started,
        Stopped,
        Deleted,
    }
}
