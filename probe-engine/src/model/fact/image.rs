//! What a node's logs and files tell of the work for one container before its first sign: the pull of its image, and its
//! creation.

use serde::{Deserialize, Serialize};

use crate::model::{id::ContainerId, scalar::is_default, time::Timestamp};

/// The work for one container in the time that was asked about. What nothing tells is absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageWork {
    pub container: ContainerId,
    /// The pulls of its image, in the order in which they began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pulls: Vec<Pull>,
    /// The other pulls that the runtime had under way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_pulls: Vec<Span>,
    /// When the kubelet refused to pull, because its rate of pulls was exceeded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Timestamp>,
    /// The runtime made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Span>,
    /// The other containers that the runtime made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_creates: Vec<Span>,
}

/// The pull of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pull {
    pub span: Span,
    #[serde(default, skip_serializing_if = "is_default")]
    pub failed: bool,
    /// The last layer that it fetched was complete. None: no file tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Span {
    pub began: Timestamp,
    pub ended: Timestamp,
}
