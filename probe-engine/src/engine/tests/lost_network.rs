//! Addresses that running pods lose.

use probe_common::event::class;

use super::{
    containerd::{self, PATH},
    story::{DAEMON, POD_NETNS, SHIM, Story, Who, id},
};
use crate::model::finding::{Explain as _, LostNetwork};

const ADDRESS: &str = "10.88.0.5/24";
const OPENED: &str = "finding.opened lost_network/";
const CONFIRMED: &str = "finding.confirmed lost_network/";
const CLOSED: &str = "finding.closed lost_network/";
/// A program of the node.
const MANAGER: Who = Who::new(900, 1, "NetworkManager");
/// A program in the pod's container.
const VPN: Who = Who::new(901, SHIM, "openvpn").within(22, POD_NETNS);

/// A pod whose container runs.
fn running() -> Story {
    let mut story = Story::new();
    containerd::start(&mut story);
    containerd::run(&mut story);
    story
}

/// Whether an event of this form was reported.
fn has(story: &mut Story, form: &str) -> bool {
    story.run().iter().any(|line| line.contains(form))
}

#[test]
fn an_address_that_a_program_of_the_node_removes_is_lost() {
    let mut story = running();
    story.at(5_000).unaddress(MANAGER, POD_NETNS, ADDRESS, "eth0").until(20_000).moment();
    assert!(has(&mut story, CONFIRMED));
    let mut story = running();
    story.at(5_000).unaddress(MANAGER, POD_NETNS, ADDRESS, "eth0").until(14_000).moment();
    assert!(!has(&mut story, OPENED), "it may come back");
}

#[test]
fn the_finding_closes_when_the_address_is_back_or_the_sandbox_stops() {
    for ifname in ["eth0", "k6t-eth0"] {
        let mut story = running();
        story.at(5_000).unaddress(MANAGER, POD_NETNS, ADDRESS, "eth0").until(20_000).moment();
        story.at(30_000).address(MANAGER, POD_NETNS, ADDRESS, ifname).until(31_000).moment();
        assert!(has(&mut story, CLOSED), "{ifname}");
    }
    let mut story = running();
    story.at(5_000).unaddress(MANAGER, POD_NETNS, ADDRESS, "eth0").until(20_000).moment();
    story.at(30_000).cni_done(784, "/usr/lib/cni/bridge", "DEL", PATH).until(31_000).moment();
    assert!(has(&mut story, CLOSED));
}

#[test]
fn a_container_that_removes_its_own_address_is_named() {
    let mut story = running();
    story.at(5_000).unaddress(VPN, POD_NETNS, ADDRESS, "eth0").until(20_000).moment();
    assert!(has(&mut story, CONFIRMED));
    let it = LostNetwork {
        ifname: "eth0".to_owned(),
        addresses: vec!["10.88.0.5".parse().expect("an address")],
        network: None,
        plugin: Some("bridge".to_owned()),
        by: None,
        by_pod: true,
    };
    assert!(it.cause().starts_with("A program in a container"));
    let repair = it.repair(&[id('a')], &["/run/x.sock".to_owned()]);
    let stop = format!("crictl --runtime-endpoint 'unix:///run/x.sock' stopp {}", id('a'));
    assert_eq!(repair.last(), Some(&stop));
}

#[test]
fn what_comes_back_or_moves_is_not_lost() {
    for ifname in ["eth0", "k6t-eth0"] {
        let mut story = running();
        story.at(5_000).unaddress(MANAGER, POD_NETNS, ADDRESS, "eth0");
        story.at(9_000).address(MANAGER, POD_NETNS, ADDRESS, ifname).until(60_000).moment();
        assert!(!has(&mut story, OPENED), "{ifname}");
    }
}

/// The prefix of an address changes: the new one comes before the old one goes.
#[test]
fn an_address_is_lost_with_its_last_copy() {
    let mut story = running();
    story.at(5_000).address(MANAGER, POD_NETNS, "10.88.0.5/32", "eth0");
    story.unaddress(MANAGER, POD_NETNS, ADDRESS, "eth0").until(20_000).moment();
    assert!(!has(&mut story, OPENED));
    let mut story = running();
    story.at(5_000).address(MANAGER, POD_NETNS, "10.88.0.5/32", "eth0");
    story.unaddress(MANAGER, POD_NETNS, ADDRESS, "eth0");
    story.at(30_000).unaddress(MANAGER, POD_NETNS, "10.88.0.5/32", "eth0").until(45_000).moment();
    assert!(story.run().iter().any(|line| line.starts_with("400") && line.contains(CONFIRMED)));
}

/// Multus adds the interface, and takes it away again from a running pod.
#[test]
fn an_interface_of_another_plugin_may_go() {
    let other = "10.99.0.5/24";
    let mut story = Story::new();
    containerd::start(&mut story);
    story.at(90).cni(700, 586, "/usr/lib/cni/macvlan", "ADD", PATH);
    story.address(Who::new(700, 586, "macvlan"), POD_NETNS, other, "net1");
    story.exit(Who::new(700, 586, "macvlan"), class::CNI, 0);
    containerd::run(&mut story);
    story.at(5_000).unaddress(MANAGER, POD_NETNS, other, "net1").until(20_000).moment();
    assert!(!has(&mut story, OPENED));
}

#[test]
fn what_a_stop_or_a_start_takes_is_not_lost() {
    let mut story = running();
    containerd::end(&mut story);
    story.until(60_000).moment();
    assert!(!has(&mut story, OPENED), "the pod ended");
    // gVisor takes the addresses over before the first container runs.
    let mut story = Story::new();
    containerd::start(&mut story);
    story.at(90).unaddress(DAEMON, POD_NETNS, ADDRESS, "eth0");
    containerd::run(&mut story);
    story.until(60_000).moment();
    assert!(!has(&mut story, OPENED), "the pod started");
    // A DEL that has begun, and hangs.
    let mut story = running();
    story.at(5_000).cni(784, 500, "/usr/lib/cni/bridge", "DEL", PATH);
    story.unaddress(Who::new(784, 500, "bridge"), POD_NETNS, ADDRESS, "eth0").until(60_000).moment();
    assert!(!has(&mut story, OPENED), "a DEL took it");
    // The record of the DEL may be among those that were lost.
    let mut story = running();
    story.at(4_000).lost();
    story.at(5_000).unaddress(MANAGER, POD_NETNS, ADDRESS, "eth0").until(60_000).moment();
    assert!(!has(&mut story, OPENED), "records were lost");
}

#[test]
fn other_addresses_of_a_pod_are_its_own() {
    let mut story = running();
    story.at(4_000).address(VPN, POD_NETNS, "10.9.9.9/32", "eth0");
    story.at(5_000).unaddress(VPN, POD_NETNS, "10.9.9.9/32", "eth0").until(60_000).moment();
    assert!(!has(&mut story, OPENED));
}
