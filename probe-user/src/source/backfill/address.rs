//! The addresses in each network namespace, as `/proc/PID/net` of one process in it shows them.
//!
//! This enters no namespace. IPv6 has a file of its own; for IPv4 the local routes give the addresses, and
//! the routing table the interface and the prefix.

mod inet;
mod inet6;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

use super::{
    Listing, Node,
    process::{Table, netns_key},
};
use crate::{
    model::{
        fact::{Address, Fact, List, Task},
        id::Subnet,
    },
    source::host::{FILE, Folder, ReadError},
};

/// An address and the interface that has it, as one of the two families shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct InterfaceAddress {
    address: Subnet,
    /// Empty if it is not known.
    ifname: String,
    /// 0 if it is not known.
    ifindex: u32,
    /// The lowest eight `IFA_F_*` flags. For IPv4 no flags are shown.
    flags: u32,
    /// `RT_SCOPE_*`.
    scope: u8,
}

/// `linux/rtnetlink.h`
mod scope {
    pub(super) const UNIVERSE: u8 = 0;
    pub(super) const SITE: u8 = 200;
    pub(super) const LINK: u8 = 253;
    pub(super) const HOST: u8 = 254;
}

/// Lists the addresses in `namespaces`.
pub(super) fn list<'a>(node: Node<'a>, table: &Table, namespaces: &BTreeSet<u32>) -> Listing<'a> {
    let mut list = Listing::begin(List::Addresses, node);
    let mut windows: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (pid, process) in table.iter() {
        windows.entry(process.netns).or_default().push(pid);
    }
    // Zero means a namespace that could not be read; the other is the node's own.
    windows.remove(&0);
    if let Some(own) = table.own_netns() {
        windows.remove(&own);
    }
    // A namespace that only a file holds has no process through which to read it.
    list.partial |= namespaces.iter().any(|netns| !windows.contains_key(netns));
    for (netns, pids) in windows {
        let at = list.now();
        // Any process of the namespace that still runs shows its addresses.
        let read =
            pids.iter().map(|pid| read(node, *pid, netns)).find(|read| *read != Err(ReadError::Absent));
        let found = read.and_then(|read| list.take(format!("/proc/{}/net", pids[0]), read));
        for InterfaceAddress { address, ifname, ifindex, flags, scope } in found.unwrap_or_default() {
            let by = Task::default();
            let netns = netns_key(netns);
            list.found(at, Fact::AddressFound(Address { netns, address, ifname, ifindex, flags, scope, by }));
        }
    }
    list
}

fn read(node: Node<'_>, pid: u32, netns: u32) -> Result<Vec<InterfaceAddress>, ReadError> {
    let process = node.root.folder(format!("/proc/{pid}"))?;
    // Another process may have this pid by now.
    if super::proc::namespace("net", &process.link("ns/net")?) != Some(netns) {
        return Err(ReadError::Absent);
    }
    let net = process.folder("net")?;
    let fib_trie = part(&net, "fib_trie")?;
    let route = part(&net, "route")?;
    let if_inet6 = part(&net, "if_inet6")?;
    Ok(addresses(&fib_trie, &route, &if_inet6, &part(&net, "igmp")?))
}

/// Reads a file of `/proc/PID/net`. An absent file counts as empty: the kernel may have been built without
/// one of the families.
fn part(net: &Folder, name: &str) -> Result<Vec<u8>, ReadError> {
    match net.read(name, FILE) {
        Err(ReadError::Absent) => Ok(Vec::new()),
        read => read,
    }
}

/// Merges both families. `igmp` shows the index of every interface that has IPv4.
fn addresses(fib_trie: &[u8], route: &[u8], if_inet6: &[u8], igmp: &[u8]) -> Vec<InterfaceAddress> {
    let mut found = inet6::addresses(if_inet6);
    let mut indexes = inet::indexes(igmp);
    indexes.extend(found.iter().map(|it| (it.ifname.clone(), it.ifindex)));
    let routes = inet::routes(route);
    let local: BTreeSet<Ipv4Addr> = inet::local(fib_trie).collect();
    found.extend(local.into_iter().map(|address| {
        let (ifname, prefix) = inet::place(address, &routes);
        InterfaceAddress {
            address: Subnet { address: IpAddr::V4(address), prefix },
            ifindex: indexes.get(&ifname).copied().unwrap_or(0),
            ifname,
            flags: 0,
            scope: match address {
                _ if address.is_loopback() => scope::HOST,
                _ if address.is_link_local() => scope::LINK,
                _ => scope::UNIVERSE,
            },
        }
    }));
    found.sort_by_key(|it| it.address);
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::addresses;

    const TRIE: &str = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     \
        +-- 10.88.0.0/16 2 0 2\n        +-- 10.88.0.0/29 2 0 2\n           |-- 10.88.0.0\n              \
        /16 link UNICAST\n           |-- 10.88.0.3\n              /32 host LOCAL\n        |-- 10.88.255.255\n           \
        /32 link BROADCAST\n     |-- 127.0.0.1\n        /32 host LOCAL\n\
        Local:\n     |-- 10.88.0.3\n        /32 host LOCAL\n";
    const ROUTE: &str = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
        eth0\t00000000\t0100580A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
        eth0\t0000580A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n";
    const INET6: &str = "fe80000000000000d8f9e7fffe0a0b0c 02 40 20 80     eth0\n\
        00000000000000000000000000000001 01 80 10 80       lo\n\
        fd000088000000000000000000000003 02 40 00 80     eth0\n";
    const IGMP: &str = "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n\
        1\tlo        :     1      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0\n\
        2\teth0      :     1      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0\n";

    fn told(trie: &str, route: &str, inet6: &str, igmp: &str) -> Vec<String> {
        let found = addresses(trie.as_bytes(), route.as_bytes(), inet6.as_bytes(), igmp.as_bytes());
        found.iter().map(|s| format!("{} {}:{} scope {}", s.address, s.ifname, s.ifindex, s.scope)).collect()
    }

    #[test]
    fn both_families_are_found_with_their_interfaces() {
        if cfg!(target_endian = "little") {
            assert_eq!(
                told(TRIE, ROUTE, INET6, IGMP),
                [
                    "10.88.0.3/16 eth0:2 scope 0",
                    "127.0.0.1/8 lo:1 scope 254",
                    "::1/128 lo:1 scope 254",
                    "fd00:88::3/64 eth0:2 scope 0",
                    "fe80::d8f9:e7ff:fe0a:b0c/64 eth0:2 scope 253",
                ]
            );
        }
    }

    #[test]
    fn an_address_without_a_subnet_stands_on_the_only_interface() {
        let route = "Iface\tDestination\tGateway\n\
            eth0\t00000000\t0101FEA9\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
            eth0\t0101FEA9\t00000000\t0005\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n";
        let trie = "|-- 10.1.2.3\n /32 host LOCAL\n";
        assert_eq!(told(trie, route, "", ""), ["10.1.2.3/32 eth0:0 scope 0"]);
        assert_eq!(told(trie, "", "", ""), ["10.1.2.3/32 :0 scope 0"]);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(a: Vec<u8>, b in "[0-9A-F\t\n eth]{0,200}", c in "[0-9a-f \n]{0,200}") {
            addresses(&a, &a, &a, &a);
            addresses(b.as_bytes(), b.as_bytes(), c.as_bytes(), b.as_bytes());
        }
    }
}
