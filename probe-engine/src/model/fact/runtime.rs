//! What a runtime reports over CRI about its sandboxes and containers. It is what the runtime believes, not
//! evidence that it is true.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::model::{
    fact::{PodName, Role},
    id::ContainerId,
    time::Timestamp,
};

/// Whether and how a runtime answers from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeLink {
    /// The runtime's socket.
    pub socket: String,
    pub answer: Answer,
    pub events: EventStream,
    /// When the request was sent that it has not answered. None: at the time of this fact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

closed_set! {
    pub enum Answer {
        Answers,
        /// It answers, but its list could not be read in time.
        Slow,
        /// It accepts connections and answers nothing. This is reported again each time.
        Hangs,
        /// This program cannot reach it; others may.
        Unreachable,
        /// Nobody listens at its socket.
        Gone,
        /// It was gone for so long that the agent no longer tries to reach it.
        GivenUp,
    }
}

closed_set! {
    pub enum EventStream {
        /// Every event from now on is reported.
        Open,
        /// Events are missed.
        Closed,
        /// The runtime has no such stream, or one that only one client may read.
        None,
    }
}

/// What a runtime lists, at the time of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeStatus {
    pub socket: String,
    /// `came` is the whole list. Otherwise it is the changes since the previous list.
    pub whole: bool,
    pub came: Vec<Stated>,
    /// What is no longer on the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<ContainerId>,
}

/// What a runtime reports about a sandbox or a container.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stated {
    pub id: ContainerId,
    pub role: Role,
    /// The sandbox of a container.
    pub sandbox: Option<ContainerId>,
    pub state: Believed,
    /// When the runtime created it; zero if that was before this boot.
    pub made_at: Timestamp,
    /// How it ended, if the runtime was asked.
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Described::is_empty")]
    pub described: Described,
}

/// The names with which a runtime created a sandbox or a container.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    /// A container's name in the pod's spec.
    pub name: Option<String>,
    /// The number of earlier sandboxes of the pod, or of earlier containers of this name.
    pub attempt: Option<u32>,
    /// A container's image, as the runtime names it.
    pub image: Option<String>,
    /// Its pod, by a sandbox's metadata or a container's labels.
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
        /// For a sandbox: ready.
        Running,
        /// For a sandbox: not ready.
        Exited,
        /// The runtime does not know the state.
        Unknown,
    }
}

/// An event of a runtime's own stream, at the time of its arrival.
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
