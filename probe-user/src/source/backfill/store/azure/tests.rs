//! The state files of Azure CNI, in the forms that its sources show.

use std::{fs, path::Path};

use proptest::prelude::*;

use super::{
    super::reading::{id, read_with, told, write},
    Azure, Memory, Network, StoreKind, StoreRead, endpoints, ipam, vnet,
};
use crate::{
    model::fact::List,
    source::{
        backfill::network::Configured,
        host::{ReadError, skipped::Skipped},
    },
};

const ENDPOINTS: &str = "var/run/azure-cns/azure-endpoints.json";
const VNET: &str = "var/run/azure-vnet.json";
const IPAM: &str = "var/run/azure-vnet-ipam.json";
const QUEUE: &str = "var/run/azure-vnet/deleteIDs";

/// A file of azure-cns: containers with their addresses.
fn cns(all: &[(&str, &str)]) -> String {
    let one = |(container, address): &(&str, &str)| {
        format!(
            r#""{container}":{{"PodName":"cart-0","PodNamespace":"shop","IfnameToIPMap":{{"eth0":{{
            "IPv4":[{{"IP":"{address}","Mask":"////AA=="}}],"IPv6":null,"HostVethName":"azv12","NICType":"InfraNIC"}}}}}}"#
        )
    };
    format!(r#"{{"Endpoints":{{{}}}}}"#, all.iter().map(one).collect::<Vec<_>>().join(","))
}

fn vnet_of(container: &str, address: &str) -> String {
    format!(
        r#"{{"Network":{{"Version":"v1.6","TimeStamp":"2026-08-01T10:00:00Z","ExternalInterfaces":{{"eth0":{{
        "Name":"eth0","Networks":{{"azure":{{"Id":"azure","Endpoints":{{"x-eth0":{{"Id":"x-eth0","IfName":"eth0",
        "IPAddresses":[{{"IP":"{address}","Mask":"////AA=="}}],"ContainerID":"{container}","PODName":"cart-0",
        "PODNameSpace":"shop"}}}}}}}}}},"eth1":{{"Networks":null}}}}}}}}"#
    )
}

/// A configured network, with this plugin and the one that gives out addresses.
fn network(plugin: &str, ipam: Option<&str>) -> Configured {
    let network = Network {
        name: "azure".to_owned(),
        plugins: vec![plugin.to_owned()],
        delegates: Vec::new(),
        ipam: ipam.map(str::to_owned),
        pools: Vec::new(),
    };
    Configured { network, data_dir: None }
}

/// Reads the store of a node whose network is that of pods by azure-cns, and that was booted at the epoch.
fn read(root: &Path, memory: &mut Memory) -> (Option<StoreRead>, Skipped) {
    read_with(&Azure, root, memory, &[network("azure-vnet", Some("azure-cns"))], 0)
}

#[test]
fn each_file_says_which_sandbox_has_an_address() {
    let root = tempfile::tempdir().expect("a folder");
    let mut memory = Memory::default();
    assert!(read(root.path(), &mut memory).0.is_none(), "this is not a node of Azure");
    write(root.path(), VNET, &vnet_of(&id('a'), "10.7.0.9"), 10);
    let (found, _) = read(root.path(), &mut memory);
    let found = found.expect("a store");
    assert_eq!(
        (found.store.kind, found.store.path.as_str()),
        (StoreKind::AzureVnet, "/var/run/azure-vnet.json")
    );
    assert_eq!((told(&found), found.complete), (vec!["10.7.0.9 a \"eth0\" cart-0 10".to_owned()], true));

    // azure-vnet-ipam decides: azure-vnet.json may have an endpoint whose address is free.
    let text = format!(
        r#"{{"IPAM":{{"Version":"v1.6","AddressSpaces":{{"local":{{"Id":"local","Pools":{{"10.7.0.0/24":{{
        "Id":"10.7.0.0/24","Addresses":{{"10.7.0.8":{{"ID":"{}","Addr":"10.7.0.8","InUse":true}},
        "10.7.0.10":{{"ID":"","Addr":"10.7.0.10","InUse":false}},
        "10.7.0.11":{{"ID":"","Addr":"10.7.0.11","InUse":true}}}}}}}}}},"global":{{"Pools":null}}}}}}}}"#,
        id('b')
    );
    write(root.path(), IPAM, &text, 11);
    let (found, _) =
        read_with(&Azure, root.path(), &mut memory, &[network("azure-vnet", Some("azure-vnet-ipam"))], 0);
    let found = found.expect("a store");
    assert_eq!(found.store.kind, StoreKind::AzureVnetIpam);
    assert_eq!(told(&found), ["10.7.0.8 b \"\" - 11", "10.7.0.11 ? - 11"]);

    write(root.path(), ENDPOINTS, &cns(&[(&id('c'), "10.7.0.7"), (&id('d'), "fd00::7")]), 12);
    let (found, _) = read(root.path(), &mut memory);
    let found = found.expect("a store");
    assert_eq!(found.store.kind, StoreKind::AzureCns);
    assert_eq!(told(&found), ["10.7.0.7 c \"eth0\" cart-0 12", "fd00::7 d \"eth0\" cart-0 12"]);
    // A reboot empties the folder.
    fs::remove_dir_all(root.path().join("var/run")).expect("a folder");
    assert!(read(root.path(), &mut memory).0.is_none());
}

