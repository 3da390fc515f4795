//! An IP address was added to or removed from an interface.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Header;
use crate::{id::NetnsKey, text::IfName};

pub const IPV4: u8 = 4;
pub const IPV6: u8 = 6;

/// `rtmsg_ifa` (IPv4), `__ipv6_ifa_notify` (IPv6, whose context is a worker when duplicate detection ran
/// first).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Address {
    pub header: Header,
    pub netns: NetnsKey,
    pub ifname: IfName,
    /// Network order; IPv4 in the first four bytes, the rest zero.
    pub address: [u8; 16],
    pub ifindex: u32,
    /// `IFA_F_*`.
    pub ifa_flags: u32,
    /// `IPV4` or `IPV6`.
    pub family: u8,
    pub prefix: u8,
    /// `RT_SCOPE_*`; for IPv6 as the kernel keeps it in `inet6_ifaddr.scope` (0 = global).
    pub scope: u8,
    pub _pad: [u8; 5],
}
