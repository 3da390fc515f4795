//! An agent that is held up for a while, where netlink alone reports addresses: its process was stopped, had
//! no CPU time, or waited for the kernel.

use std::{iter, time::Duration};

use super::story::{DAEMON, Story, Who, leaf, ms};
use crate::{
    engine::{Engine, Settings},
    model::{
        change::{Change, ChangeKind, Output, Question},
        fact::{Fact, Loss, Mechanism, Origin, Signal},
        id::NetnsKey,
        time::Timestamp,
    },
};

/// A node whose addresses are reported by `addresses`, and the rest by hooks.
fn node(addresses: Mechanism) -> Story {
    let mut story = Story::new();
    for signal in [Signal::NetnsCreated, Signal::NetnsDropped, Signal::NetnsFreed] {
        story.attached(signal, Some(Mechanism::RawTracepoint));
    }
    story.attached(Signal::AddressV4, Some(addresses)).attached(Signal::AddressV6, Some(addresses));
    story
}

/// The records until then are read only now.
fn read(story: &mut Story, at: u64) -> &mut Story {
    story.at(at).say(Origin::Agent, Fact::Watermark)
}

/// Netlink did not find the namespace that was made at that time.
fn unwatched(story: &mut Story, inode: u32, made_at: u64) -> &mut Story {
    let netns = NetnsKey::new(inode, 0);
    story.say(Origin::Netlink, Fact::NetnsUnwatched { netns, unheard_since: Some(ms(made_at)) })
}

fn outputs(story: &Story) -> Vec<Output> {
    let mut engine = Engine::new(Settings::default());
    story.facts.iter().cloned().for_each(|seen| engine.observe(seen));
    iter::from_fn(|| engine.poll()).collect()
}

/// Returns from when to when nobody heard netlink, in milliseconds.
fn gaps(story: &Story) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    for output in outputs(story) {
        if let Output::Change(Change { at, what: ChangeKind::Gap { what, count, lasted }, .. }) = output {
            assert_eq!((what, count), (Loss::NetlinkSocket, 0));
            let since = Timestamp(at.0 - u64::try_from(lasted.expect("a span").as_nanos()).expect("short"));
            gaps.push((since.0 / 1_000_000, at.0 / 1_000_000));
        }
    }
    gaps
}

/// The times for which the requests to watch say that nobody heard the addresses.
fn unheard_since(story: &Story) -> Vec<Option<Timestamp>> {
    let mut all = Vec::new();
    for output in outputs(story) {
        if let Output::Question(Question::Watch { unheard_since, .. }) = output {
            all.push(unheard_since);
        }
    }
    all
}

/// The agent runs again at 9000. Pods 41 and 42 came and went, and 43 has the inode of 41.
fn paused(addresses: Mechanism) -> Story {
    let mut story = node(addresses);
    story.at(2000).netns(DAEMON, 41, 0).at(3000).netns(DAEMON, 42, 0);
    story.at(5000).dropped(41, 0).freed(41).at(6000).dropped(42, 0).freed(42);
    story.at(7000).netns(DAEMON, 41, 0);
    read(&mut story, 9000);
    story
}

#[test]
fn pods_that_came_and_went_while_the_agent_was_held_up_are_one_gap() {
    let mut story = paused(Mechanism::Netlink);
    assert_eq!(unheard_since(&story), [Some(ms(2000)), Some(ms(3000)), Some(ms(7000))]);
    unwatched(&mut story, 41, 2000);
    unwatched(&mut story, 42, 3000);
    assert_eq!(gaps(&story), [(2000, 9001)]);
    // An answer that comes late is about the same time. One about a later time is not.
    unwatched(story.at(20_000), 42, 3000);
    assert_eq!(gaps(&story), [(2000, 9001)]);
    read(story.at(21_000).netns(DAEMON, 44, 0).at(24_000).dropped(44, 0), 27_000);
    unwatched(&mut story, 44, 21_000);
    assert_eq!(gaps(&story), [(2000, 9001), (21_000, 27_001)]);
}

/// The row is forgotten as soon as the records are read.
#[test]
fn a_pod_that_came_and_went_early_in_a_long_pause_is_a_gap() {
    let mut story = node(Mechanism::Netlink);
    story.at(2000).netns(DAEMON, 41, 0).at(5000).dropped(41, 0).freed(41);
    read(&mut story, 300_000);
    unwatched(&mut story, 41, 2000);
    assert_eq!(gaps(&story), [(2000, 300_001)]);
}

/// The answer of netlink comes before the record of the end.
#[test]
fn an_answer_that_overtakes_the_end_of_its_namespace_is_a_gap_then() {
    let mut story = node(Mechanism::Netlink);
    read(story.at(2000).netns(DAEMON, 41, 0), 9000);
    unwatched(&mut story, 41, 2000);
    assert_eq!(gaps(&story), [], "it may live");
    for (end, expected) in [(5000, vec![(2000, 9001)]), (20_000, Vec::new())] {
        let mut story = node(Mechanism::Netlink);
        read(story.at(2000).netns(DAEMON, 41, 0), 9000);
        unwatched(&mut story, 41, 2000);
        read(story.at(end).dropped(41, 0), 30_000);
        assert_eq!(gaps(&story), expected, "it ended at {end}");
    }
}

/// The agent is held up in the same way, and has missed nothing for sure: it finds what still lives, a hook
/// reports the addresses, or the node was suspended.
#[test]
fn an_agent_that_was_held_up_and_missed_nothing_reports_no_gap() {
    let mut story = paused(Mechanism::Netlink);
    unwatched(&mut story, 41, 7000);
    assert_eq!(gaps(&story), [], "it lives");
    let mut story = paused(Mechanism::RawTracepoint);
    unwatched(&mut story, 41, 2000);
    assert_eq!(gaps(&story), [], "a hook saw its addresses");
    let mut story = paused(Mechanism::Netlink);
    story.say(Origin::Agent, Fact::Resumed { slept: Duration::from_secs(6) });
    unwatched(&mut story, 41, 2000);
    assert_eq!(gaps(&story), [], "nothing ran meanwhile");
}

/// No search is quick enough for a namespace that ends at once. One that a container makes is watched only
/// after a moment, and one that could not be watched is asked for again: neither shows that the agent is
/// late.
#[test]
fn an_agent_that_keeps_up_reports_no_gap_for_namespaces_that_hardly_lived() {
    let mut story = node(Mechanism::Netlink);
    read(story.at(2000).netns(DAEMON, 41, 0).at(2200).dropped(41, 0), 2300);
    unwatched(story.at(2900), 41, 2000);
    assert_eq!(gaps(&story), []);
    let mut story = node(Mechanism::Netlink);
    story.at(5).mkdir(20, &leaf('a'));
    story.at(2000).netns(Who::new(902, 901, "sh").within(20, 40), 41, 0);
    read(&mut story, 2100);
    read(&mut story, 4000);
    assert_eq!(unheard_since(&story), [None]);
    let mut story = node(Mechanism::Netlink);
    read(story.at(2000).netns(DAEMON, 41, 0), 2100);
    unwatched(&mut story, 41, 2000);
    read(&mut story, 4000);
    assert_eq!(unheard_since(&story), [Some(ms(2000)), None]);
}