/// A node that changes how its network is made keeps the files of before.
#[test]
fn a_file_that_another_setup_left_does_not_count() {
    let cns = network("azure-vnet", Some("azure-cns"));
    let cilium = network("cilium-cni", Some("azure-ipam"));
    let subnet = network("azure-vnet", Some("azure-vnet-ipam"));
    let calico = network("calico", Some("calico-ipam"));
    let multus = network("multus-shim", None);
    let no_ipam = network("azure-vnet", None);
    let blank = r#"{"IPAM":{"AddressSpaces":null}}"#;
    for (vnet_at, endpoints_at, networks, store) in [
        (10, 20, vec![cilium.clone()], Some((StoreKind::AzureCns, 1))),
        (20, 10, vec![cilium.clone()], Some((StoreKind::AzureCns, 1))),
        (20, 10, vec![cns.clone()], Some((StoreKind::AzureVnet, 1))),
        (10, 20, vec![cns.clone()], Some((StoreKind::AzureCns, 1))),
        (20, 10, vec![subnet.clone()], Some((StoreKind::AzureVnetIpam, 0))),
        (20, 10, vec![cilium.clone(), subnet], Some((StoreKind::AzureCns, 1))),
        (20, 10, vec![multus, cilium], Some((StoreKind::AzureCns, 1))),
        (20, 10, vec![calico, cns], None),
        (20, 10, vec![no_ipam], None),
        (20, 10, Vec::new(), None),
    ] {
        let root = tempfile::tempdir().expect("a folder");
        write(root.path(), VNET, &vnet_of(&id('a'), "10.7.0.9"), vnet_at);
        write(root.path(), ENDPOINTS, &self::cns(&[(&id('b'), "10.7.0.7")]), endpoints_at);
        write(root.path(), IPAM, blank, 30);
        let mut memory = Memory::default();
        let (found, _) = read_with(&Azure, root.path(), &mut memory, &networks, 0);
        let found = found.map(|it| (it.store.kind, it.reservations.len()));
        assert_eq!(found, store, "{networks:?}");
        // The configuration is away while it is replaced.
        let (found, _) = read_with(&Azure, root.path(), &mut memory, &[], 0);
        assert_eq!(found.map(|it| (it.store.kind, it.reservations.len())), store, "{networks:?}");
    }
    // azure-cns makes the other file blank when it starts.
    let root = tempfile::tempdir().expect("a folder");
    write(root.path(), ENDPOINTS, &self::cns(&[(&id('b'), "10.7.0.7")]), 10);
    for text in ["", "{}"] {
        write(root.path(), VNET, text, 20);
        let (found, _) = read(root.path(), &mut Memory::default());
        assert_eq!(found.expect("a store").store.kind, StoreKind::AzureCns, "{text}");
    }
}

