//! Parses the kernel's replies and notifications.
//!
//! A general parser gives up on a whole message for one bad attribute, such as an interface's name that is
//! not UTF-8, and a container can choose any name for an interface. So the messages are parsed by hand.
//!
//! **Invariant:** any bytes give messages or an error, never a panic.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use probe_common::text::until_nul;
use zerocopy::FromBytes as _;

use super::{
    ALIGN, AddressHeader, Header, LinkHeader, NETNSA_NSID, NLMSG_DONE, NLMSG_ERROR, Nsid, RTM_DELADDR,
    RTM_DELNSID, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWNSID,
};
use crate::model::id::Subnet;

/// A message, with the needed part of its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Message {
    pub(in super::super) sequence: u32,
    /// The message is part of a dump, and an end follows.
    pub(in super::super) multi: bool,
    /// The table changed during the dump: some rows may be missing or come twice.
    pub(in super::super) interrupted: bool,
    pub(in super::super) body: Body,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Body {
    NsidNamed(Nsid),
    NsidGone(Nsid),
    AddressAdded(Address),
    AddressRemoved(Address),
    Link {
        name: String,
    },
    /// The end of a dump, or of a request that wants an acknowledgement; an errno if it failed, else 0.
    End(i32),
    Other,
}

/// An address in an `ifaddrmsg`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Address {
    pub(in super::super) subnet: Subnet,
    pub(in super::super) index: u32,
    pub(in super::super) scope: u8,
    pub(in super::super) flags: u32,
    /// IPv4 only: the interface's name, with a suffix after `:` if the address was given one.
    pub(in super::super) label: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("netlink message of type {kind} is cut short")]
pub(in super::super) struct Malformed {
    kind: u16,
}

const NLM_F_MULTI: u16 = 0x2;
const NLM_F_DUMP_INTR: u16 = 0x10;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_LABEL: u16 = 3;
const IFA_FLAGS: u16 = 8;
const IFLA_IFNAME: u16 = 3;

/// The bits of an attribute's type that are its number.
const NLA_TYPE_MASK: u16 = 0x3fff;

/// Returns the messages of a datagram, up to the first that is cut off.
pub(in super::super) fn messages(
    datagram: &[u8],
) -> impl Iterator<Item = Result<Message, Malformed>> + use<'_> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (message, after) = match split(rest) {
            Ok((header, body, after)) => (read(&header, body), after),
            Err(cut) => (Err(cut), &[][..]),
        };
        rest = after;
        Some(message)
    })
}

fn split(bytes: &[u8]) -> Result<(Header, &[u8], &[u8]), Malformed> {
    let (header, _) = Header::read_from_prefix(bytes).map_err(|_short| Malformed { kind: 0 })?;
    let cut = Malformed { kind: header.kind };
    let len = usize::try_from(header.len).map_err(|_huge| cut)?;
    let body = bytes.get(size_of::<Header>()..len).ok_or(cut)?;
    let after = bytes.get(len.next_multiple_of(ALIGN)..).unwrap_or_default();
    Ok((header, body, after))
}

fn read(header: &Header, body: &[u8]) -> Result<Message, Malformed> {
    let cut = Malformed { kind: header.kind };
    let body = match header.kind {
        NLMSG_ERROR => Body::End(errno(body).ok_or(cut)?),
        // Some dumps leave their result out on success.
        NLMSG_DONE => Body::End(errno(body).unwrap_or(0)),
        RTM_NEWNSID => Body::NsidNamed(nsid(body).ok_or(cut)?),
        RTM_DELNSID => Body::NsidGone(nsid(body).ok_or(cut)?),
        RTM_NEWADDR => Body::AddressAdded(address(body).ok_or(cut)?),
        RTM_DELADDR => Body::AddressRemoved(address(body).ok_or(cut)?),
        RTM_NEWLINK => Body::Link { name: link_name(body).ok_or(cut)? },
        _ => Body::Other,
    };
    Ok(Message {
        sequence: header.sequence,
        multi: header.flags & NLM_F_MULTI != 0,
        interrupted: header.flags & NLM_F_DUMP_INTR != 0,
        body,
    })
}

fn errno(body: &[u8]) -> Option<i32> {
    let (code, _) = i32::read_from_prefix(body).ok()?;
    Some(code.saturating_neg())
}

fn nsid(body: &[u8]) -> Option<Nsid> {
    // `rtgenmsg` is one byte, padded.
    let (_, value) = attributes(body.get(ALIGN..)?).find(|(kind, _)| *kind == NETNSA_NSID)?;
    Some(Nsid::read_from_prefix(value).ok()?.0)
}

fn link_name(body: &[u8]) -> Option<String> {
    let rest = body.get(size_of::<LinkHeader>()..)?;
    let (_, name) = attributes(rest).find(|(kind, _)| *kind == IFLA_IFNAME)?;
    Some(text(name))
}

