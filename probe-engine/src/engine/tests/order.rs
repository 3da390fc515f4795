//! The order in which changes and verdicts are reported.

use probe_common::event::class;

use super::{
    containerd::PATH,
    story::{
        CONTAINERD, DAEMON, POD_NETNS, Story, Who, address, ms,
        run::{feed, pass, settle, take},
    },
};
use crate::{
    engine::{Engine, Settings},
    model::fact::Fact,
};

const BRIDGE: &str = "/usr/lib/cni/bridge";

/// A call that counts as slow from 10,010 ms on, and whose end is not known yet.
fn slow() -> Engine {
    let mut story = Story::new();
    story.at(10).cni(100, CONTAINERD, BRIDGE, "ADD", PATH);
    let mut engine = Engine::new(Settings::default());
    feed(&mut engine, &story.facts, ms(0));
    pass(&mut engine, ms(10_000));
    take(&mut engine);
    engine
}

fn names(lines: &[String]) -> Vec<String> {
    let told = lines.iter().filter(|line| !line.starts_with('?'));
    told.map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn a_verdict_waits_for_what_happened_before_it() {
    let mut engine = slow();
    engine.advance(ms(10_050));
    assert_eq!(take(&mut engine), [""; 0]);
    let mut story = Story::new();
    story.at(10_005).netns(Who::new(30, 1, "ip"), 77, 9);
    feed(&mut engine, &story.facts, ms(0));
    pass(&mut engine, ms(10_060));
    let told = names(&take(&mut engine));
    assert_eq!(told, ["10005 netns.created", "10010 finding.opened", "10010 finding.confirmed"]);
}

#[test]
fn it_does_not_wait_for_ever_and_what_comes_after_it_is_late() {
    let mut engine = slow();
    engine.advance(ms(10_050));
    let due = engine.deadline().expect("it waits");
    assert_eq!(due, ms(10_110));
    engine.advance(due);
    assert_eq!(names(&take(&mut engine)), ["10010 finding.opened", "10010 finding.confirmed"]);
    let mut story = Story::new();
    story.at(10_005).netns(Who::new(30, 1, "ip"), 77, 9);
    feed(&mut engine, &story.facts, ms(0));
    pass(&mut engine, ms(10_200));
    let told = take(&mut engine);
    assert!(told[0].starts_with("10005 netns.created") && told[0].ends_with(" late"), "{told:?}");
}

/// Records may come one by one, or all at once after a delay. In both cases a verdict depends only on what
/// had happened by its time.
#[test]
fn a_verdict_has_its_place_among_records_that_come_together() {
    let mut engine = slow();
    let mut story = Story::new();
    story.at(12_000).exit(Who::new(100, CONTAINERD, "bridge"), class::CNI, 0);
    feed(&mut engine, &story.facts, ms(0));
    pass(&mut engine, ms(13_000));
    let told = names(&take(&mut engine));
    assert_eq!(told, ["10010 finding.opened", "10010 finding.confirmed", "12000 cni.finished"]);
}

/// No earlier record is on its way.
#[test]
fn an_address_that_is_found_while_nothing_waits_is_known_at_once() {
    let mut story = Story::new();
    story.at(30).listed(Fact::AddressFound(address(DAEMON, POD_NETNS, "10.88.0.5/24", "eth0")));
    let mut engine = Engine::new(Settings::default());
    story.facts.iter().for_each(|seen| engine.observe(seen.clone()));
    let known = engine.world.netns.live(POD_NETNS).map(|row| row.addresses.len());
    assert_eq!(known, Some(1));
}

/// The watch of a namespace began when it had its address already, and the record of the call is on its way.
#[test]
fn an_address_that_is_found_has_its_place_among_records() {
    let mut story = Story::new();
    story.at(10).netns(DAEMON, POD_NETNS, 7);
    story.at(30).listed(Fact::AddressFound(address(DAEMON, POD_NETNS, "10.88.0.5/24", "eth0")));
    story.at(25).cni(100, CONTAINERD, BRIDGE, "ADD", PATH);
    let mut engine = Engine::new(Settings::default());
    story.facts.iter().for_each(|seen| engine.observe(seen.clone()));
    let told = settle(&mut engine, ms(40));
    let told: Vec<_> = told.iter().filter(|line| !line.starts_with('?')).collect();
    assert_eq!(
        told,
        [
            "10 netns.created 4026532177 [default/web-0 a]",
            "25 pod.first_seen [default/web-0]",
            "25 sandbox.created [default/web-0 a]",
            "25 cni.started ADD bridge [default/web-0 a]",
            "30 address.added 10.88.0.5/24 eth0 4026532177 [default/web-0 a] Listed",
        ]
    );
}
