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
/// Errors count as something to read: a netlink socket may have no more to say than that it had no room.
///
/// **Invariant:** it stays the same one as long as this lives: a duplicate of its own that nobody else can close.
#[derive(Debug)]
pub(crate) struct Ready(AsyncFd<OwnedFd>);

const INTEREST: Interest = Interest::READABLE.add(Interest::ERROR);

impl Ready {
    /// Must be called within a runtime.
    pub(crate) fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let own = fd.try_clone_to_owned()?;
        // SAFETY: an `OwnedFd` is open and the same descriptor until it is dropped, and nothing here hands it out in
        // a way in which it could be exchanged.
        let watched = unsafe { AsyncFd::register_with_interest(own, INTEREST) }?;
        Ok(Self(watched))
    }

    /// Returns once there is something, or was since the guard's `clear_ready`, which is to be called when all has
    /// been read.
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
            // To nobody: ICMP says so, and there is nothing else to read.
            socket.send(b"x").expect("a datagram");
            time::timeout(Duration::from_secs(30), ready.wait())
                .await
                .expect("told")
                .map(drop)
                .expect("ready");
        });
    }
}
