//! Waits until a descriptor is readable: a netlink socket, a ring buffer.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use tokio::io::{
    Interest,
    unix::{AsyncFd, AsyncFdReadyGuard},
};

/// A descriptor that the tokio runtime watches.
///
/// An error counts as readable: a netlink socket may only report that its buffer was full.
///
/// **Invariant:** the descriptor stays the same as long as this lives: it is a duplicate that no other code
/// can close.
#[derive(Debug)]
pub(crate) struct Ready(AsyncFd<OwnedFd>);

const INTEREST: Interest = Interest::READABLE.add(Interest::ERROR);

impl Ready {
    /// Registers a duplicate of the descriptor. Must be called within a tokio runtime.
    pub(crate) fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let own = fd.try_clone_to_owned()?;
        // SAFETY: an `OwnedFd` stays open and the same descriptor until it is dropped, and no code here can
        // replace it.
        let watched = unsafe { AsyncFd::register_with_interest(own, INTEREST) }?;
        Ok(Self(watched))
    }

    /// Returns once the descriptor is readable, or became readable since the guard's `clear_ready`. Call
    /// `clear_ready` after everything was read.
    pub(crate) async fn wait(&self) -> io::Result<AsyncFdReadyGuard<'_, OwnedFd>> {
        self.0.ready(INTEREST).await
    }
}

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, os::fd::AsFd as _, time::Duration};

    use tokio::{runtime, time};

    use super::Ready;

    #[test]
    fn an_error_is_something_to_read() {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let nobody = UdpSocket::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("an address");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.connect(nobody).expect("an address alone");
        runtime.block_on(async {
            let ready = Ready::new(socket.as_fd()).expect("a watch");
            // No process receives it: ICMP reports that, and there is nothing else to read.
            socket.send(b"x").expect("a datagram");
            time::timeout(Duration::from_secs(30), ready.wait())
                .await
                .expect("told")
                .map(drop)
                .expect("ready");
        });
    }
}
