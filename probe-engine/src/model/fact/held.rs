//! The requests to the API server that a kubelet held back, because it would have exceeded its own rate of them.

use serde::{Deserialize, Serialize};

use crate::model::{fact::Span, id::ContainerId};

/// Those of the time in which the kubelet prepared this sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldRequests {
    pub sandbox: ContainerId,
    /// Each from when the kubelet had it to send until it sent it.
    pub held: Vec<Span>,
}