#[test]
fn what_is_known_stays_when_the_clock_is_set() {
    let root = tempfile::tempdir().expect("a folder");
    let networks = [network("azure-vnet", Some("azure-cns"))];
    let mut memory = Memory::default();
    write(root.path(), VNET, &vnet_of(&id('a'), "10.7.0.9"), 10);
    read_with(&Azure, root.path(), &mut memory, &networks, 0);
    write(root.path(), &format!("{QUEUE}/{}", id('a')), "aaaaaaaa-eth0", 50);
    // The clock is set forward by an hour, and azure-vnet drops the endpoint.
    write(root.path(), VNET, r#"{"Network":{"ExternalInterfaces":null}}"#, 3660);
    memory.clock_set();
    let (found, _) = read_with(&Azure, root.path(), &mut memory, &networks, 3_600_000_000_000);
    let found = found.expect("a store");
    assert_eq!(
        (told(&found), found.complete),
        (vec!["10.7.0.9 a \"eth0\" cart-0 10 queued 0".to_owned()], true)
    );
    // An agent that starts now does not know the address: it is not free.
    let (found, _) = read(root.path(), &mut Memory::default());
    let found = found.expect("a store");
    assert_eq!((found.reservations.len(), found.complete), (0, false));
}

#[test]
fn values_that_are_null_hold_nothing() {
    for (text, parse) in [
        (r#"{"Endpoints":{"a":null}}"#, endpoints as fn(&[u8]) -> Option<Vec<super::Allocation>>),
        (r#"{"Endpoints":{"a":{"IfnameToIPMap":{"eth0":null}}}}"#, endpoints),
        (r#"{"Network":{"ExternalInterfaces":{"eth0":null}}}"#, vnet),
        (r#"{"Network":{"ExternalInterfaces":{"eth0":{"Networks":{"azure":null}}}}}"#, vnet),
        (
            r#"{"Network":{"ExternalInterfaces":{"eth0":{"Networks":{"azure":{"Endpoints":{"x":null}}}}}}}"#,
            vnet,
        ),
        (r#"{"IPAM":{"AddressSpaces":{"local":null}}}"#, ipam),
        (r#"{"IPAM":{"AddressSpaces":{"local":{"Pools":{"p":null}}}}}"#, ipam),
        (r#"{"IPAM":{"AddressSpaces":{"local":{"Pools":{"p":{"Addresses":{"x":null}}}}}}}"#, ipam),
    ] {
        assert_eq!(parse(text.as_bytes()), Some(Vec::new()), "{text}");
    }
}

#[test]
fn an_allocation_is_as_old_as_the_file_in_which_it_was_first_seen() {
    let root = tempfile::tempdir().expect("a folder");
    let mut memory = Memory::default();
    write(root.path(), ENDPOINTS, &cns(&[(&id('a'), "10.7.0.7")]), 10);
    read(root.path(), &mut memory);
    write(root.path(), ENDPOINTS, &cns(&[(&id('a'), "10.7.0.7"), (&id('b'), "10.7.0.8")]), 20);
    let (found, _) = read(root.path(), &mut memory);
    let expected = ["10.7.0.7 a \"eth0\" cart-0 10", "10.7.0.8 b \"eth0\" cart-0 20"];
    assert_eq!(told(&found.expect("a store")), expected);
    // The address was given out again.
    write(root.path(), ENDPOINTS, &cns(&[(&id('c'), "10.7.0.7")]), 30);
    let (found, _) = read(root.path(), &mut memory);
    assert_eq!(told(&found.expect("a store")), ["10.7.0.7 c \"eth0\" cart-0 30"]);
}

#[test]
fn a_release_waits_as_long_as_the_queue_has_its_file() {
    let root = tempfile::tempdir().expect("a folder");
    let mut memory = Memory::default();
    write(root.path(), VNET, &vnet_of(&id('a'), "10.7.0.9"), 10);
    read(root.path(), &mut memory);
    write(root.path(), &format!("{QUEUE}/{}", id('a')), "aaaaaaaa-eth0", 50);
    write(root.path(), &format!("{QUEUE}/..data x"), "", 50);
    let (found, skipped) = read(root.path(), &mut memory);
    let queued = ["10.7.0.9 a \"eth0\" cart-0 10 queued 50"];
    assert_eq!(told(&found.expect("a store")), queued);
    assert_eq!((skipped.count, skipped.partial.len()), (1, 0), "{skipped:?}");
    // azure-vnet has dropped the endpoint: azure-cns still has the address.
    write(root.path(), VNET, r#"{"Network":{"ExternalInterfaces":null}}"#, 51);
    for _ in 0..2 {
        let (found, _) = read(root.path(), &mut memory);
        assert_eq!(told(&found.expect("a store")), queued);
    }
    fs::remove_file(root.path().join(format!("{QUEUE}/{}", id('a')))).expect("a file");
    let (found, _) = read(root.path(), &mut memory);
    assert_eq!(told(&found.expect("a store")), Vec::<String>::new());
}

/// The kubelet makes the file empty where azure-cns is to have it, and azure-cns writes `{}`.
#[test]
fn a_file_that_holds_nothing_yet_is_whole() {
    let root = tempfile::tempdir().expect("a folder");
    for text in ["", "{}"] {
        write(root.path(), VNET, text, 10);
        let (found, skipped) = read(root.path(), &mut Memory::default());
        let found = found.expect("a store");
        assert_eq!((found.reservations.len(), found.complete), (0, true), "{text}");
        assert!(skipped.partial.is_empty(), "{text}");
    }
}

/// azure-cns drops the endpoint when it has handled the release, and may leave the file in the queue.
#[test]
fn what_azure_cns_has_released_does_not_wait() {
    let root = tempfile::tempdir().expect("a folder");
    let mut memory = Memory::default();
    write(root.path(), ENDPOINTS, &cns(&[(&id('a'), "10.7.0.9")]), 10);
    read(root.path(), &mut memory);
    write(root.path(), &format!("{QUEUE}/{}", id('a')), "aaaaaaaa-eth0", 50);
    write(root.path(), ENDPOINTS, &cns(&[]), 51);
    let (found, _) = read(root.path(), &mut memory);
    assert_eq!(told(&found.expect("a store")), Vec::<String>::new());
}

#[test]
fn what_cannot_be_read_whole_is_told() {
    let root = tempfile::tempdir().expect("a folder");
    let whole = cns(&[(&id('a'), "10.7.0.7")]);
    let large = " ".repeat((4 << 20) + 1);
    let deep = format!(r#"{{"Endpoints":{}"#, "{\"a\":".repeat(100_000));
    for (text, why) in [
        (&whole[..whole.len() / 2], ReadError::Malformed),
        ("", ReadError::Malformed),
        ("[]", ReadError::Malformed),
        (&large, ReadError::TooLarge(4 << 20)),
        (&deep, ReadError::Malformed),
    ] {
        write(root.path(), ENDPOINTS, text, 10);
        let (found, skipped) = read(root.path(), &mut Memory::default());
        let found = found.expect("a store");
        assert_eq!((found.reservations.len(), found.complete), (0, false), "{why:?}");
        let (path, told) = skipped.partial.get(&List::Ipam).expect("it is told");
        assert_eq!((path.to_str(), told), (Some("/var/run/azure-cns/azure-endpoints.json"), &why));
    }
    // One address is none. The rest counts.
    write(root.path(), ENDPOINTS, &cns(&[(&id('a'), "10.7.0.7"), (&id('b'), "10.7.0.300")]), 10);
    let (found, _) = read(root.path(), &mut Memory::default());
    let found = found.expect("a store");
    assert_eq!((told(&found).len(), found.complete), (1, false));
    // A hostile name is no sandbox, and its address is in use.
    write(root.path(), ENDPOINTS, &cns(&[("../../etc\\u001b[2J", "10.7.0.7")]), 10);
    let (found, _) = read(root.path(), &mut Memory::default());
    assert_eq!(told(&found.expect("a store")), ["10.7.0.7 ? cart-0 10"]);
    // The queue is no folder.
    write(root.path(), QUEUE, "", 10);
    let (found, skipped) = read(root.path(), &mut Memory::default());
    assert!(!found.expect("a store").complete && skipped.partial.contains_key(&List::Ipam));
}

/// As many as fit into the largest file that is read.
#[test]
fn tens_of_thousands_of_records_are_read() {
    let one = |n: u32| {
        let [_, a, b, c] = n.to_be_bytes();
        format!(r#""{n:x}":{{"Addr":"10.{a}.{b}.{c}","InUse":true}}"#)
    };
    let all: Vec<String> = (0..65_000).map(one).collect();
    let text = format!(
        r#"{{"IPAM":{{"AddressSpaces":{{"l":{{"Pools":{{"p":{{"Addresses":{{{}}}}}}}}}}}}}}}"#,
        all.join(",")
    );
    let root = tempfile::tempdir().expect("a folder");
    write(root.path(), IPAM, &text, 10);
    let networks = [network("azure-vnet", Some("azure-vnet-ipam"))];
    let (found, _) = read_with(&Azure, root.path(), &mut Memory::default(), &networks, 0);
    let found = found.expect("a store");
    assert_eq!((found.reservations.len(), found.complete), (65_000, true));
}

proptest! {
    #[test]
    fn no_bytes_are_too_strange(bytes: Vec<u8>) {
        endpoints(&bytes);
        ipam(&bytes);
        vnet(&bytes);
    }
}
