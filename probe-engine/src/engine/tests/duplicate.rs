//! Duplicates of sandboxes, containers and addresses.

use probe_common::event::class;

use super::{
    containerd::{self, PAUSE, TOP},
    story::{CONTAINERD, POD_NETNS, SHIM, Story, Who, address, call, id, leaf, ms},
};
use crate::{
    engine::{Engine, world::CheckpointEntry},
    model::{
        fact::{CacheFound, Fact, Observation, Origin, Role},
        finding::Stage,
        id::Subnet,
    },
};

const MAIN: Who = Who::new(693, SHIM, "sleep").within(22, POD_NETNS);
const AGAIN: Who = Who::new(793, SHIM, "sleep").within(23, POD_NETNS);

fn told(story: &Story) -> Vec<String> {
    story.run().into_iter().filter(|line| line.contains(" duplicate_")).collect()
}

/// A second container of the same name starts in the sandbox.
fn restarted(name: &str) -> Story {
    let mut story = Story::new();
    containerd::start(&mut story);
    containerd::run(&mut story);
    story.until(1000).container('d', Role::Container, 'a', name).mkdir(23, &leaf('d'));
    story.exec(AGAIN, TOP, "/bin/sleep 1");
    story
}

#[test]
fn two_containers_of_one_name_are_one_too_many() {
    let mut story = restarted("main");
    story.until(30_000).moment().until(40_000).exit(MAIN, TOP, 0).until(41_000).moment();
    let key = format!("duplicate_container/{}/main", id('a'));
    story.check_findings(&format!(
        "
            6002 finding.opened {key} [default/web-0 a] Agent
            21002 finding.confirmed {key} [default/web-0 a] Agent
            40099 finding.closed {key} [default/web-0 a] Agent
        "
    ));
}

#[test]
fn a_finding_that_was_taken_back_closes_when_nothing_shows_it_any_more() {
    let mut story = restarted("main");
    story.until(30_000).moment();
    let (_, engine) = story.judge(30_000);
    assert_eq!(engine.findings().filter(|it| it.stage == Stage::Confirmed).count(), 1);
    // While no agent ran, the node was replaced: none of the rows was restored.
    let mut next = Engine::new(engine.settings().clone());
    let is_taken_back =
        |it: &CheckpointEntry| matches!(it, CheckpointEntry::Engine(_) | CheckpointEntry::Finding(_));
    engine.dump().into_iter().filter(is_taken_back).for_each(|entry| next.restore(entry));
    next.observe(Observation {
        at: ms(31_000),
        origin: Origin::Agent,
        fact: Fact::Clock { boot_wall_ns: 0 },
    });
    next.advance(ms(40_000));
    assert!(next.findings().all(|it| it.stage == Stage::Closed));
}

#[test]
fn a_restart_another_name_and_a_gap_are_no_duplicates() {
    let mut restart = restarted("main");
    restart.until(3000).exit(MAIN, TOP, 0).until(60_000).moment();
    assert_eq!(told(&restart), [""; 0]);
    let mut sidecar = restarted("proxy");
    sidecar.until(60_000).moment();
    assert_eq!(told(&sidecar), [""; 0]);
    let mut gap = restarted("main");
    gap.until(2000).lost().until(60_000).moment();
    assert_eq!(told(&gap), [""; 0]);
}

const OTHER: &str = "99999999-2222-3333-4444-555555555555";

/// libcni caches the result of an ADD.
fn cached(story: &mut Story, sandbox: char, network: &str, address: &str) {
    story.listed(Fact::CacheFound(CacheFound {
        network: network.to_owned(),
        container: id(sandbox),
        ifname: "eth0".to_owned(),
        addresses: vec![address_of(address)],
        netns: None,
        args: Vec::new(),
    }));
}

fn address_of(text: &str) -> Subnet {
    address(MAIN, 1, text, "eth0").address
}

fn first(story: &mut Story, address: &str) {
    containerd::start(story);
    cached(story.at(95), 'a', "net", address);
}

/// The sandbox of another pod gets its network.
fn next(story: &mut Story, network: &str, address: &str) {
    let mut add = call(901, CONTAINERD, "/usr/lib/cni/bridge", "ADD", "/run/netns/b", 'b');
    let args = format!("K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-1;K8S_POD_UID={OTHER}");
    add.variables.args = Some(args);
    story.until(1000).kernel(Fact::CniCalled(add));
    story.exit(Who::new(901, CONTAINERD, "bridge"), class::CNI, 0);
    cached(story, 'b', network, address);
}

