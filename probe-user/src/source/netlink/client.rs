//! Requests to the kernel about ids, addresses and interfaces, each with its reply.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
};

use nix::errno::Errno;

use super::{
    socket,
    wire::{
        Nsid,
        answer::{Address, Body, messages},
        request::{FAMILIES, Request},
    },
};
use crate::model::id::Subnet;

#[derive(Debug)]
pub(super) struct KernelClient {
    socket: socket::RequestSocket,
    sequence: u32,
}

/// How often a dump is repeated if the table changed during it.
const TRIES: usize = 3;

/// Addresses by the index of their interface.
type Addresses = BTreeMap<(u32, Subnet), Address>;

/// The most addresses that are read: a container can add any number.
const MAX_ADDRESSES: usize = 4096;

impl KernelClient {
    pub(super) fn new(socket: socket::RequestSocket) -> Self {
        Self { socket, sequence: 0 }
    }

    /// Fails if the kernel does not let this process give ids (`CAP_NET_ADMIN`). The kernel checks that
    /// first, and only then refuses a request that names no namespace.
    pub(super) fn may_name(&mut self) -> io::Result<()> {
        match self.converse(&Request::name_nothing(), |_| ()) {
            Err(error) if is(&error, Errno::EPERM) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Returns the id of the namespace of `fd`. A namespace without an id gets one. It keeps the id while it
    /// is held open.
    pub(super) fn name(&mut self, fd: BorrowedFd<'_>) -> io::Result<Nsid> {
        if let Some(nsid) = self.nsid(fd)? {
            return Ok(nsid);
        }
        match self.converse(&Request::name(fd.as_raw_fd().cast_unsigned()), |_| ()) {
            // A veth pair gave it an id meanwhile.
            Err(error) if is(&error, Errno::EEXIST) => {}
            other => _ = other?,
        }
        self.nsid(fd)?.ok_or_else(|| io::Error::other("the kernel gave a namespace no id"))
    }

    /// Returns the id of the namespace of `fd`, if it has one.
    pub(super) fn nsid(&mut self, fd: BorrowedFd<'_>) -> io::Result<Option<Nsid>> {
        let mut found = None;
        self.converse(&Request::nsid_of(fd.as_raw_fd().cast_unsigned()), |body| {
            if let Body::NsidNamed(nsid) = body {
                found = Some(nsid).filter(|nsid| *nsid != Nsid::NONE);
            }
        })?;
        Ok(found)
    }

    /// Returns whether any namespace has this id.
    pub(super) fn is_named(&mut self, nsid: Nsid) -> io::Result<bool> {
        match self.converse(&Request::is_named(nsid), |_| ()) {
            Ok(_steady) => Ok(true),
            Err(error) if is(&error, Errno::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the ids in use.
    pub(super) fn nsids(&mut self) -> io::Result<Vec<Nsid>> {
        let mut found = Vec::new();
        self.converse(&Request::nsids(), |body| {
            if let Body::NsidNamed(nsid) = body {
                found.push(nsid);
            }
        })?;
        Ok(found)
    }

    /// Returns the addresses in a namespace, IPv4 and IPv6, by interface, at most `MAX_ADDRESSES`, and
    /// whether none changed meanwhile.
    pub(super) fn addresses(&mut self, nsid: Nsid) -> io::Result<(Addresses, bool)> {
        let mut found = Addresses::new();
        let mut is_steady = true;
        for family in FAMILIES {
            let told = self.converse(&Request::addresses(family, nsid), |body| {
                if let Body::AddressAdded(address) = body
                    && found.len() < MAX_ADDRESSES
                {
                    found.insert((address.index, address.subnet), address);
                }
            });
            match told {
                // The kernel has no IPv6.
                Err(error) if is(&error, Errno::EOPNOTSUPP) => {}
                other => is_steady &= other?,
            }
        }
        Ok((found, is_steady))
    }

    /// Returns the name of an interface in another namespace; `None` if either is gone.
    pub(super) fn ifname(&mut self, nsid: Nsid, index: u32) -> io::Result<Option<String>> {
        let mut found = None;
        let told = self.converse(&Request::link(nsid, index), |body| {
            if let Body::Link { name } = body {
                found = Some(name);
            }
        });
        match told {
            Err(error) if is(&error, Errno::ENODEV) || is(&error, Errno::EINVAL) => Ok(None),
            other => other.map(|_steady| found),
        }
    }

    /// Sends `request` and passes each part of the reply to `take`. Returns `false` if the table changed
    /// during each dump: changes may be reported twice or not at all.
    fn converse(&mut self, request: &Request, mut take: impl FnMut(Body)) -> io::Result<bool> {
        for _ in 0..TRIES {
            self.sequence = self.sequence.wrapping_add(1);
            self.socket.send(&request.numbered(self.sequence))?;
            if self.answer(&mut take)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads the reply; false if the table changed during a dump.
    fn answer(&mut self, take: &mut impl FnMut(Body)) -> io::Result<bool> {
        let mut steady = true;
        loop {
            let sequence = self.sequence;
            let datagram = self.socket.receive()?;
            for message in messages(datagram) {
                let message = message.map_err(io::Error::other)?;
                if message.sequence != sequence {
                    // This replies to a request that was given up after an error.
                    continue;
                }
                steady &= !message.interrupted;
                match message.body {
                    Body::End(0) => return Ok(steady),
                    Body::End(errno) => return Err(io::Error::from_raw_os_error(errno)),
                    body => {
                        take(body);
                        if !message.multi {
                            return Ok(steady);
                        }
                    }
                }
            }
        }
    }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno as i32)
}
