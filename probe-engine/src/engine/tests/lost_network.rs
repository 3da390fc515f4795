//! Addresses that running pods lose.

use probe_common::event::class;

use super::{
    containerd::{self, PATH},
    listing,
    story::{self, DAEMON, POD_NETNS, SHIM, Story, Who, id, ms, run::feed},
};
use crate::{
    engine::{Engine, Settings},
    model::{
        fact::{Address, CacheFound, Fact, List, Loss, Origin},
        finding::{Explain as _, Kind, LostNetwork},
        id::{NetnsKey, Subnet},
    },
};

const ADDRESS: &str = "10.88.0.5/24";
const OPENED: &str = "finding.opened lost_network/";
const CONFIRMED: &str = "finding.confirmed lost_network/";
const CLOSED: &str = "finding.closed lost_network/";
/// A program of the node.
const MANAGER: Who = Who::new(900, 1, "NetworkManager");
/// A program in the pod's container.
const VPN: Who = Who::new(901, SHIM, "openvpn").within(22, POD_NETNS);

/// netlink names nobody.
const NOBODY: Who = Who::new(0, 0, "");

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

/// Returns the finding about a pod that loses its address to this process.
fn lost_to(who: Who) -> LostNetwork {
    let mut story = running();
    story.at(5_000).unaddress(who, POD_NETNS, ADDRESS, "eth0").until(20_000).moment();
    let mut engine = Engine::new(Settings::default());
    feed(&mut engine, &story.facts, ms(0));
    let found = engine
        .findings()
        .find_map(|it| if let Kind::LostNetwork(lost) = &it.kind { Some(lost.clone()) } else { None });
    found.expect("a finding")
}

#[test]
fn a_container_that_removes_its_own_address_is_named() {
    let it: LostNetwork = lost_to(VPN);
    assert_eq!(it.by_pod, Some(true));
    assert!(it.summary().ends_with("openvpn[901] in the pod removed it from eth0"), "{}", it.summary());
    assert!(it.cause().starts_with("A program in a container"));
    let repair = it.repair(&[id('a')], &["/run/x.sock".to_owned()]);
    let stop = format!("crictl --runtime-endpoint 'unix:///run/x.sock' stopp {}", id('a'));
    assert_eq!(repair.last(), Some(&stop));
}

