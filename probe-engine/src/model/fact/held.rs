//! Requests to the API server that a kubelet held back, because they would have exceeded its own rate limit.

use serde::{Deserialize, Serialize};

use crate::model::{fact::Span, id::ContainerId};

/// The requests that were held back while the kubelet prepared this sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldRequests {
    pub sandbox: ContainerId,
    /// Each from when the kubelet wanted to send it until it sent it.
    pub held: Vec<Span>,
}
