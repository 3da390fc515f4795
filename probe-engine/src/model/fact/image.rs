//! The work for one container before its first sign, as the node's logs and files show it: the pull of its
//! image, and its creation.

use serde::{Deserialize, Serialize};

use crate::model::{
    id::ContainerId,
    scalar::is_default,
    time::{Span, Timestamp},
};

/// The work for one container in the time of the question. What no log or file shows is absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageWork {
    pub container: ContainerId,
    /// The pulls of its image, in the order in which they began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pulls: Vec<Pull>,
    /// Other pulls that the runtime had under way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_pulls: Vec<Span>,
    /// When the kubelet refused to pull, because its rate limit for pulls was exceeded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Timestamp>,
    /// When the kubelet could not make it, because it had not read the Services yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services_unread: Vec<Timestamp>,
    /// When the runtime created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Span>,
    /// Other creations of containers by the runtime.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_creates: Vec<Span>,
}

/// The pull of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pull {
    pub span: Span,
    #[serde(default, skip_serializing_if = "is_default")]
    pub failed: bool,
    /// When the last layer was fetched. None: no file shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched: Option<Timestamp>,
}
