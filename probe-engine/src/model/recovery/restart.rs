//! A restart of only a runtime or the kubelet, while the node ran on: what was seen of it.
//!
//! Its report (`engine::boot::restart`) is computed from it on request, as for a boot.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{KubeletListens, Pod, TimedSource};
use crate::model::{
    id::TaskKey,
    process::{End, Process},
    scalar::is_default,
    time::Timestamp,
};

/// The role of a daemon for the node's pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Daemon {
    #[default]
    Runtime,
    Kubelet,
}

/// How a daemon's process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonEnd {
    pub at: Timestamp,
    pub end: End,
    /// The last signal sent to it before, of those that end a process by default. It may have caught the
    /// signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<Told>,
}

/// A signal that asked a daemon to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    pub signal: u32,
    pub by: Process,
}

/// A pod whose start did not go on, or whose sandbox was replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldPod {
    pub pod: Pod,
    /// The new process of the daemon replaced its sandbox, which was older and healthy.
    #[serde(default, skip_serializing_if = "is_default")]
    pub replaced: bool,
    /// The daemon's end, or the first sign of the pod if that came later; if it was replaced, the stop of its
    /// sandbox.
    pub since: Timestamp,
    /// When the next container of the pod started.
    pub until: Option<Timestamp>,
}

/// The outcomes of the plugins that the runtime called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RestartCalls")]
pub struct Calls {
    /// They ran when the runtime ended, so their result was lost.
    pub cut_off: u32,
    /// They were ended by a signal.
    pub killed: u32,
    pub failed: u32,
    /// They took 10 s or longer, and did not fail.
    pub hung: u32,
}

/// A pod that came back without some of its interfaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LessNetwork {
    pub pod: Pod,
    pub missing: Vec<String>,
}

/// The first pod with a container that started after the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstPod {
    pub pod: Pod,
    pub at: Timestamp,
}

/// Why a restart is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "RestartClose")]
pub enum RestartClose {
    /// The daemon is ready, and no pod waits for it.
    AsBefore,
    /// Pods still wait after half an hour.
    Waiting,
    /// Nothing has shown for half an hour that the daemon is ready.
    NotReady,
    /// The daemon did not start again within half an hour: it was stopped.
    Stopped,
}

/// One restart. It includes further ends of the daemon before the node was as before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    pub daemon: Daemon,
    /// The name of its program.
    pub comm: String,
    /// The path of the program that ended. Histories of older versions lack it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// The program that ended and the one that runs since, each with its version if its file shows it.
    pub was: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is: Option<String>,
    /// Since when the process that ended had run.
    pub ran_since: Timestamp,
    /// When its last end was seen, or the process was missed.
    pub noticed_at: Timestamp,
    /// None: the end was not seen.
    pub ended: Option<DaemonEnd>,
    /// When the process that runs now began.
    pub started: Option<TimedSource>,
    pub process: Option<TaskKey>,
    /// How many processes began and ended again, and how the last of them ended.
    #[serde(default, skip_serializing_if = "is_default")]
    pub again: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_again: Option<DaemonEnd>,
    /// When the kubelet listened at each of its ports, in the order of the ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listens: Vec<KubeletListens>,
    /// When the runtime answered, or ran a program for a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<TimedSource>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_pod: Option<FirstPod>,
    /// In the order in which they began to wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldPod>,
    /// The number of other held pods that were not kept, at least.
    #[serde(default, skip_serializing_if = "is_default")]
    pub held_left_out: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub calls: Calls,
    /// The pods that had interfaces when the daemon ended. Kept while the restart goes on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<Pod>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub less_network: Vec<LessNetwork>,
    /// None: it goes on.
    pub close: Option<RestartClose>,
    /// When it was found to be over. Histories of older versions lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Timestamp>,
}

/// The restarts of one boot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restarts {
    /// Restarts that go on, at most one for each program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<Restart>,
    /// The latest restarts that are over, in the order of their ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past: Vec<Restart>,
    /// The number of earlier restarts, by program.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: BTreeMap<String, u32>,
}

impl Restart {
    /// Returns the zero of its times: the end of the old process, or the start of the new one if the end was
    /// not seen.
    #[must_use]
    pub fn zero(&self) -> Timestamp {
        match (&self.ended, self.started) {
            (Some(ended), _) => ended.at,
            (None, Some(started)) => started.at,
            (None, None) => self.noticed_at,
        }
    }

    /// Whether the daemon has started again, if only for a while.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.started.is_some() || self.again > 0
    }

    /// Returns when the daemon was ready: the kubelet listened at the last of its ports, or the runtime
    /// answered.
    #[must_use]
    pub fn ready(&self) -> Option<TimedSource> {
        let last = self.listens.iter().map(|it| it.at).max();
        last.map(TimedSource::hooked).or(self.answers)
    }

    /// Returns when the node was as before, unless a pod still waits.
    #[must_use]
    pub fn as_before(&self) -> Option<TimedSource> {
        let ready = self.ready()?;
        self.held.iter().try_fold(ready, |last, pod| {
            let until = pod.until?;
            Some(if until > last.at { TimedSource::hooked(until) } else { last })
        })
    }
}

impl Restarts {
    /// Returns all restarts in the order in which they began.
    #[must_use]
    pub fn all(&self) -> Vec<&Restart> {
        let mut all: Vec<&Restart> = self.past.iter().chain(&self.open).collect();
        all.sort_by_key(|it| it.zero());
        all
    }

    /// Returns the number of restarts of each program. A daemon that has not started again was only stopped.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<&str, u32> {
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        let kept = self.past.iter().chain(&self.open).filter(|it| it.has_started());
        let kept = kept.map(|it| (it.comm.as_str(), 1));
        for (comm, count) in kept.chain(self.left_out.iter().map(|(comm, count)| (comm.as_str(), *count))) {
            let all = counts.entry(comm).or_default();
            *all = all.saturating_add(count);
        }
        counts
    }
}
