//! IPv4, from `fib_trie`, `route` and `igmp` of `/proc/PID/net`.

use std::{collections::BTreeMap, net::Ipv4Addr};

use crate::source::host::lines;

/// A route that needs no gateway, or one that does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    ifname: String,
    network: u32,
    mask: u32,
    direct: bool,
}

/// The addresses that are the namespace's own: a `|-- ADDRESS` with `/32 host LOCAL` below it.
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

/// `IFACE DESTINATION GATEWAY FLAGS REFCNT USE METRIC MASK …`, the addresses as the kernel holds them in memory.
pub(super) fn routes(route: &[u8]) -> Vec<Route> {
    let number = |text: &str| Some(u32::from_be_bytes(u32::from_str_radix(text, 16).ok()?.to_ne_bytes()));
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

/// The interface that an address stands on, and the length of its prefix.
pub(super) fn place(address: Ipv4Addr, routes: &[Route]) -> (String, u8) {
    if address.is_loopback() {
        // Its routes are in no table that is shown.
        return ("lo".to_owned(), 8);
    }
    let around =
        |route: &&Route| route.direct && route.mask != 0 && address.to_bits() & route.mask == route.network;
    if let Some(route) = routes.iter().filter(around).max_by_key(|route| route.mask) {
        let prefix = u8::try_from(route.mask.leading_ones()).unwrap_or(32);
        return (route.ifname.clone(), prefix);
    }
    // Given with no subnet, as by Calico: where there is one interface it is that.
    let mut names = routes.iter().map(|route| route.ifname.as_str());
    let first = names.next().unwrap_or_default();
    let only = names.all(|name| name == first);
    (if only { first.to_owned() } else { String::new() }, 32)
}

/// Interfaces' numbers, from the lines `INDEX <tab> NAME : COUNT QUERIER`.
pub(super) fn indexes(igmp: &[u8]) -> BTreeMap<String, u32> {
    lines(igmp)
        .filter_map(|line| {
            let (index, rest) = line.split_once('\t')?;
            let (name, _) = rest.split_once(':')?;
            Some((name.trim_ascii_end().to_owned(), index.parse().ok()?))
        })
        .collect()
}