fn second(held: &str, network: &str, address: &str) -> Story {
    let mut story = Story::new();
    first(&mut story, held);
    next(&mut story, network, address);
    story
}

#[test]
fn two_sandboxes_with_one_address_are_one_too_many() {
    let mut story = second("10.88.0.5/24", "net", "10.88.0.5/24");
    story.until(20_000).moment().until(30_000).cni_done(910, "/usr/lib/cni/bridge", "DEL", "/run/netns/a");
    story.exit(PAUSE, TOP | class::PAUSE, 9).until(31_000).moment();
    story.check_findings(
        "
            3502 finding.opened duplicate_address/net/10.88.0.5 [default/web-1 b] Agent
            11002 finding.confirmed duplicate_address/net/10.88.0.5 [default/web-1 b] Agent
            30099 finding.closed duplicate_address/net/10.88.0.5 [default/web-1 b] Agent
        ",
    );
}

/// A DEL of the first sandbox succeeds.
fn deleted(story: &mut Story) {
    story.cni_done(910, "/usr/lib/cni/bridge", "DEL", "/run/netns/a").moment();
}

/// The runtime calls DEL for a sandbox that goes on, before the other one gets the address or while both have
/// it.
#[test]
fn a_sandbox_that_lives_on_after_its_del_has_its_address() {
    let mut before = Story::new();
    first(&mut before, "10.88.0.5/24");
    deleted(before.at(900));
    next(&mut before, "net", "10.88.0.5/24");
    before.until(60_000).moment().exit(PAUSE, TOP | class::PAUSE, 9).until(61_000).moment();
    before.check_findings(
        "
            10900 finding.opened duplicate_address/net/10.88.0.5 [default/web-1 b] Agent
            11002 finding.confirmed duplicate_address/net/10.88.0.5 [default/web-1 b] Agent
            60099 finding.closed duplicate_address/net/10.88.0.5 [default/web-1 b] Agent
        ",
    );
    let mut later = second("10.88.0.5/24", "net", "10.88.0.5/24");
    deleted(later.until(30_000));
    later.until(60_000).unaddress(PAUSE, POD_NETNS, "10.88.0.5/24", "eth0").until(61_000).moment();
    later.check_findings(
        "
            3502 finding.opened duplicate_address/net/10.88.0.5 [default/web-1 b] Agent
            11002 finding.confirmed duplicate_address/net/10.88.0.5 [default/web-1 b] Agent
            60099 finding.closed duplicate_address/net/10.88.0.5 [default/web-1 b] Agent
        ",
    );
}

#[test]
fn another_network_another_address_an_earlier_del_and_a_gap_are_no_duplicates() {
    let cases = [("other", "10.88.0.5/24"), ("net", "10.88.0.6/24")];
    for (network, address) in cases {
        let mut story = second("10.88.0.5/24", network, address);
        story.until(20_000);
        assert_eq!(told(&story), [""; 0], "{network} {address}");
    }
    // The address may be used again as soon as its DEL has begun.
    let mut story = Story::new();
    first(&mut story, "10.88.0.5/24");
    story.at(900).cni(910, CONTAINERD, "/usr/lib/cni/bridge", "DEL", "/run/netns/a");
    next(&mut story, "net", "10.88.0.5/24");
    story.until(8_000).exit(PAUSE, TOP | class::PAUSE, 9).until(20_000);
    assert_eq!(told(&story), [""; 0]);
    let mut story = second("10.88.0.5/24", "net", "10.88.0.5/24");
    story.until(1200).lost().until(20_000);
    assert_eq!(told(&story), [""; 0]);
}

#[test]
fn an_address_of_one_link_alone_can_be_given_twice() {
    for address in ["169.254.1.1/32", "fe80::1/64", "127.0.0.2/8"] {
        let mut story = second(address, "net", address);
        story.until(20_000);
        assert_eq!(told(&story), [""; 0], "{address}");
    }
    let mut story = second("fd00::5/64", "net", "fd00::5/64");
    story.until(20_000);
    assert_eq!(told(&story).len(), 2, "{:?}", told(&story));
}
