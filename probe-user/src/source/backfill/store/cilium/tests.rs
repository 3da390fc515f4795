//! The files of Cilium's agent, in the forms that its sources show.

use std::{
    fs,
    path::{Path, PathBuf},
};

use proptest::prelude::*;

use super::{
    super::reading::{id, read_with, told, write},
    Cilium, Configured, Memory, StoreRead, parse, released,
};
use crate::{
    model::fact::{List, Network},
    source::host::{ReadError, skipped::Skipped},
};

const STATE: &str = "var/run/cilium/state";
const QUEUE: &str = "var/run/cilium/deleteQueue";

fn endpoint(container: &str, address: &str, is_external: bool) -> String {
    let datapath = if is_external { r#"{"external-ipam":true}"# } else { "{}" };
    format!(
        r#"{{"ID":812,"ContainerName":"","dockerID":"{container}","IfName":"lxc0a1","IfIndex":14,
        "ContainerIfName":"eth0","IPv6":"","IPv4":"{address}","IPv4IPAMPool":"default","DNSHistory":[{{"a":1}}],
        "K8sPodName":"cart-0","K8sNamespace":"shop","DatapathConfiguration":{datapath}}}"#
    )
}

fn config(number: &str) -> String {
    format!("{STATE}/{number}/ep_config.json")
}

fn read(root: &Path, memory: &mut Memory) -> (Option<StoreRead>, Skipped) {
    read_with(&Cilium, root, memory, &[], 0)
}

fn rows(root: &Path, memory: &mut Memory) -> Vec<String> {
    let (found, skipped) = read(root, memory);
    let found = found.expect("a store");
    assert!(found.complete && skipped.partial.is_empty(), "{skipped:?}");
    told(&found)
}

