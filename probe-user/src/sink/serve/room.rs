//! How much of what was made for clients may wait until they have taken it. Thousands of findings are an answer of many
//! megabytes, and who asks for it on every connection and takes none of it would have the node's memory.
//!
//! **Invariant:** an answer waits within the room, or is not larger than [`FREE`].

use std::sync::Arc;

use http::Response;
use hyper::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::reply::{Refusal, Reply};

/// Bytes for all who come by one way. A larger answer is given if no other waits.
const ROOM: usize = 16 << 20;
/// What a connection takes anyway: how the agent does is told even where there is no room.
const FREE: usize = 16 << 10;
/// In which room is counted; a semaphore takes a number of 32 bits at once.
const UNIT: usize = 1 << 10;

/// Of one way in.
#[derive(Debug)]
pub(super) struct Room(Arc<Semaphore>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ROOM / UNIT)))
    }
}

/// An answer and its place, which is free again once all of it has been taken or its client has gone.
struct Waiting {
    bytes: Bytes,
    _place: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Waiting {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Room {
    /// Gives an answer its place. Without one it goes at once: to wait for it would take the same memory.
    pub(super) fn hold(&self, response: Response<Reply>) -> Result<Response<Reply>, Refusal> {
        let (head, body) = response.into_parts();
        let body = match body {
            Reply::Whole(whole) if whole.len() > FREE => {
                let units = u32::try_from(whole.len().min(ROOM) / UNIT).unwrap_or(u32::MAX);
                let place = Arc::clone(&self.0).try_acquire_many_owned(units);
                let place = place.map_err(|_full| Refusal::NoRoom)?;
                Reply::whole(Bytes::from_owner(Waiting { bytes: whole.into_bytes(), _place: place }))
            }
            other => other,
        };
        Ok(Response::from_parts(head, body))
    }
}
