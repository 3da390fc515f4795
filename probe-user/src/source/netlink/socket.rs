//! The two rtnetlink sockets: one for notifications, one for requests.
//!
//! They are separate so that a reply is never behind a flood of notifications. This loses the order of a
//! reply among the notifications; it is restored by reading all waiting notifications after each reply.

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
};

use nix::{
    cmsg_space,
    errno::Errno,
    setsockopt_impl, sockopt_impl,
    sys::socket::{
        AddressFamily, ControlMessageOwned, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind,
        connect, recvmsg, send, setsockopt, socket, sockopt,
    },
};

use super::{Unavailable, wire::Nsid};

/// The socket for notifications.
#[derive(Debug)]
pub(super) struct Listener {
    fd: OwnedFd,
    buffer: Vec<u8>,
}

/// The result of a read that does not wait.
#[derive(Debug)]
pub(super) enum Received<'a> {
    /// A datagram, and the namespace that it is about: ours if there is no id.
    Datagram(&'a [u8], Option<Nsid>),
    /// The buffer was full, and notifications were lost.
    Overrun,
    Nothing,
}

/// The socket for requests.
#[derive(Debug)]
pub(super) struct RequestSocket {
    fd: OwnedFd,
    buffer: Vec<u8>,
}

/// `RTNLGRP_*`, as bits.
const GROUPS: u32 = 1 << (28 - 1) | 1 << (5 - 1) | 1 << (9 - 1);

/// The kernel fills the datagrams of a dump up to this size.
const DATAGRAM: usize = 32 << 10;

sockopt_impl!(
    /// Receive notifications from every namespace that has an id in ours, with that id (Linux 4.2).
    ListenAllNsid, SetOnly, libc::SOL_NETLINK, libc::NETLINK_LISTEN_ALL_NSID, bool
);
sockopt_impl!(
    /// Make the kernel honour every field of a request, other namespaces included (Linux 4.20).
    StrictCheck, SetOnly, libc::SOL_NETLINK, libc::NETLINK_GET_STRICT_CHK, bool
);

impl Listener {
    pub(super) fn open(room: usize) -> Result<Self, Unavailable> {
        let fd = open(SockFlag::SOCK_NONBLOCK)?;
        setsockopt(&fd, ListenAllNsid, &true)
            .map_err(|error| Unavailable::new("listen to other namespaces", error))?;
        // Goes beyond net.core.rmem_max if that is permitted; otherwise the limit applies.
        setsockopt(&fd, sockopt::RcvBufForce, &room)
            .or_else(|_not_allowed| setsockopt(&fd, sockopt::RcvBuf, &room))
            .map_err(|error| Unavailable::new("make room for notifications", error))?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))
            .map_err(|error| Unavailable::new("listen for namespaces and addresses", error))?;
        Ok(Self::of(fd))
    }

    pub(super) fn of(fd: OwnedFd) -> Self {
        Self { fd, buffer: vec![0; DATAGRAM] }
    }

    pub(super) fn receive(&mut self) -> io::Result<Received<'_>> {
        match receive(self.fd.as_fd(), &mut self.buffer) {
            Ok((len, nsid)) => Ok(Received::Datagram(self.buffer.get(..len).unwrap_or_default(), nsid)),
            Err(Errno::EAGAIN) => Ok(Received::Nothing),
            Err(Errno::ENOBUFS) => Ok(Received::Overrun),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl RequestSocket {
    pub(super) fn open() -> Result<Self, Unavailable> {
        let fd = open(SockFlag::empty())?;
        setsockopt(&fd, StrictCheck, &true)
            .map_err(|error| Unavailable::new("ask about other namespaces", error))?;
        // Connects to the kernel, so that nothing else is sent to or received from.
        connect(fd.as_raw_fd(), &NetlinkAddr::new(0, 0))
            .map_err(|error| Unavailable::new("connect to the kernel", error))?;
        Ok(Self::of(fd))
    }

    pub(super) fn of(fd: OwnedFd) -> Self {
        Self { fd, buffer: vec![0; DATAGRAM] }
    }

    pub(super) fn send(&self, request: &[u8]) -> io::Result<()> {
        send(self.fd.as_raw_fd(), request, MsgFlags::empty())?;
        Ok(())
    }

    /// Receives the next datagram. The kernel does its work within `send` and `recv`, so this never waits.
    pub(super) fn receive(&mut self) -> io::Result<&[u8]> {
        let (len, _) = receive(self.fd.as_fd(), &mut self.buffer)?;
        Ok(self.buffer.get(..len).unwrap_or_default())
    }
}

fn open(flags: SockFlag) -> Result<OwnedFd, Unavailable> {
    let flags = flags | SockFlag::SOCK_CLOEXEC;
    socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)
        .map_err(|error| Unavailable::new("open a socket", error))
}

fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<(usize, Option<Nsid>), Errno> {
    let mut control = cmsg_space!(libc::c_int);
    let mut parts = [io::IoSliceMut::new(buffer)];
    let message = recvmsg::<NetlinkAddr>(fd.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::empty())?;
    let nsid = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::Unknown(control)
            if control.cmsg_header.cmsg_level == libc::SOL_NETLINK
                && control.cmsg_header.cmsg_type == libc::NETLINK_LISTEN_ALL_NSID =>
        {
            let bytes = control.data_bytes.first_chunk()?;
            Some(Nsid(i32::from_ne_bytes(*bytes)))
        }
        _ => None,
    });
    Ok((message.bytes, nsid))
}
