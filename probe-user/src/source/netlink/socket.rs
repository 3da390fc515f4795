//! The two rtnetlink sockets: one that listens, one that asks.
//!
//! Apart, so that an answer is never behind a flood of notifications. What is lost by that, the order of an answer
//! among the notifications, comes back by reading all of those that are there after each answer.

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

/// The socket that listens.
#[derive(Debug)]
pub(super) struct Listener {
    fd: OwnedFd,
    buffer: Vec<u8>,
}

/// What was read from a socket that does not wait.
#[derive(Debug)]
pub(super) enum Received<'a> {
    /// A datagram, and the namespace that it is about: ours if there is no id.
    Datagram(&'a [u8], Option<Nsid>),
    /// There was no room for some notifications; those are lost.
    Overrun,
    Nothing,
}

/// The socket that asks.
#[derive(Debug)]
pub(super) struct Asker {
    fd: OwnedFd,
    buffer: Vec<u8>,
}

/// `RTNLGRP_*`, as bits.
const GROUPS: u32 = 1 << (28 - 1) | 1 << (5 - 1) | 1 << (9 - 1);

/// The kernel fills a dump's datagrams up to this.
const DATAGRAM: usize = 32 << 10;

sockopt_impl!(
    /// Notifications from every namespace that has an id in ours, with that id (Linux 4.2).
    ListenAllNsid, SetOnly, libc::SOL_NETLINK, libc::NETLINK_LISTEN_ALL_NSID, bool
);
sockopt_impl!(
    /// Requests mean all that they say, other namespaces included (Linux 4.20).
    StrictCheck, SetOnly, libc::SOL_NETLINK, libc::NETLINK_GET_STRICT_CHK, bool
);

impl Listener {
    pub(super) fn open(room: usize) -> Result<Self, Unavailable> {
        let fd = open(SockFlag::SOCK_NONBLOCK)?;
        setsockopt(&fd, ListenAllNsid, &true)
            .map_err(|error| Unavailable::new("listen to other namespaces", error))?;
        // Beyond net.core.rmem_max, if we may; without that the limit is what we get.
        setsockopt(&fd, sockopt::RcvBufForce, &room)
            .or_else(|_not_allowed| setsockopt(&fd, sockopt::RcvBuf, &room))
            .map_err(|error| Unavailable::new("make room for notifications", error))?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))
            .map_err(|error| Unavailable::new("listen for namespaces and addresses", error))?;
        Ok(Self { fd, buffer: vec![0; DATAGRAM] })
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

impl Asker {
    pub(super) fn open() -> Result<Self, Unavailable> {
        let fd = open(SockFlag::empty())?;
        setsockopt(&fd, StrictCheck, &true)
            .map_err(|error| Unavailable::new("ask about other namespaces", error))?;
        // To the kernel alone, and from it alone.
        connect(fd.as_raw_fd(), &NetlinkAddr::new(0, 0))
            .map_err(|error| Unavailable::new("connect to the kernel", error))?;
        Ok(Self { fd, buffer: vec![0; DATAGRAM] })
    }

    pub(super) fn send(&self, request: &[u8]) -> io::Result<()> {
        send(self.fd.as_raw_fd(), request, MsgFlags::empty())?;
        Ok(())
    }

    /// The next datagram. The kernel works on a request within `send` and on the next part of a dump within the
    /// receiving, so this does not wait for anything.
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
