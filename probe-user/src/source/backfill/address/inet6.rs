//! IPv6, from `if_inet6` of `/proc/PID/net`.

use std::net::{IpAddr, Ipv6Addr};

use super::{InterfaceAddress, scope};
use crate::{model::id::Subnet, source::host::lines};

/// Parses lines of `ADDRESS IFINDEX PREFIX SCOPE FLAGS NAME`, all numbers hexadecimal.
pub(super) fn addresses(if_inet6: &[u8]) -> Vec<InterfaceAddress> {
    lines(if_inet6).filter_map(|line| address(&line)).collect()
}

fn address(line: &str) -> Option<InterfaceAddress> {
    let mut fields = line.split_ascii_whitespace();
    let bits = fields.next().filter(|text| text.len() == 32)?;
    let address = IpAddr::V6(Ipv6Addr::from_bits(u128::from_str_radix(bits, 16).ok()?));
    let ifindex = number(fields.next()?)?;
    let prefix = u8::try_from(number(fields.next()?)?).ok()?;
    // `IPV6_ADDR_*SCOPE*` of net/ipv6.h, which netlink translates in the same way.
    let scope = match number(fields.next()?)? {
        0x10 => scope::HOST,
        0x20 => scope::LINK,
        0x40 => scope::SITE,
        _ => scope::UNIVERSE,
    };
    let flags = number(fields.next()?)?;
    let ifname = fields.next()?.to_owned();
    Some(InterfaceAddress { address: Subnet { address, prefix }, ifname, ifindex, flags, scope })
}

fn number(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 16).ok()
}
