//! Reads the checkpoint of ipamd, the daemon of the AWS VPC CNI: one file with all its allocations.
//!
//! The file is below `/run`. Where that is in memory, a reboot loses the allocations from before.

use std::net::IpAddr;

use serde::Deserialize;

use super::{
    super::{Listing, Node},
    Given, Kind, Memory, holder,
};
use crate::{
    model::fact::{Bound, Fact, Reservation, ReservationState, Store, StoreKind, StoreRead},
    source::host::{FILE, ReadError},
};

/// The default of `AWS_VPC_K8S_CNI_BACKING_STORE`, and the same folder where `/var/run` is not a link.
const FOLDERS: [&str; 2] = ["/var/run/aws-node", "/run/aws-node"];
const NAME: &str = "ipam.json";
/// The only version so far.
const VERSION: &str = "vpc-cni-ipam/1";
/// The network and interface that ipamd 1.7 wrote for allocations of an older version.
const MIGRATED: (&str, &str) = ("_migrated-from-cri", "unknown");

pub(super) struct AwsIpamd;

/// The contents of a checkpoint.
#[derive(Clone, Debug)]
pub(super) struct Read {
    network: Option<String>,
    reservations: Vec<Reservation>,
    /// Every allocation has a valid address.
    is_whole: bool,
}

impl Kind for AwsIpamd {
    fn report(&self, given: Given<'_>, memory: &mut Memory, list: &mut Listing<'_>) {
        for folder in FOLDERS {
            let at = list.now();
            let path = format!("{folder}/{NAME}");
            let read = given.node.root.folder(folder).and_then(|folder| {
                memory
                    .aws_ipamd
                    .of(&folder)
                    .read(NAME, FILE, |bytes, _| Some(Read::of(parse(bytes)?, given.node)))
            });
            // This is not a node of AWS, or it was rebooted since.
            if matches!(read, Err(ReadError::Absent)) {
                continue;
            }
            let read = list.take(&path, read);
            if read.as_ref().is_some_and(|read| !read.is_whole) {
                list.skip(&path, ReadError::Malformed);
            }
            let complete = read.as_ref().is_some_and(|read| read.is_whole);
            let (network, reservations) =
                read.map_or_else(Default::default, |it| (it.network, it.reservations));
            let store = Store { kind: StoreKind::AwsIpamd, path, network, bound: Bound::Sandbox };
            list.found(at, Fact::StoreRead(StoreRead { store, reservations, complete }));
            return;
        }
    }
}

impl Read {
    fn of(checkpoint: Checkpoint, node: Node<'_>) -> Self {
        let allocations = checkpoint.allocations.unwrap_or_default();
        let reservations: Vec<_> = allocations.iter().filter_map(|it| it.reservation(node)).collect();
        let is_whole = reservations.len() == allocations.len();
        Self { network: network(&allocations), reservations, is_whole }
    }
}

#[derive(Debug, Deserialize)]
struct Checkpoint {
    version: String,
    allocations: Option<Vec<Allocation>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Allocation {
    network_name: String,
    #[serde(rename = "containerID")]
    container_id: String,
    if_name: String,
    ipv4: String,
    ipv6: String,
    /// Wall clock, ns since the epoch; since ipamd 1.12.
    allocation_timestamp: i64,
}

impl Allocation {
    /// Returns the reservation; `None` if the allocation has no valid address.
    fn reservation(&self, node: Node<'_>) -> Option<Reservation> {
        let address: IpAddr = self.ipv4.parse().or_else(|_none| self.ipv6.parse()).ok()?;
        let ifname = if self.if_name == MIGRATED.1 { "" } else { &self.if_name };
        Some(Reservation {
            address,
            holder: holder(&self.container_id, ifname),
            since: node.boot_time(self.allocation_timestamp),
            in_words: false,
            pod: None,
            state: ReservationState::Held,
        })
    }
}

fn parse(bytes: &[u8]) -> Option<Checkpoint> {
    serde_json::from_slice(bytes).ok().filter(|it: &Checkpoint| it.version == VERSION)
}

/// Returns the network of all allocations, if they have only one.
fn network(allocations: &[Allocation]) -> Option<String> {
    let mut names = allocations.iter().map(|it| &it.network_name).filter(|name| *name != MIGRATED.0);
    let first = names.next()?;
    (!first.is_empty() && names.all(|name| name == first)).then(|| first.clone())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{network, parse};

    #[test]
    fn a_checkpoint_tells_who_holds_what() {
        let text = br#"{"version":"vpc-cni-ipam/1","allocations":[
            {"networkName":"_migrated-from-cri","containerID":"c0","ifName":"unknown","ipv4":"192.168.1.4"},
            {"networkName":"aws-cni","containerID":"c1","ifName":"eth0","ipv4":"192.168.1.5",
             "allocationTimestamp":1700000000000000000,"metadata":{"k8sPodNamespace":"default","k8sPodName":"web-0"}}]}"#;
        let allocations = parse(text).and_then(|it| it.allocations).expect("a checkpoint");
        assert_eq!(network(&allocations).as_deref(), Some("aws-cni"));
        let told: Vec<_> =
            allocations.iter().map(|it| (&*it.container_id, &*it.ipv4, it.allocation_timestamp)).collect();
        assert_eq!(told, [("c0", "192.168.1.4", 0), ("c1", "192.168.1.5", 1_700_000_000_000_000_000)]);
        // Go writes `null` for a list that was never made.
        assert!(parse(br#"{"version":"vpc-cni-ipam/1","allocations":null}"#).is_some());
        for bad in [&b"{}"[..], b"[]", br#"{"version":"vpc-cni-ipam/2","allocations":[]}"#] {
            assert!(parse(bad).is_none());
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes: Vec<u8>) {
            parse(&bytes);
        }
    }
}
