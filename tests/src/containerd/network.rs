//! The pods' network: a bridge, and a range of addresses that nothing else on the machine uses.

use std::{
    collections::BTreeMap,
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, anyhow};
use serde_json::{Value, json};

use super::plugin;
use crate::keyed::{self, Faults, Settings};

/// The version of the CNI specification in each configuration.
const VERSION: &str = "0.4.0";
/// The directory of host-local's addresses of every network.
const HOST_LOCAL: &str = "/var/lib/cni/networks";

/// A CNI network with the plugins bridge, host-local and portmap, or with the tests' own plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// The network's name, which is also in the names of CNI's cache files and in the comments of its
    /// iptables rules.
    pub name: String,
    pub bridge: String,
    /// One for each family, like `10.231.0.0/22`.
    pub subnets: Vec<String>,
    /// The settings of the tests' own plugin, which has no bridge.
    pub keyed: Option<Keyed>,
    /// The runtime calls a broker, and that calls the plugins of this network and of a second one for each
    /// pod.
    pub has_broker: bool,
}

/// The settings of the tests' own plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyed {
    pub store: PathBuf,
    pub faults: Faults,
    /// Other faults for pods of these names.
    pub pod_faults: BTreeMap<String, Faults>,
}

impl Network {
    /// Returns a network with a subnet that no route of this machine covers. Pods get addresses of a prefix
    /// of length `prefix` in it. `dual_stack` adds an IPv6 subnet.
    pub(super) fn private(name: String, bridge: String, prefix: u32, dual_stack: bool) -> Result<Self> {
        let routes = fs::read_to_string("/proc/net/route").context("read /proc/net/route")?;
        // Each run begins its search at another place, so that two runs do not race for one subnet.
        let first = std::process::id();
        let free = (0..SUBNETS)
            .map(|step| subnet(first.wrapping_add(step)))
            .find(|start| !is_routed(*start, &routes));
        let free = free.ok_or_else(|| anyhow!("every subnet of 10.231.0.0/16 is in use on this machine"))?;
        let mut subnets = vec![format!("{free}/{prefix}")];
        if dual_stack {
            let [_, _, high, low] = free.octets();
            subnets.push(format!("fd5a:{high:x}{low:02x}::/64"));
        }
        Ok(Self { name, bridge, subnets, keyed: None, has_broker: false })
    }

    /// Returns the directory with a file for each allocated address.
    pub fn store(&self) -> PathBuf {
        match &self.keyed {
            Some(keyed) => keyed.store.clone(),
            None => Path::new(HOST_LOCAL).join(&self.name),
        }
    }

    /// Makes the store of the tests' own plugin, so that it exists before the first address is allocated.
    pub(crate) fn make_store(&self) -> Result<()> {
        let Some(keyed) = &self.keyed else { return Ok(()) };
        fs::create_dir_all(&keyed.store).with_context(|| format!("make {}", keyed.store.display()))
    }

    /// Returns the configuration for CNI.
    pub fn conflist(&self) -> Value {
        let plugins = match &self.keyed {
            Some(keyed) => {
                let range = self.subnets.first().map_or("", String::as_str);
                let mut settings = Settings::new(VERSION, &keyed.store, range, keyed.faults);
                settings.pod_faults.clone_from(&keyed.pod_faults);
                let mut plugin = json!(settings);
                plugin["type"] = json!(keyed::TYPE);
                json!([plugin])
            }
            None if self.has_broker => json!([{ "type": plugin::BROKER }]),
            None => self.bridged(),
        };
        json!({ "cniVersion": VERSION, "name": self.name, "plugins": plugins })
    }

    /// Returns the configurations that the broker gives to bridge and to ptp, for `eth0` and for `net1`. The
    /// second network has a store of its own.
    pub(super) fn brokered(&self, second_store: &Path) -> [Value; 2] {
        let mut first = self.bridged()[0].take();
        first["cniVersion"] = json!(VERSION);
        first["name"] = json!(self.name);
        let second = json!({
            "cniVersion": VERSION,
            "name": format!("{}-second", self.name),
            "type": "ptp",
            "ipam": { "type": "host-local", "subnet": "198.18.0.0/22", "dataDir": second_store },
        });
        [first, second]
    }

