//! Requests to the kernel.

use zerocopy::{Immutable, IntoBytes};

use super::{
    AddressHeader, Header, LinkHeader, NETNSA_NSID, Nsid, RTM_GETADDR, RTM_GETLINK, RTM_GETNSID, RTM_NEWNSID,
};

/// A request without its sequence number.
#[derive(Debug)]
pub(in super::super) struct Request {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

/// Addresses are requested family by family: a request for all families is answered by some of them without
/// regard to the namespace that it names.
pub(in super::super) const FAMILIES: [u8; 2] = [AF_INET, AF_INET6];

/// An attribute whose value is a number, as in all requests here.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
struct Attribute {
    len: u16,
    kind: u16,
    value: u32,
}

/// `rtgenmsg`: a family, 0 here, with padding.
const GENERAL: [u8; 4] = [0; 4];

const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_DUMP: u16 = 0x300;

const NETNSA_FD: u16 = 3;
const IFA_TARGET_NETNSID: u16 = 10;
const IFLA_EXT_MASK: u16 = 29;
const IFLA_TARGET_NETNSID: u16 = 46;
/// Leaves out the counters, which are most of a reply's bytes.
const RTEXT_FILTER_SKIP_STATS: u32 = 8;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

impl Request {
    /// Asks whether `nsid` is in use. The reply is the id or `ENOENT`.
    pub(in super::super) fn is_named(nsid: Nsid) -> Self {
        Self::new(RTM_GETNSID, 0, &GENERAL, &[Attribute::id(NETNSA_NSID, nsid)])
    }

    /// Asks for the id of the namespace of the descriptor `fd`. The reply is the id or `Nsid::NONE`.
    pub(in super::super) fn nsid_of(fd: u32) -> Self {
        Self::new(RTM_GETNSID, 0, &GENERAL, &[Attribute::new(NETNSA_FD, fd)])
    }

    /// Gives the namespace of the descriptor `fd` an id; `EEXIST` if it has one.
    pub(in super::super) fn name(fd: u32) -> Self {
        let attributes = [Attribute::new(NETNSA_FD, fd), Attribute::id(NETNSA_NSID, Nsid::NONE)];
        Self::new(RTM_NEWNSID, NLM_F_ACK, &GENERAL, &attributes)
    }

    /// Asks to name no namespace: the kernel checks the caller's rights and then refuses with `EINVAL`.
    pub(in super::super) fn name_nothing() -> Self {
        Self::new(RTM_NEWNSID, NLM_F_ACK, &GENERAL, &[])
    }

    /// Asks for the ids in use.
    pub(in super::super) fn nsids() -> Self {
        Self::new(RTM_GETNSID, NLM_F_DUMP, &GENERAL, &[])
    }

    /// Asks for the addresses of one of `FAMILIES` in another namespace. The kernel honours the namespace
    /// only on a socket with strict checking, and lists our own addresses otherwise.
    pub(in super::super) fn addresses(family: u8, nsid: Nsid) -> Self {
        let header = AddressHeader { family, prefix: 0, flags: 0, scope: 0, index: 0 };
        let attributes = [Attribute::id(IFA_TARGET_NETNSID, nsid)];
        Self::new(RTM_GETADDR, NLM_F_DUMP, header.as_bytes(), &attributes)
    }

    /// Asks for an interface of another namespace.
    pub(in super::super) fn link(nsid: Nsid, index: u32) -> Self {
        let header = LinkHeader { family: 0, pad: 0, kind: 0, index, flags: 0, change: 0 };
        let mask = Attribute::new(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
        Self::new(RTM_GETLINK, 0, header.as_bytes(), &[Attribute::id(IFLA_TARGET_NETNSID, nsid), mask])
    }

    /// Returns the bytes to send.
    pub(in super::super) fn numbered(&self, sequence: u32) -> Vec<u8> {
        let len = size_of::<Header>() + self.body.len();
        // All requests have a few dozen bytes.
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let header = Header { len, kind: self.kind, flags: NLM_F_REQUEST | self.flags, sequence, port: 0 };
        [header.as_bytes(), &self.body].concat()
    }

    fn new(kind: u16, flags: u16, header: &[u8], attributes: &[Attribute]) -> Self {
        Self { kind, flags, body: [header, attributes.as_bytes()].concat() }
    }
}

impl Attribute {
    const LEN: u16 = 8;

    fn new(kind: u16, value: u32) -> Self {
        Self { len: Self::LEN, kind, value }
    }

    fn id(kind: u16, Nsid(nsid): Nsid) -> Self {
        Self::new(kind, nsid.cast_unsigned())
    }
}

#[cfg(test)]
mod tests {
    use super::{Nsid, Request};

    fn words(request: &Request) -> Vec<u32> {
        let bytes = request.numbered(7);
        bytes.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().expect("whole words"))).collect()
    }

    /// Joins two 16-bit numbers.
    fn pair(first: u16, second: u16) -> u32 {
        let bytes = [first.to_ne_bytes(), second.to_ne_bytes()].concat();
        u32::from_ne_bytes(bytes.try_into().expect("four bytes"))
    }

    #[test]
    fn requests_are_laid_out_as_the_kernel_reads_them() {
        assert_eq!(words(&Request::nsids()), [20, pair(90, 0x301), 7, 0, 0]);
        let name = [36, pair(88, 5), 7, 0, 0, pair(8, 3), 11, pair(8, 1), u32::MAX];
        assert_eq!(words(&Request::name(11)), name);
        let family = u32::from_ne_bytes([2, 0, 0, 0]);
        let addresses = [32, pair(22, 0x301), 7, 0, family, 0, pair(8, 10), 5];
        assert_eq!(words(&Request::addresses(2, Nsid(5))), addresses);
        let link = [48, pair(18, 1), 7, 0, 0, 3, 0, 0, pair(8, 46), 5, pair(8, 29), 8];
        assert_eq!(words(&Request::link(Nsid(5), 3)), link);
    }
}
