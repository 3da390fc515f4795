//! A new agent goes on with the state of the last one.

use super::story::{Story, Who, address, ms, run::check_lines};
use crate::{
    engine::Engine,
    model::{
        fact::{Fact, List, Mechanism, Origin, Signal},
        id::NetnsKey,
        time::Timestamp,
    },
};

const SECOND: u64 = 1000;

const ADMIN: Who = Who::new(900, 899, "ip");

/// A story that goes on with what this engine believes.
fn after(engine: &Engine) -> Story {
    let mut story = Story::new();
    story.restored = engine.dump();
    story
}

#[test]
fn a_file_that_hung_for_the_last_agent_hangs_no_more_until_the_new_one_says_so() {
    let hangs = |hangs| Fact::FileHangs {
        path: "/proc/7/cmdline".to_owned(),
        since: Timestamp(SECOND * 1_000_000),
        hangs,
    };
    let mut story = Story::new();
    story.at(11 * SECOND).say(Origin::Agent, hangs(true));
    let (told, engine) = story.judge(20 * SECOND);
    assert!(told.contains("finding.confirmed blind_spot/file/:proc:7:cmdline"), "{told}");
    let mut story = after(&engine);
    story.at(21 * SECOND).say(Origin::Agent, Fact::AgentBegan { unheard_since: None });
    let (told, engine) = story.judge(30 * SECOND);
    assert!(told.contains("finding.closed blind_spot/file/:proc:7:cmdline"), "{told}");
    assert_eq!(engine.hanging(), []);
    // The new agent's reader hangs there as well.
    story.at(32 * SECOND).say(Origin::Agent, hangs(true));
    let (told, engine) = story.judge(40 * SECOND);
    assert!(told.ends_with("finding.confirmed blind_spot/file/:proc:7:cmdline Agent"), "{told}");
    assert_eq!(engine.hanging().len(), 1);
}

fn found(inode: u32) -> Fact {
    Fact::NetnsFound { netns: NetnsKey::new(inode, 0), mounts: vec![format!("/run/netns/{inode}")], vacant: true }
}

/// What an agent is told that goes on at ten seconds. The last one was there until eight.
fn next(engine: &Engine, is_whole: bool) -> Story {
    let mut story = after(engine);
    let unheard_since = is_whole.then(|| ms(8 * SECOND));
    story.at(10 * SECOND).say(Origin::Agent, Fact::AgentBegan { unheard_since });
    story
}

/// The stream and the questions.
fn told(story: &Story) -> String {
    story.run().into_iter().filter(|line| !line.contains(" finding.")).collect::<Vec<_>>().join("\n")
}

/// Hooks see the ends and rtnetlink the addresses, or rtnetlink both. It does not report what it was not asked to watch.
#[test]
fn what_netlink_watched_for_the_last_agent_is_watched_again_and_the_time_between_is_a_gap() {
    for (ends, addresses) in
        [(Mechanism::RawTracepoint, Mechanism::Netlink), (Mechanism::Netlink, Mechanism::Fentry)]
    {
        let mut story = Story::new();
        story.attached(Signal::NetnsDropped, Some(ends)).attached(Signal::NetnsFreed, Some(ends));
        story.attached(Signal::AddressV4, Some(addresses)).attached(Signal::AddressV6, Some(addresses));
        story.at(20).listed(found(41)).listed(found(42)).netns(ADMIN, 43, 0);
        let (_, engine) = story.judge(5 * SECOND);
        let mut story = next(&engine, true);
        // The first of them ended while no agent ran.
        story.at(11 * SECOND).list(List::Netns, true, |story| {
            story.listed(found(42));
        });
        let origin = if addresses == Mechanism::Netlink { Origin::Netlink } else { Origin::Kernel };
        story.at(12 * SECOND).say(origin, Fact::AddressAdded(address(ADMIN, 42, "10.0.0.1/24", "eth0")));
        let by = if origin == Origin::Netlink { " Netlink" } else { "" };
        check_lines(
            &told(&story),
            &format!(
                "
                    ? watch 41
                    ? watch 42
                    ? watch 43 ip
                    10000 gap NetlinkSocket 0 Agent
                    11002 netns.destroyed 41 Listed
                    12000 address.added 10.0.0.1/24 eth0 42{by}
                "
            ),
        );
        // Then nothing was seen in that time, by whatever means.
        assert!(!told(&next(&engine, false)).contains("gap"), "AgentAway tells it");
    }
}

#[test]
fn where_hooks_see_all_a_succession_is_no_gap() {
    let mut story = Story::new();
    for signal in [Signal::NetnsDropped, Signal::AddressV4, Signal::AddressV6] {
        story.attached(signal, Some(Mechanism::Fentry));
    }
    story.at(20).listed(found(41));
    assert_eq!(told(&next(&story.judge(5 * SECOND).1, true)), "");
    // But for the end of a namespace that the hooks have no room for.
    let end_unseen = Fact::NetnsCreated { netns: NetnsKey::new(42, 0), by: ADMIN.task(), end_unseen: true };
    story.at(30).kernel(end_unseen);
    let told = told(&next(&story.judge(5 * SECOND).1, true));
    check_lines(&told, "? watch 42 ip\n10000 gap NetlinkSocket 0 Agent");
}