fn address(body: &[u8]) -> Option<Address> {
    let (header, rest) = AddressHeader::read_from_prefix(body).ok()?;
    let mut local = None;
    let mut other = None;
    let mut label = None;
    let mut flags = u32::from(header.flags);
    for (kind, value) in attributes(rest) {
        match kind {
            IFA_LOCAL => local = ip(value),
            IFA_ADDRESS => other = ip(value),
            IFA_LABEL => label = Some(text(value)),
            // The header has room only for the first eight flags.
            IFA_FLAGS => flags = u32::read_from_prefix(value).ok()?.0,
            _ => {}
        }
    }
    // With a peer, `IFA_ADDRESS` is the peer's address. IPv6 without a peer has only `IFA_ADDRESS`.
    let subnet = Subnet { address: local.or(other)?, prefix: header.prefix };
    Some(Address { subnet, index: header.index, scope: header.scope, flags, label })
}

fn ip(value: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(value).map(|bytes| IpAddr::from(Ipv4Addr::from(bytes)));
    v4.or_else(|_longer| <[u8; 16]>::try_from(value).map(|bytes| Ipv6Addr::from(bytes).into())).ok()
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(until_nul(value)).into_owned()
}

/// Returns the attributes as (type, value), up to the first that is cut off.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    const HEADER: usize = 4;
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (len, _) = u16::read_from_prefix(rest).ok()?;
        let (kind, _) = u16::read_from_prefix(rest.get(2..)?).ok()?;
        let value = rest.get(HEADER..usize::from(len))?;
        rest = rest.get(usize::from(len).next_multiple_of(ALIGN)..).unwrap_or_default();
        Some((kind & NLA_TYPE_MASK, value))
    })
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::{Address, Body, Message, Nsid, messages};
    use crate::model::id::Subnet;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let len = u16::try_from(4 + value.len()).expect("short");
        let mut bytes = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
        let len = u32::try_from(16 + body.len()).expect("short");
        let mut bytes = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes()].concat();
        bytes.extend_from_slice(&7_u32.to_ne_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(body);
        bytes
    }

    fn bodies(datagram: &[u8]) -> Vec<Option<Body>> {
        messages(datagram).map(|message| message.ok().map(|message| message.body)).collect()
    }

    #[test]
    fn an_id_comes_and_goes() {
        let named = message(88, 0, &[&[0; 4][..], &attribute(1, &5_i32.to_ne_bytes())].concat());
        let gone = message(89, 0, &[&[0; 4][..], &attribute(1, &5_i32.to_ne_bytes())].concat());
        let datagram = [named, gone].concat();
        assert_eq!(bodies(&datagram), [Some(Body::NsidNamed(Nsid(5))), Some(Body::NsidGone(Nsid(5)))]);
    }

    #[test]
    fn an_address_is_our_own_and_not_the_peer() {
        let header = [[2, 24, 0x80, 253], 3_u32.to_ne_bytes()].concat();
        let attributes = [
            attribute(1, &[10, 0, 0, 9]),
            attribute(2, &[10, 0, 0, 1]),
            attribute(3, b"eth0\xff:1\0"),
            attribute(8, &0x280_u32.to_ne_bytes()),
        ]
        .concat();
        let expected = Address {
            subnet: Subnet { address: IpAddr::from([10, 0, 0, 1]), prefix: 24 },
            index: 3,
            scope: 253,
            flags: 0x280,
            label: Some("eth0\u{fffd}:1".to_owned()),
        };
        assert_eq!(
            bodies(&message(20, 2, &[header, attributes].concat())),
            [Some(Body::AddressAdded(expected))]
        );
    }

    #[test]
    fn an_end_carries_its_errno_and_an_empty_one_is_good() {
        let failed = message(2, 0, &[&(-2_i32).to_ne_bytes()[..], &[0; 16]].concat());
        let first = messages(&failed).next().expect("a message").expect("whole");
        assert_eq!(first, Message { sequence: 7, multi: false, interrupted: false, body: Body::End(2) });
        let done = message(3, 0x12, &[]);
        let first = messages(&done).next().expect("a message").expect("whole");
        assert_eq!(first, Message { sequence: 7, multi: true, interrupted: true, body: Body::End(0) });
    }

    #[test]
    fn what_is_cut_short_is_told_and_ends_the_datagram() {
        let mut datagram = message(88, 0, &[&[0; 4][..], &attribute(1, &5_i32.to_ne_bytes())].concat());
        datagram.truncate(datagram.len() - 1);
        assert_eq!(bodies(&datagram), [None]);
        // An empty message does not hide the next one.
        let datagram = [message(20, 0, &[]), message(3, 0, &[])].concat();
        assert_eq!(bodies(&datagram), [None, Some(Body::End(0))]);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            prop_assert!(messages(&bytes).count() <= bytes.len());
        }

        /// Bytes of a valid type and length, so that the parser goes beyond the header.
        #[test]
        fn no_body_panics(
            kind in prop::sample::select(vec![2_u16, 3, 16, 20, 21, 88, 89]),
            body in prop::collection::vec(any::<u8>(), 0..256),
        ) {
            prop_assert_eq!(messages(&message(kind, 0, &body)).count(), 1);
        }
    }
}