#[test]
fn an_endpoint_of_a_container_has_its_addresses_and_one_of_the_node_has_none() {
    let root = tempfile::tempdir().expect("a folder");
    let mut memory = Memory::default();
    assert!(read(root.path(), &mut memory).0.is_none(), "this is not a node of Cilium");
    let both = endpoint(&id('a'), "10.8.1.77", false).replace(r#""IPv6":"""#, r#""IPv6":"fd00::77""#);
    write(root.path(), &config("812"), &both, 10);
    // Older agents do not keep the interface.
    let of_old = endpoint(&id('b'), "10.8.1.78", false).replace("ContainerIfName", "Other");
    write(root.path(), &config("813"), &of_old, 11);
    // The host's, the one of Cilium's health check and an ingress' have no container.
    write(root.path(), &config("1"), r#"{"ID":1,"IPv4":"10.8.1.1","DatapathConfiguration":null}"#, 10);
    write(root.path(), &format!("{STATE}/node_config.h"), "", 10);
    write(root.path(), &format!("{STATE}/templates/x/ep_config.json"), "{", 10);
    fs::create_dir_all(root.path().join(STATE).join("814")).expect("a folder that the agent has begun");
    let expected =
        ["10.8.1.77 a \"eth0\" cart-0 10", "fd00::77 a \"eth0\" cart-0 10", "10.8.1.78 b \"\" cart-0 11"];
    assert_eq!(rows(root.path(), &mut memory), expected);
    fs::remove_dir_all(root.path().join("var/run")).expect("a reboot empties the folder");
    assert!(read(root.path(), &mut memory).0.is_none());
}

/// The agent writes a folder beside the endpoint's, then renames both. It does so for all at its start.
#[test]
fn an_endpoint_that_is_regenerated_is_one_and_is_as_old_as_before() {
    let root = tempfile::tempdir().expect("a folder");
    let mut memory = Memory::default();
    let text = endpoint(&id('a'), "10.8.1.77", false);
    write(root.path(), &config("812"), &text, 10);
    let whole = ["10.8.1.77 a \"eth0\" cart-0 10"];
    assert_eq!(rows(root.path(), &mut memory), whole);
    for unfinished in ["812_next", "812_next_fail", "815_next_fail"] {
        write(root.path(), &config(unfinished), &endpoint(&id('c'), "10.8.1.99", false), 50);
    }
    assert_eq!(rows(root.path(), &mut memory), whole);
    let state = root.path().join(STATE);
    fs::rename(state.join("812"), state.join("812_stale")).expect("a folder");
    write(root.path(), &config("812"), &text, 60);
    assert_eq!(rows(root.path(), &mut memory), whole, "both are there");
    fs::remove_dir_all(state.join("812_stale")).expect("a folder");
    assert_eq!(rows(root.path(), &mut memory), whole);
    memory.clock_set();
    assert_eq!(rows(root.path(), &mut memory), whole);
    // The address was given out again.
    write(root.path(), &config("812"), &endpoint(&id('b'), "10.8.1.77", false), 70);
    assert_eq!(rows(root.path(), &mut memory), ["10.8.1.77 b \"eth0\" cart-0 70"]);
}

/// No agent reads `_stale` again. An agent that restores an endpoint renames a `_next` that is left alone.
#[test]
fn a_folder_that_a_killed_agent_left_behind_has_no_address() {
    let root = tempfile::tempdir().expect("a folder");
    write(root.path(), &config("812"), &endpoint(&id('a'), "10.8.1.77", false), 10);
    write(root.path(), &config("813_stale"), &endpoint(&id('b'), "10.8.1.78", false), 10);
    write(root.path(), &config("814_next"), &endpoint(&id('c'), "10.8.1.79", false), 10);
    assert_eq!(rows(root.path(), &mut Memory::default()), ["10.8.1.77 a \"eth0\" cart-0 10"]);
}

#[test]
fn a_release_waits_as_long_as_the_queue_has_its_file() {
    let root = tempfile::tempdir().expect("a folder");
    let mut memory = Memory::default();
    for (number, digit) in [("1", 'a'), ("2", 'b'), ("3", 'c'), ("4", 'd')] {
        write(root.path(), &config(number), &endpoint(&id(digit), &format!("10.8.1.{number}"), false), 10);
    }
    write(root.path(), &format!("{QUEUE}/lockfile"), "", 50);
    write(root.path(), &format!("{QUEUE}/1.delete"), &format!(r#"{{"container-id":"{}"}}"#, id('a')), 50);
    write(root.path(), &format!("{QUEUE}/2.delete"), &format!("container-id:{}", id('b')), 51);
    write(root.path(), &format!("{QUEUE}/3.delete"), &format!("cni-attachment-id:{}:eth0", id('c')), 52);
    write(root.path(), &format!("{QUEUE}/5.delete"), "\u{1b}[2J", 52);
    let expected = [
        "10.8.1.1 a \"eth0\" cart-0 10 queued 50",
        "10.8.1.2 b \"eth0\" cart-0 10 queued 51",
        "10.8.1.3 c \"eth0\" cart-0 10 queued 52",
        "10.8.1.4 d \"eth0\" cart-0 10",
    ];
    assert_eq!(rows(root.path(), &mut memory), expected);
    // The agent has started.
    fs::remove_dir_all(root.path().join(QUEUE)).expect("a folder");
    fs::remove_dir_all(root.path().join(STATE).join("1")).expect("a folder");
    assert_eq!(rows(root.path(), &mut memory).len(), 3);
    // The queue is no folder.
    write(root.path(), QUEUE, "", 10);
    let (found, skipped) = read(root.path(), &mut memory);
    assert!(!found.expect("a store").complete && skipped.partial.contains_key(&List::Ipam));
}

fn network(plugins: &[&str], ipam: Option<&str>) -> Configured {
    let network = Network {
        name: plugins.join("+"),
        plugins: plugins.iter().map(|&it| it.to_owned()).collect(),
        delegates: Vec::new(),
        ipam: ipam.map(str::to_owned),
        pools: Vec::new(),
    };
    Configured { network, data_dir: None }
}

/// The addresses are in the store of the other plugin.
#[test]
fn where_another_plugin_gives_out_the_addresses_there_is_no_store_of_cilium() {
    let root = tempfile::tempdir().expect("a folder");
    let told_of = |networks: &[Configured]| {
        let read = read_with(&Cilium, root.path(), &mut Memory::default(), networks, 0).0;
        read.map(|it| (it.store.network.clone(), told(&it).len()))
    };
    write(root.path(), &config("812"), &endpoint(&id('a'), "10.8.1.77", true), 10);
    write(root.path(), &config("1"), r#"{"ID":1}"#, 10);
    assert_eq!(told_of(&[]), None);
    // A pod from before the change of the network has its address still.
    write(root.path(), &config("813"), &endpoint(&id('b'), "10.8.1.78", false), 10);
    assert_eq!(told_of(&[]), Some((None, 1)));
    assert_eq!(
        told_of(&[network(&["cilium-cni", "portmap"], None)]),
        Some((Some("cilium-cni+portmap".to_owned()), 1))
    );
    assert_eq!(told_of(&[network(&["aws-cni", "cilium-cni"], None)]), None);
    assert_eq!(told_of(&[network(&["cilium-cni"], Some("azure-ipam"))]), None);
    assert_eq!(told_of(&[network(&["multus"], None)]), Some((None, 1)));
    assert_eq!(told_of(&[network(&["bridge"], Some("host-local"))]), None, "Cilium was removed");
}

#[test]
fn what_cannot_be_read_whole_is_told() {
    let root = tempfile::tempdir().expect("a folder");
    let whole = endpoint(&id('a'), "10.8.1.77", false);
    let large = " ".repeat((4 << 20) + 1);
    let deep = format!(r#"{{"DNSHistory":{}"#, "{\"a\":".repeat(100_000));
    let path = PathBuf::from("/var/run/cilium/state/812/ep_config.json");
    for (text, why) in [
        (&whole[..whole.len() / 2], ReadError::Malformed),
        ("", ReadError::Malformed),
        ("[]", ReadError::Malformed),
        (&whole.replace("10.8.1.77", "10.8.1.300"), ReadError::Malformed),
        (&large, ReadError::TooLarge(4 << 20)),
        (&deep, ReadError::Malformed),
    ] {
        write(root.path(), &config("812"), text, 10);
        let (found, skipped) = read(root.path(), &mut Memory::default());
        let found = found.expect("a store");
        assert_eq!((found.reservations.len(), found.complete), (0, false), "{why:?}");
        assert_eq!(skipped.partial.get(&List::Ipam), Some(&(path.clone(), why)));
    }
    // An agent older than 1.16 keeps the endpoint in the header.
    fs::remove_file(root.path().join(config("812"))).expect("a file");
    write(root.path(), &format!("{STATE}/812/ep_config.h"), "/* CILIUM_BASE64_x:e30= */", 10);
    let (found, skipped) = read(root.path(), &mut Memory::default());
    assert!(!found.expect("a store").complete);
    assert_eq!(skipped.partial.get(&List::Ipam), Some(&(path, ReadError::Malformed)));
    // A hostile name is no sandbox, and its address is in use.
    write(root.path(), &config("812"), &endpoint("../../etc\\u001b[2J", "10.8.1.77", false), 10);
    assert_eq!(rows(root.path(), &mut Memory::default()), ["10.8.1.77 ? cart-0 10"]);
    // The folder is a file.
    let root = tempfile::tempdir().expect("a folder");
    write(root.path(), STATE, "", 10);
    let (found, skipped) = read(root.path(), &mut Memory::default());
    assert!(!found.expect("a store").complete && skipped.partial.contains_key(&List::Ipam));
}

/// More endpoints than any node has pods.
#[test]
fn ten_thousand_endpoints_are_read() {
    let root = tempfile::tempdir().expect("a folder");
    for n in 0_u32..10_000 {
        let [_, _, b, c] = n.to_be_bytes();
        let folder = root.path().join(STATE).join(n.to_string());
        fs::create_dir_all(&folder).expect("a folder");
        let text = endpoint(&format!("{n:064x}"), &format!("10.8.{b}.{c}"), false);
        fs::write(folder.join("ep_config.json"), text).expect("a file");
    }
    let (found, _) = read(root.path(), &mut Memory::default());
    let found = found.expect("a store");
    assert_eq!((found.reservations.len(), found.complete), (10_000, true));
}

proptest! {
    #[test]
    fn no_bytes_are_too_strange(bytes: Vec<u8>) {
        parse(&bytes, 0);
        released(&bytes);
    }
}
