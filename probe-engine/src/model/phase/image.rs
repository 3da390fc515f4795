//! What a phase consists of, as far as logs and files tell.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::time::Timestamp;

/// A part of the phase. The parts follow each other, and together they are the whole phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub kind: PartKind,
    pub begin: Timestamp,
    pub end: Timestamp,
    /// Of a wait: for what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<WaitsFor>,
}

closed_set! {
    #[schemars(rename = "ImagePart")]
    pub enum PartKind {
        /// No log tells what this time went to.
        Unknown,
        Wait,
        /// The runtime pulls the image. It unpacks layers meanwhile; where no file tells when the last one was fetched, all
        /// of the unpacking is in here.
        Pull,
        /// All layers are fetched, and the runtime unpacks the rest.
        Unpack,
        /// The runtime makes the container, until the container's first sign.
        Create,
    }
}

/// What held the start up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitsFor {
    /// Other pulls, of which so many ran at once, and none more.
    Pulls { ahead: u32, at_once: u32 },
    /// The creation of other containers, likewise.
    Creates { ahead: u32, at_once: u32 },
    /// The kubelet refused to pull for exceeding its rate of pulls, and tried again later.
    Rate { refused: u32 },
    /// Pulls failed, and the kubelet tried again later.
    Retry { failed: u32 },
    /// The kubelet held back requests to the API server for exceeding its rate of them; it logged so many.
    ApiRate { held_back: u32 },
    /// The runtime, which answered nothing.
    Runtime {},
}

impl Part {
    #[must_use]
    pub fn took(&self) -> Duration {
        self.end.since(self.begin)
    }

    /// Whether the objective of Kubernetes leaves it out: the kubelet counts a pull from its request on, with all waits for it.
    pub(super) fn is_of_pull(&self) -> bool {
        match self.kind {
            PartKind::Pull | PartKind::Unpack => true,
            PartKind::Wait => matches!(
                self.waits,
                Some(WaitsFor::Pulls { .. } | WaitsFor::Rate { .. } | WaitsFor::Retry { .. })
            ),
            PartKind::Unknown | PartKind::Create => false,
        }
    }

    /// What of it lies between these times.
    pub(crate) fn within(self, begin: Timestamp, end: Timestamp) -> Option<Self> {
        let part = Self { begin: self.begin.max(begin), end: self.end.min(end), ..self };
        (part.begin < part.end).then_some(part)
    }
}
