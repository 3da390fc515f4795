//! IPv4, from `fib_trie`, `route` and `igmp` of `/proc/PID/net`.

use std::{collections::BTreeMap, net::Ipv4Addr};

use crate::source::host::lines;

/// A route, with a gateway or without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    ifname: String,
    network: u32,
    mask: u32,
    direct: bool,
}

/// Returns the namespace's own addresses: each is a line `|-- ADDRESS` with `/32 host LOCAL` below it.
pub(super) fn local(fib_trie: &[u8]) -> impl Iterator<Item = Ipv4Addr> {
    let mut last = None;
    lines(fib_trie).filter_map(move |line| {
        let line = line.trim_ascii();
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
            return None;
        }
        if line == "/32 host LOCAL" { last } else { None }
    })
}

/// Parses `IFACE DESTINATION GATEWAY FLAGS REFCNT USE METRIC MASK …`. The addresses are in the kernel's byte
/// order.
pub(super) fn routes(route: &[u8]) -> Vec<Route> {
    lines(route)
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let ifname = fields.next()?.to_owned();
            let network = number(fields.next()?)?;
            let direct = number(fields.next()?)? == 0;
            let mask = number(fields.nth(4)?)?;
            Some(Route { ifname, network, mask, direct })
        })
        .collect()
}

/// Parses a hexadecimal number in the kernel's byte order.
fn number(text: &str) -> Option<u32> {
    Some(u32::from_be_bytes(u32::from_str_radix(text, 16).ok()?.to_ne_bytes()))
}

/// Returns the interface that has an address, and the length of the prefix.
pub(super) fn place(address: Ipv4Addr, routes: &[Route]) -> (String, u8) {
    if address.is_loopback() {
        // The routes of loopback addresses are in no table that `/proc` shows.
        return ("lo".to_owned(), 8);
    }
    let around = routes
        .iter()
        .filter(|route| route.direct && route.mask != 0 && address.to_bits() & route.mask == route.network);
    if let Some(route) = around.max_by_key(|route| route.mask) {
        let prefix = u8::try_from(route.mask.leading_ones()).unwrap_or(32);
        return (route.ifname.clone(), prefix);
    }
    // The address has no subnet, as with Calico. If there is only one interface, the address is on that.
    let mut names = routes.iter().map(|route| route.ifname.as_str());
    let first = names.next().unwrap_or_default();
    let only = names.all(|name| name == first);
    (if only { first.to_owned() } else { String::new() }, 32)
}

/// Returns the index of each interface, from the lines `INDEX <tab> NAME : COUNT QUERIER`.
pub(super) fn indexes(igmp: &[u8]) -> BTreeMap<String, u32> {
    lines(igmp)
        .filter_map(|line| {
            let (index, rest) = line.split_once('\t')?;
            let (name, _) = rest.split_once(':')?;
            Some((name.trim_ascii_end().to_owned(), index.parse().ok()?))
        })
        .collect()
}
