//! Pods. A pod joins sandboxes, containers, cgroups and CNI calls.

pub(crate) mod readings;
pub(crate) mod rows;

pub(crate) use rows::Table;

use readings::Readings;
use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

use crate::model::{
    fact::{NameSource, Origin, PodName, Said},
    id::CgroupKey,
    time::Timestamp,
};

#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// The number of this row. Numbers only rise and are never reused. A row needs its own number because a
    /// pod's name may be known before its UID, or its UID before its name.
    #[serde_as(as = "DisplayFromStr")]
    pub(crate) id: u64,
    pub(crate) named: PodName,
    /// The source of the name. While there is no name, the source of the UID.
    pub(crate) source: NameSource,
    /// The time and the origin of the first sign of the pod in its present life.
    pub(crate) first_at: Timestamp,
    pub(crate) origin: Origin,
    /// The pod's own cgroups that exist. An all-zero key stands for a cgroup of which only the cgroups in it
    /// are known.
    pub(crate) cgroups: Vec<CgroupKey>,
    /// How often the pod's name was asked for.
    pub(crate) asked: u32,
    /// When the last sandbox of the pod that had been ready stopped.
    pub(crate) left_at: Option<Timestamp>,
    pub(crate) start: Start,
    pub(crate) state: State,
    /// What the runtime and the kubelet say about the pod, once that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) words: Option<Box<Words>>,
}

/// What the runtime and the kubelet say about a pod that waits, or about their own end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Words {
    /// Since when it waits, or when it first failed.
    pub(crate) since: Timestamp,
    pub(crate) asked_at: Timestamp,
    pub(crate) said: Vec<Said>,
    /// The places that were searched in vain.
    pub(crate) unsaid: Option<String>,
}

/// The state of the start in the pod's present life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Start {
    /// When the pod's cgroup was made.
    pub(crate) made_at: Option<Timestamp>,
    /// The start counts as complete, and was reported.
    pub(crate) is_complete: bool,
    /// The names of the containers that the pod will have. Empty: not known.
    pub(crate) expected: Vec<String>,
    /// The counters of the pod's cgroup during the start.
    pub(crate) readings: Readings,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    #[default]
    Present,
    Gone {
        at: Timestamp,
    },
}

/// The transitions of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Show,
    Go,
}

impl Words {
    /// Takes in what was found. Older words stay until there are others.
    pub(in crate::engine::world) fn take_in(&mut self, said: Vec<Said>, unsaid: Option<String>) {
        if !said.is_empty() || self.said.is_empty() {
            (self.said, self.unsaid) = (said, unsaid);
        }
    }
}

impl State {
    pub(crate) fn step(self, step: Step, at: Timestamp) -> Option<Self> {
        match (self, step) {
            (Self::Present, Step::Go) => Some(Self::Gone { at }),
            (Self::Gone { .. }, Step::Show) => Some(Self::Present),
            (Self::Present, Step::Show) | (Self::Gone { .. }, Step::Go) => None,
        }
    }
}

impl Pod {
    #[must_use]
    pub(crate) fn is_present(&self) -> bool {
        self.state == State::Present
    }

    /// When it was made, if that was seen.
    pub(crate) fn made_at(&self) -> Option<Timestamp> {
        self.start.made_at.map(|made| made.min(self.first_at))
    }

    /// What the runtime and the kubelet say about the pod, which has waited since then.
    pub(crate) fn said_since(&self, since: Timestamp) -> (Vec<Said>, Option<String>) {
        match &self.words {
            Some(words) if words.since >= since => (words.said.clone(), words.unsaid.clone()),
            Some(_) | None => (Vec::new(), None),
        }
    }

    /// The pod has a cgroup. An all-zero `key` means that only a cgroup in it is known. The entry stays until
    /// the pod's cgroup is removed or a listing lacks it.
    fn has_cgroup(&mut self, key: CgroupKey) {
        let by_content = CgroupKey::default();
        if key != by_content {
            self.cgroups.retain(|other| *other != by_content && *other != key);
        }
        if key != by_content || self.cgroups.is_empty() {
            self.cgroups.push(key);
        }
    }
}

impl Start {
    /// Adds the facts of another row that turned out to be the same pod.
    pub(in crate::engine::world) fn merge(&mut self, other: Self) {
        self.made_at = self.made_at.into_iter().chain(other.made_at).min();
        self.is_complete |= other.is_complete;
        if self.readings.is_empty() {
            self.readings = other.readings;
        }
        if self.expected.is_empty() {
            self.expected = other.expected;
        }
    }
}
