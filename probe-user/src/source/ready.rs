//! Waiting for a descriptor to have something to read: a netlink socket, a ring buffer.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use tokio::io::{
    Interest,
    unix::{AsyncFd, AsyncFdReadyGuard},
};

/// A descriptor that the runtime watches.
///
/// **Invariant:** it stays the same one as long as this lives: a duplicate of its own that nobody else can close.
#[derive(Debug)]
pub struct Ready(AsyncFd<OwnedFd>);

impl Ready {
    /// Must be called within a runtime.
    pub fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let own = fd.try_clone_to_owned()?;
        // SAFETY: an `OwnedFd` is open and the same descriptor until it is dropped, and nothing here hands it out in
        // a way in which it could be exchanged.
        let watched = unsafe { AsyncFd::register_with_interest(own, Interest::READABLE) }?;
        Ok(Self(watched))
    }

    /// Returns once there is something, or was since the guard's `clear_ready`, which is to be called when all has
    /// been read.
    pub async fn wait(&self) -> io::Result<AsyncFdReadyGuard<'_, OwnedFd>> {
        self.0.readable().await
    }
}
