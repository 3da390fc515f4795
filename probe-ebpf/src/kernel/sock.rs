//! `struct sock`: a socket.

use probe_common::event::address::{IPV4, IPV6};

use super::{offset, read};

#[derive(Clone, Copy)]
pub(crate) struct Sock(u64);

const AF_INET6: u16 = 10;

impl Sock {
    /// `sock` is a `struct sock *`.
    #[inline(always)]
    pub(crate) fn at(sock: u64) -> Self {
        Self(sock)
    }

    /// The socket's own port, in the machine's byte order.
    #[inline(always)]
    pub(crate) fn port(self) -> u16 {
        read(self.0, offset!(sock_num))
    }

    /// Sockets of other families do not go through TCP's states.
    #[inline(always)]
    pub(crate) fn family(self) -> u8 {
        if read::<u16>(self.0, offset!(sock_family)) == AF_INET6 { IPV6 } else { IPV4 }
    }
}
