//! The rtnetlink messages that are used here, as bytes.

pub(super) mod answer;
pub(super) mod request;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The id that a network namespace gives to another one. The kernel gives the lowest free number, so ids are
/// soon reused.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub(super) struct Nsid(pub(super) i32);

/// `nlmsghdr`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    len: u32,
    kind: u16,
    flags: u16,
    sequence: u32,
    port: u32,
}

/// `ifaddrmsg`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct AddressHeader {
    family: u8,
    prefix: u8,
    flags: u8,
    scope: u8,
    index: u32,
}

/// `ifinfomsg`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct LinkHeader {
    family: u8,
    pad: u8,
    kind: u16,
    index: u32,
    flags: u32,
    change: u32,
}

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const RTM_NEWNSID: u16 = 88;
const RTM_DELNSID: u16 = 89;
const RTM_GETNSID: u16 = 90;

const NETNSA_NSID: u16 = 1;

/// The alignment of messages and attributes.
const ALIGN: usize = 4;

impl Nsid {
    /// `NETNSA_NSID_NOT_ASSIGNED`, which also requests the next free id.
    pub(super) const NONE: Self = Self(-1);
}
