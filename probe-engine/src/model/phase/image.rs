//! The parts of a phase, as far as logs and files show them.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use crate::model::time::{Nanoseconds, Timestamp};

/// A part of a phase.
// The parts follow each other, and together they are the whole phase.
#[serde_as]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StartPhasePart")]
pub struct Part {
    #[serde(rename = "part")]
    pub kind: PartKind,
    #[serde(rename = "begin_ns")]
    pub begin: Timestamp,
    #[serde_as(as = "Nanoseconds")]
    #[serde(rename = "duration_ns")]
    #[schemars(with = "Nanoseconds")]
    pub took: Duration,
    /// In `wait`: what it waited for.
    #[serde(rename = "waits_for", skip_serializing_if = "Option::is_none")]
    pub waits: Option<WaitsFor>,
}

closed_set! {
    #[schemars(rename = "ImagePart")]
    pub enum PartKind {
        /// No log shows what this time was spent on.
        Unknown,
        Wait,
        /// The runtime pulls the image. It unpacks layers meanwhile. If no file shows when the last layer was
        /// fetched, this includes all of the unpacking.
        Pull,
        /// All layers are fetched, and the runtime unpacks the rest.
        Unpack,
        /// The runtime creates the container, until the container's first sign.
        Create,
    }
}

/// What delayed the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitsFor {
    /// Other pulls, of which at most `at_once` ran at the same time.
    Pulls { ahead: u32, at_once: u32 },
    /// The creation of other containers, of which at most `at_once` ran at the same time.
    Creates { ahead: u32, at_once: u32 },
    /// The kubelet refused to pull because its rate limit was exceeded, and tried again later.
    Rate { refused: u32 },
    /// Pulls failed, and the kubelet tried again later.
    Retry { failed: u32 },
    /// The kubelet had not read the Services from the API server, and tried again later to make the
    /// container.
    Services { failed: u32 },
    /// The kubelet held back requests to the API server because of its rate limit; `held_back` is the number
    /// it logged.
    ApiRate { held_back: u32 },
    /// The runtime, which answered nothing.
    Runtime {},
}

impl Part {
    #[must_use]
    pub fn end(&self) -> Timestamp {
        self.begin + self.took
    }

    /// Whether the Kubernetes objective leaves it out: the kubelet counts a pull from its request, including
    /// all waits.
    pub(crate) fn is_of_pull(&self) -> bool {
        match self.kind {
            PartKind::Pull | PartKind::Unpack => true,
            PartKind::Wait => matches!(
                self.waits,
                Some(WaitsFor::Pulls { .. } | WaitsFor::Rate { .. } | WaitsFor::Retry { .. })
            ),
            PartKind::Unknown | PartKind::Create => false,
        }
    }

    /// Returns the section of it between these times.
    pub(crate) fn within(self, begin: Timestamp, end: Timestamp) -> Option<Self> {
        let begin = self.begin.max(begin);
        let took = self.end().min(end).since(begin);
        (!took.is_zero()).then_some(Self { begin, took, ..self })
    }
}
