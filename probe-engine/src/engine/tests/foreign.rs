//! Programs of a container that merely look like CNI. A container can run any number of them.

use std::collections::BTreeSet;

use probe_common::event::class;

use super::{
    containerd::{self, PATH},
    story::{
        CONTAINERD, POD_NETNS, Story, Who, call, id, ms,
        run::{feed, settle},
    },
};
use crate::{
    engine::{Engine, Settings},
    model::fact::{Fact, Observation, Origin},
};

const IN_POD: u32 = class::CNI | class::IN_CONTAINER;

/// A program of the container `c`.
fn inner(pid: u32) -> Who {
    Who::new(pid, 693, "bridge").within(22, POD_NETNS)
}

/// A program of the container `c` that names the sandbox `digit`.
fn inner_call(pid: u32, digit: char) -> Fact {
    let mut it = call(pid, 693, "/usr/lib/cni/bridge", "ADD", PATH, digit);
    (it.task, it.host, it.caller) = (inner(pid).task(), false, None);
    Fact::CniCalled(it)
}

/// A node with one pod, whose events were all reported.
fn node(story: &mut Story) -> Engine {
    containerd::start(story);
    containerd::run(story);
    let mut engine = Engine::new(Settings::default());
    feed(&mut engine, &story.facts, ms(0));
    settle(&mut engine, ms(500));
    story.facts.clear();
    story.at(2000);
    engine
}

#[test]
fn what_only_looks_like_cni_changes_nothing() {
    let mut story = Story::new();
    let mut engine = node(&mut story);
    for pid in 1000..1100 {
        story.say(Origin::Delegated, inner_call(pid, if pid % 2 == 0 { 'a' } else { 'f' }));
        // Each third one kills itself.
        story.exit(inner(pid), IN_POD, if pid % 3 == 0 { 9 } else { 0 });
    }
    // The first program of the container becomes such a program, and another one does so again and again.
    for pid in [693, 693, 2000, 2000, 2000] {
        story.say(Origin::Delegated, inner_call(pid, 'a'));
    }
    for seen in &story.facts {
        engine.observe(seen.clone());
    }
    assert_eq!(settle(&mut engine, ms(2500)), Vec::<String>::new());
    assert_eq!(engine.counts().cni_foreign, 105);
}

/// A daemon in a container makes a part of a call of the node, which may wait in the timeline.
#[test]
fn a_part_of_a_call_of_the_node_counts() {
    for is_applied in [true, false] {
        let mut story = Story::new();
        let mut engine = node(&mut story);
        story.cni(900, CONTAINERD, "/usr/lib/cni/multus-shim", "ADD", PATH);
        engine.observe(story.facts.remove(0));
        if is_applied {
            settle(&mut engine, ms(2000));
        }
        story.say(Origin::Delegated, inner_call(1000, 'a')).exit(inner(1000), IN_POD, 0);
        story.say(Origin::Delegated, inner_call(1001, 'f')).exit(inner(1001), IN_POD, 0);
        let [call, end, other, other_end] = <[Observation; 4]>::try_from(story.facts).expect("four");
        for seen in [call, end, other, other_end] {
            engine.observe(seen);
        }
        let told = settle(&mut engine, ms(4000));
        let calls: BTreeSet<&str> = told
            .iter()
            .filter(|line| line.contains("Delegated"))
            .filter_map(|line| line.split(' ').nth(1))
            .collect();
        assert_eq!(calls, BTreeSet::from(["cni.finished", "cni.started"]), "{told:?}");
    }
}

/// The end of a container is reported, whatever its first program calls itself.
#[test]
fn the_end_of_a_container_is_reported_though_it_looks_like_cni() {
    let mut story = Story::new();
    let mut engine = node(&mut story);
    story.say(Origin::Delegated, inner_call(693, 'a'));
    let top = class::CONTAINER_TOP | IN_POD;
    story.exit(inner(693), top, 0x300);
    for seen in story.facts {
        engine.observe(seen);
    }
    let told = settle(&mut engine, ms(3000));
    assert!(told.iter().any(|line| line.contains("container.exited 3")), "{told:?}");
    assert!(engine.pods().iter().any(|pod| pod.sandboxes.iter().any(|sandbox| sandbox.id == id('a'))));
}
