//! CNI calls that are running. One call is one plugin process: it begins with the exec and ends with the
//! exit.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::{
    change::CniCall,
    fact::{Origin, PodName},
    finding::CniWait,
    id::{ContainerId, TaskKey},
    process::Process,
    time::Timestamp,
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Shared with the events of the call and with evidence.
    pub(crate) call: Arc<CniCall>,
    pub(crate) at: Timestamp,
    pub(crate) origin: Origin,
    pub(crate) container: Option<ContainerId>,
    /// The pod that `CNI_ARGS` names.
    pub(crate) pod: PodName,
    /// Whether the runtime itself made the call. Only then its success counts for the sandbox.
    pub(crate) top: bool,
    /// The path of the plugin's executable.
    pub(crate) path: String,
    /// The process that made the call: the runtime, even where a plugin or a wrapper stands between.
    #[serde(default)]
    pub(crate) caller: TaskKey,
    /// When the caller ended, while the plugin ran on, or gave the call up to end itself: nobody reads the
    /// answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cut_off_at: Option<Timestamp>,
    /// The latest question for what it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) looked: Option<Looked>,
}

/// A question for what a call waits for, with the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Looked {
    pub(crate) at: Timestamp,
    /// The plugin's process, or a program that it waits for.
    pub(crate) process: Process,
    pub(crate) waits: Option<CniWait>,
    /// How many programs are between the plugin's process and this one, with this one.
    #[serde(default)]
    pub(crate) deep: u8,
}
