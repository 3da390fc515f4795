//! Bounds the bytes of responses that wait for their clients. Thousands of findings make a response of many
//! megabytes. A client that requests it on every connection and reads nothing would use up the node's memory.
//! (tower limits the number of requests, not the bytes of responses.)
//!
//! **Invariant:** a response that waits is counted in the budget, or is not larger than [`FREE`].

use std::sync::Arc;

use http::Response;
use hyper::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::reply::{ApiError, Reply};

/// Bytes for all clients of one listener. A larger response is sent if no other one waits.
const BUDGET: usize = 16 << 20;
/// The largest response that is not counted, bytes, so that health checks are answered even when the budget
/// is used up.
const FREE: usize = 16 << 10;
/// The unit of the budget, bytes, because a semaphore takes at most a 32-bit number at once.
const UNIT: usize = 1 << 10;

/// The budget of one listener.
#[derive(Debug)]
pub(super) struct ResponseBudget(Arc<Semaphore>);

impl Default for ResponseBudget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(BUDGET / UNIT)))
    }
}

/// A response and its share of the budget, which is free again once the client has read all of it or has
/// gone.
struct Waiting {
    bytes: Bytes,
    _share: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Waiting {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl ResponseBudget {
    /// Takes a response's bytes from the budget. If too few are left, the request fails at once, because a
    /// response that waited for them would need the same memory.
    pub(super) fn hold(&self, response: Response<Reply>) -> Result<Response<Reply>, ApiError> {
        let (head, body) = response.into_parts();
        let body = match body {
            Reply::Whole(whole) if whole.len() > FREE => {
                let units = u32::try_from(whole.len().min(BUDGET) / UNIT).unwrap_or(u32::MAX);
                let share = Arc::clone(&self.0).try_acquire_many_owned(units);
                let share = share.map_err(|_full| ApiError::Overloaded)?;
                Reply::whole(Bytes::from_owner(Waiting { bytes: whole.into_bytes(), _share: share }))
            }
            other => other,
        };
        Ok(Response::from_parts(head, body))
    }
}
