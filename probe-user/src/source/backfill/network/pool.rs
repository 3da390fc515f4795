//! The ranges from which host-local assigns addresses, with host-local's defaults.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Deserialize;

use super::{
    super::{Listing, Node},
    Configured, FLANNEL, HOST_LOCAL,
};
use crate::{
    model::{fact::Pool, id::Subnet},
    source::host::lines,
};

/// A range as configured. Only the subnet is required.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Range {
    subnet: Option<String>,
    range_start: Option<IpAddr>,
    range_end: Option<IpAddr>,
    gateway: Option<IpAddr>,
}

impl Range {
    /// Returns the addresses of the range; `None` if host-local would refuse it.
    pub(super) fn pool(&self) -> Option<Pool> {
        let subnet = subnet(self.subnet.as_deref()?)?;
        let base = number(subnet.address);
        // The number of host bits. host-local requires at least two.
        let below =
            u32::from(width(subnet.address)).checked_sub(u32::from(subnet.prefix)).filter(|n| *n >= 2)?;
        let all = u128::MAX >> (128 - below);
        if base & all != 0 {
            return None;
        }
        // For IPv4 the last address is the broadcast address; IPv6 has none.
        let end = base + all - u128::from(subnet.address.is_ipv4());
        let first = self.range_start.map_or(base + 1, number);
        let last = self.range_end.map_or(end, number);
        let v4 = subnet.address.is_ipv4();
        let is_other_family =
            [self.range_start, self.range_end].iter().flatten().any(|it| it.is_ipv4() != v4);
        if is_other_family || first <= base || last < first || end < last {
            return None;
        }
        // The gateway's address is never assigned, whether it is in use or not.
        let gateway = self.gateway.map_or(base + 1, number);
        let size = last - first + 1 - u128::from((first..=last).contains(&gateway));
        let first = address(first, v4)?;
        let last = address(last, v4)?;
        Some(Pool { subnet, first, last, size: u64::try_from(size).unwrap_or(u64::MAX) })
    }
}

/// Adds the pools of flannel's networks. flanneld writes the node's own subnet to a file, and flannel passes
/// it to host-local.
pub(super) fn flannel(node: Node<'_>, list: &mut Listing<'_>, networks: &mut [Configured]) {
    const SUBNETS: &str = "/run/flannel/subnet.env";
    let Some(file) = list.take(SUBNETS, node.root.read(SUBNETS)) else { return };
    let pools = subnets(&file);
    for Configured { network, .. } in networks {
        if network.ipam.is_none() && network.plugins.iter().any(|kind| kind == FLANNEL) {
            network.ipam = Some(HOST_LOCAL.to_owned());
            network.pools.clone_from(&pools);
        }
    }
}

/// Parses `FLANNEL_SUBNET=10.42.0.1/24`: the node's subnet, with the address of the bridge.
fn subnets(file: &[u8]) -> Vec<Pool> {
    lines(file).filter_map(|line| flannel_pool(line.trim())).collect()
}

fn flannel_pool(line: &str) -> Option<Pool> {
    let (name, value) = line.split_once('=')?;
    if !matches!(name, "FLANNEL_SUBNET" | "FLANNEL_IPV6_SUBNET") {
        return None;
    }
    let own = subnet(value)?;
    let below = u32::from(width(own.address)).checked_sub(u32::from(own.prefix)).filter(|n| *n >= 2)?;
    let base = address(number(own.address) & !(u128::MAX >> (128 - below)), own.address.is_ipv4())?;
    let subnet = Some(format!("{base}/{}", own.prefix));
    Range { subnet, ..Range::default() }.pool()
}

fn subnet(text: &str) -> Option<Subnet> {
    let (address, prefix) = text.split_once('/')?;
    let subnet = Subnet { address: address.parse().ok()?, prefix: prefix.parse().ok()? };
    (subnet.prefix <= width(subnet.address)).then_some(subnet)
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

fn address(number: u128, v4: bool) -> Option<IpAddr> {
    if v4 {
        u32::try_from(number).ok().map(|number| Ipv4Addr::from(number).into())
    } else {
        Some(Ipv6Addr::from(number).into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Pool, Range, subnets};

    fn told(pool: Option<Pool>) -> Option<String> {
        let Pool { subnet, first, last, size } = pool?;
        Some(format!("{subnet} {first}-{last} {size}"))
    }

    fn range(text: &str) -> Option<String> {
        told(serde_json::from_str::<Range>(text).ok()?.pool())
    }

    #[test]
    fn what_is_not_said_is_as_host_local_takes_it() {
        for (text, pool) in [
            (r#"{"subnet":"10.1.2.0/24"}"#, "10.1.2.0/24 10.1.2.1-10.1.2.254 253"),
            (r#"{"subnet":"10.1.2.0/30"}"#, "10.1.2.0/30 10.1.2.1-10.1.2.2 1"),
            (r#"{"subnet":"10.1.2.0/24","gateway":"10.1.2.254"}"#, "10.1.2.0/24 10.1.2.1-10.1.2.254 253"),
            (r#"{"subnet":"10.1.2.0/24","gateway":"10.9.9.9"}"#, "10.1.2.0/24 10.1.2.1-10.1.2.254 254"),
            (
                r#"{"subnet":"10.1.2.0/24","rangeStart":"10.1.2.10","rangeEnd":"10.1.2.19"}"#,
                "10.1.2.0/24 10.1.2.10-10.1.2.19 10",
            ),
            (r#"{"subnet":"fd00::/126"}"#, "fd00::/126 fd00::1-fd00::3 2"),
            (r#"{"subnet":"::/0"}"#, "::/0 ::1-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 18446744073709551615"),
            (r#"{"subnet":"0.0.0.0/0"}"#, "0.0.0.0/0 0.0.0.1-255.255.255.254 4294967293"),
        ] {
            assert_eq!(range(text).as_deref(), Some(pool), "{text}");
        }
    }

    #[test]
    fn what_host_local_refuses_is_none() {
        for text in [
            "{}",
            r#"{"subnet":"10.1.2.3/24"}"#,
            r#"{"subnet":"10.1.2.0/31"}"#,
            r#"{"subnet":"10.1.2.0/33"}"#,
            r#"{"subnet":"10.1.2.0/24","rangeStart":"10.1.3.1"}"#,
            r#"{"subnet":"10.1.2.0/24","rangeStart":"fd00::1"}"#,
            r#"{"subnet":"10.1.2.0/24","rangeStart":"10.1.2.9","rangeEnd":"10.1.2.8"}"#,
        ] {
            assert_eq!(range(text), None, "{text}");
        }
    }

    #[test]
    fn flannel_says_which_part_is_the_node_s() {
        let text = b"FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=10.42.3.1/24\nFLANNEL_MTU=1450\n\
            FLANNEL_IPV6_SUBNET=2001:cafe:42:1::1/64\n";
        let told: Vec<_> = subnets(text).into_iter().filter_map(|pool| told(Some(pool))).collect();
        assert_eq!(
            told,
            [
                "10.42.3.0/24 10.42.3.1-10.42.3.254 253",
                "2001:cafe:42:1::/64 2001:cafe:42:1::1-2001:cafe:42:1:ffff:ffff:ffff:ffff 18446744073709551614"
            ]
        );
    }

    proptest! {
        #[test]
        fn nothing_is_too_strange(bytes: Vec<u8>, subnet in "([0-9a-f.:]{1,12}|10\\.0\\.0\\.0|fd00::)/[0-9]{1,3}") {
            subnets(&bytes);
            Range { subnet: Some(subnet), ..Range::default() }.pool();
        }
    }
}