#[test]
fn who_removed_an_address_is_told_as_far_as_it_was_seen() {
    let by_node = lost_to(MANAGER);
    assert_eq!(by_node.by_pod, Some(false));
    assert!(by_node.summary().ends_with("NetworkManager[900] removed it from eth0"), "{}", by_node.summary());
    let by_kernel = lost_to(Who::new(902, 2, "kworker/0:1"));
    assert!(by_kernel.cause().starts_with("The kernel itself"), "{}", by_kernel.cause());
    assert!(!by_kernel.summary().contains("kworker"), "{}", by_kernel.summary());
    let by_nobody = lost_to(NOBODY);
    assert_eq!((by_nobody.by.is_none(), by_nobody.by_pod), (true, None));
    assert!(by_nobody.cause().contains("No hook saw"), "{}", by_nobody.cause());
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

/// netlink was asked to watch the namespace, or the agent ran, only after ADD had ended.
#[test]
fn an_address_that_is_heard_late_is_that_of_the_add() {
    for (heard_at, is_lost) in [(20_000, true), (31_000, false)] {
        let mut story = Story::new();
        // A virtual IP of the pod, which a listing in the order of addresses has first.
        let ip = "10.88.0.3/24";
        late(&mut story, |story| {
            let secondary = Address { flags: 1, ..story::address(NOBODY, POD_NETNS, ip, "eth0") };
            story.at(heard_at).listed(Fact::AddressFound(secondary));
            story.listed(Fact::AddressFound(story::address(NOBODY, POD_NETNS, ADDRESS, "eth0")));
        });
        story.at(40_000).unaddress(NOBODY, POD_NETNS, ip, "eth0").until(60_000).moment();
        assert!(!has(&mut story, OPENED), "the pod's own one may go");
        story.at(70_000).unaddress(NOBODY, POD_NETNS, ADDRESS, "eth0").until(90_000).moment();
        assert_eq!(has(&mut story, CONFIRMED), is_lost, "heard at {heard_at}");
    }
}

/// A pod whose addresses nobody hears of while it starts.
fn late(story: &mut Story, hear: impl FnOnce(&mut Story)) {
    let mut told = Story::new();
    containerd::start(&mut told);
    containerd::run(&mut told);
    story.facts = told.facts;
    story.facts.retain(|it| !matches!(it.fact, Fact::AddressAdded(_)));
    hear(story);
}

/// No agent ran when the address went. The next one lists what is there.
#[test]
fn an_address_that_went_unheard_is_missing_in_the_next_listing() {
    let listed = |present: &[&str]| {
        let mut story = running();
        let present = present.iter().map(|it| it.parse().expect("an address")).collect();
        story.at(5_000).listed(Fact::AddressesListed { netns: NetnsKey::new(POD_NETNS, 0), present });
        story.until(20_000).moment();
        story
    };
    assert!(!has(&mut listed(&["127.0.0.1", "10.88.0.5"]), OPENED));
    let mut story = listed(&["127.0.0.1"]);
    assert!(has(&mut story, CONFIRMED));
    assert!(has(&mut story, "address.removed 10.88.0.5/24"));
}

/// The next namespace with this inode has no address yet.
#[test]
fn the_list_of_another_namespace_says_nothing() {
    let mut story = running();
    let netns = NetnsKey::new(POD_NETNS, 99);
    story.at(5_000).listed(Fact::AddressesListed { netns, present: Vec::new() }).until(60_000).moment();
    assert!(!has(&mut story, OPENED));
}

/// Its addresses are listed before the records that say which of them an ADD gave.
#[test]
fn a_pod_from_before_the_agent_loses_its_address() {
    let mut story = Story::new();
    listing::node(story.at(10), true);
    story.list(List::CniCache, true, |story| {
        story.listed(Fact::CacheFound(CacheFound {
            network: "net".to_owned(),
            container: id('a'),
            ifname: "eth0".to_owned(),
            addresses: vec![Subnet { address: "10.88.0.5".parse().expect("an address"), prefix: 24 }],
            netns: Some(PATH.to_owned()),
            args: vec![("K8S_POD_NAME".to_owned(), "web-0".to_owned())],
        }));
    });
    story.at(5_000).unaddress(MANAGER, POD_NETNS, ADDRESS, "eth0").until(20_000).moment();
    assert!(has(&mut story, CONFIRMED));
}

/// The listing of files sees another prefix than the hook, where the plugin `ptp` replaced the route.
#[test]
fn a_listing_that_guesses_the_prefix_hides_no_loss() {
    let mut story = running();
    story.at(3_000).list(List::Addresses, true, |story| {
        let found = story::address(NOBODY, POD_NETNS, "10.88.0.5/32", "eth0");
        story.listed(Fact::AddressFound(found));
    });
    story.at(5_000).unaddress(MANAGER, POD_NETNS, ADDRESS, "eth0").until(20_000).moment();
    assert!(has(&mut story, CONFIRMED));
    assert!(!has(&mut story, "10.88.0.5/32"), "it is no new address");
}

/// The address is moved, and the agent begins between its new copy and the end of the old one.
#[test]
fn a_copy_on_another_interface_that_a_listing_finds_keeps_the_address() {
    let mut story = running();
    let moved = story::address(NOBODY, POD_NETNS, ADDRESS, "k6t-eth0");
    story.at(3_000).listed(Fact::AddressFound(Address { ifindex: 3, ..moved }));
    story.at(5_000).unaddress(NOBODY, POD_NETNS, ADDRESS, "eth0").until(60_000).moment();
    assert!(!has(&mut story, OPENED));
}

/// The listing read the address before it was removed, and is reported after that.
#[test]
fn a_listing_that_is_late_brings_no_address_back() {
    let mut story = running();
    story.at(5_000).unaddress(MANAGER, POD_NETNS, ADDRESS, "eth0").at(5_100).moment();
    story.at(4_900).listed(Fact::AddressFound(story::address(NOBODY, POD_NETNS, ADDRESS, "eth0")));
    story.until(20_000).moment();
    assert!(has(&mut story, CONFIRMED));
}

/// The interface has another name when its address goes.
#[test]
fn a_renamed_interface_hides_no_loss() {
    let mut story = running();
    story.at(5_000).unaddress(MANAGER, POD_NETNS, ADDRESS, "old0").until(20_000).moment();
    assert!(has(&mut story, CONFIRMED));
}

/// The word that the address is back may be lost. The next listing decides.
#[test]
fn nothing_is_confirmed_while_addresses_are_in_doubt() {
    let lost = || {
        let mut story = running();
        story.at(5_000).unaddress(MANAGER, POD_NETNS, ADDRESS, "eth0");
        let fact = Fact::Lost { what: Loss::NetlinkSocket, count: 1, since: None };
        story.at(5_001).say(Origin::Netlink, fact).until(30_000).moment();
        story
    };
    assert!(!has(&mut lost(), OPENED));
    let mut story = lost();
    story.list(List::Addresses, true, |_| {}).until(60_000).moment();
    assert!(has(&mut story, CONFIRMED));
    // No listing of the node is complete while only a file holds some namespace.
    let mut story = lost();
    story.list(List::Addresses, false, |story| {
        story.listed(Fact::AddressFound(story::address(NOBODY, POD_NETNS, "127.0.0.1/8", "lo")));
    });
    story.until(60_000).moment();
    assert!(has(&mut story, CONFIRMED));
    let mut story = lost();
    story.list(List::Addresses, false, |_| {}).until(60_000).moment();
    assert!(!has(&mut story, OPENED), "this namespace was not listed");
}

/// A network manager takes the new interface before the first container runs, or between two runs.
#[test]
fn an_address_that_goes_while_no_container_runs_is_lost() {
    let mut story = Story::new();
    containerd::start(&mut story);
    story.at(90).unaddress(MANAGER, POD_NETNS, ADDRESS, "eth0");
    containerd::run(&mut story);
    story.until(60_000).moment();
    assert!(has(&mut story, CONFIRMED));
    let mut story = Story::new();
    containerd::start(&mut story);
    story.at(90).unaddress(MANAGER, POD_NETNS, ADDRESS, "eth0").until(60_000).moment();
    assert!(!has(&mut story, OPENED), "no container ran yet");
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
    assert!(!has(&mut story, OPENED), "the runtime took it");
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
