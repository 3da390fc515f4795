//! The addresses and interface names of one namespace that were already reported.
//!
//! The kernel notifies again when an address's lifetime or state changes, and a dump repeats earlier
//! notifications. Each address is reported once.
//!
//! **Invariant:** the table is bounded, because a container can add addresses and interfaces without end.

use std::{collections::HashMap, time::Duration};

use crate::model::{id::Subnet, time::Timestamp};

/// The most addresses of a namespace that are remembered. Beyond that each notification is reported.
const MAX_ENTRIES: usize = 1024;

/// How long an interface's name is cached: the kernel does not report a rename here.
const NAME_CACHE_TIME: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct ReportedAddresses {
    /// The name of the interface, by its index and the address.
    addresses: HashMap<(u32, Subnet), String>,
    names: HashMap<u32, (Timestamp, String)>,
}

impl ReportedAddresses {
    pub(super) fn has(&self, index: u32, subnet: Subnet) -> bool {
        self.addresses.contains_key(&(index, subnet))
    }

    pub(super) fn add(&mut self, index: u32, subnet: Subnet, ifname: String) {
        if self.addresses.len() < MAX_ENTRIES {
            self.addresses.insert((index, subnet), ifname);
        }
    }

    /// Forgets an address. Returns the name of its interface if the address was known.
    pub(super) fn remove(&mut self, index: u32, subnet: Subnet) -> Option<String> {
        self.addresses.remove(&(index, subnet))
    }

    /// Keeps the addresses for which `still` is true.
    pub(super) fn retain(&mut self, still: impl Fn(u32, Subnet) -> bool) {
        self.addresses.retain(|(index, subnet), _| still(*index, *subnet));
    }

    /// Returns the interface's name, if it was read a moment ago.
    pub(super) fn name(&self, index: u32, now: Timestamp) -> Option<&str> {
        let (asked, name) = self.names.get(&index)?;
        (now.since(*asked) < NAME_CACHE_TIME).then_some(name.as_str())
    }

    pub(super) fn set_name(&mut self, index: u32, now: Timestamp, name: &str) {
        if self.names.len() >= MAX_ENTRIES {
            self.names.clear();
        }
        self.names.insert(index, (now, name.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{MAX_ENTRIES, ReportedAddresses, Subnet, Timestamp};

    fn subnet(n: usize) -> Subnet {
        let n = u32::try_from(n).expect("few");
        Subnet { address: IpAddr::from(n.to_be_bytes()), prefix: 24 }
    }

    #[test]
    fn an_address_is_known_until_removed_and_on_its_interface_only() {
        let mut known = ReportedAddresses::default();
        known.add(2, subnet(1), "eth0".to_owned());
        assert!(known.has(2, subnet(1)) && !known.has(3, subnet(1)));
        assert_eq!(known.remove(2, subnet(1)), Some("eth0".to_owned()));
        assert_eq!(known.remove(2, subnet(1)), None);
    }

    #[test]
    fn a_name_is_asked_for_again_after_a_second() {
        let mut known = ReportedAddresses::default();
        known.set_name(2, Timestamp(0), "eth0");
        assert_eq!(known.name(2, Timestamp(999_999_999)), Some("eth0"));
        assert_eq!(known.name(2, Timestamp(1_000_000_000)), None);
    }

    #[test]
    fn no_number_of_addresses_and_interfaces_takes_more_room() {
        let mut known = ReportedAddresses::default();
        for n in 0..2 * MAX_ENTRIES {
            known.add(2, subnet(n), String::new());
            known.set_name(u32::try_from(n).expect("few"), Timestamp(0), "");
        }
        assert!(known.addresses.len() <= MAX_ENTRIES && known.names.len() <= MAX_ENTRIES);
    }
}