    fn bridged(&self) -> Value {
        let ranges: Vec<_> = self.subnets.iter().map(|subnet| json!([{ "subnet": subnet }])).collect();
        let everywhere = |subnet: &String| if subnet.contains(':') { "::/0" } else { "0.0.0.0/0" };
        let routes: Vec<_> = self.subnets.iter().map(|subnet| json!({ "dst": everywhere(subnet) })).collect();
        json!([
            {
                "type": "bridge",
                "bridge": self.bridge,
                "isGateway": true,
                "ipMasq": true,
                "hairpinMode": true,
                "ipam": { "type": "host-local", "ranges": ranges, "routes": routes },
            },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ])
    }
}

/// Room for a thousand pods at once.
pub(super) const PREFIX: u32 = 22;
const SUBNETS: u32 = 64;

/// One of the /22 subnets of 10.231.0.0/16.
fn subnet(number: u32) -> Ipv4Addr {
    let start = u32::from(Ipv4Addr::new(10, 231, 0, 0));
    Ipv4Addr::from(start + ((number % SUBNETS) << (32 - PREFIX)))
}

/// Whether a route other than the default route covers a part of the subnet.
///
/// A line of `/proc/net/route` is `IFACE DESTINATION GATEWAY FLAGS REFCNT USE METRIC MASK …`. The addresses
/// are hexadecimal in the machine's byte order.
fn is_routed(start: Ipv4Addr, routes: &str) -> bool {
    let start = u32::from(start);
    let own = u32::MAX << (32 - PREFIX);
    routes.lines().skip(1).any(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let address = |index: usize| {
            fields.get(index).and_then(|text| u32::from_str_radix(text, 16).ok()).map(u32::from_be)
        };
        let (Some(destination), Some(mask)) = (address(1), address(7)) else { return false };
        let shared = mask & own;
        mask != 0 && destination & shared == start & shared
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTES: &str = "\
Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT
eth0\t00000000\t010000C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t0004E70A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0";

    #[test]
    fn avoids_subnets_that_have_a_route() {
        assert!(!is_routed(subnet(0), ROUTES));
        assert!(is_routed(subnet(1), ROUTES));
        assert_eq!(subnet(1), Ipv4Addr::new(10, 231, 4, 0));
        assert_eq!(subnet(65), subnet(1));
    }

    #[test]
    fn a_dual_stack_network_has_a_range_and_a_route_for_each_family() {
        let network = Network {
            name: "n".to_owned(),
            bridge: "b".to_owned(),
            subnets: vec!["10.231.4.0/22".to_owned(), "fd5a:400::/64".to_owned()],
            keyed: None,
            has_broker: false,
        };
        let ipam = &network.conflist()["plugins"][0]["ipam"];
        assert_eq!(ipam["ranges"], json!([[{ "subnet": "10.231.4.0/22" }], [{ "subnet": "fd5a:400::/64" }]]));
        assert_eq!(ipam["routes"], json!([{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }]));
    }

    #[test]
    fn the_tests_own_plugin_gets_its_store_and_range() {
        let network = Network {
            name: "n".to_owned(),
            bridge: String::new(),
            subnets: vec!["10.231.4.0/22".to_owned()],
            keyed: Some(Keyed {
                store: PathBuf::from("/s"),
                faults: Faults::default(),
                pod_faults: BTreeMap::new(),
            }),
            has_broker: false,
        };
        let conflist = network.conflist();
        let plugin = &conflist["plugins"][0];
        assert_eq!((&plugin["type"], &plugin["store"]), (&json!("keyed"), &json!("/s")));
        assert_eq!((&plugin["range"], &conflist["name"]), (&json!("10.231.4.0/22"), &json!("n")));
        assert_eq!(network.store(), Path::new("/s"));
    }
}
