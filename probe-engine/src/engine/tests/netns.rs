//! The lives of network namespaces, whose inode numbers are reused at once.

use std::time::Duration;

use super::story::{CONTAINERD, DAEMON, Story, UID, Who};
use crate::{
    engine::{Engine, Settings, timer::Name, world::CheckpointEntry},
    model::{
        fact::{Fact, List, Loss, Mechanism, Observation, Origin, Signal, Task},
        id::NetnsKey,
        time::Timestamp,
    },
};

const ADMIN: Who = Who::new(900, 899, "ip");
const WORKER: Who = Who::new(3, 2, "kworker/u4:1");
const BRIDGE: &str = "/usr/lib/cni/bridge";

/// A listing finds a namespace that is bound to this file.
fn found_at(inode: u32, path: &str) -> Fact {
    Fact::NetnsFound { netns: NetnsKey::new(inode, 0), mounts: vec![path.to_owned()], vacant: false }
}

/// How often netlink was asked to watch a namespace whose inode begins with this.
fn asked_in(told: &[String], inode: &str) -> usize {
    told.iter().filter(|line| line.starts_with(&format!("? watch {inode}"))).count()
}

#[test]
fn each_life_of_an_inode_begins_and_ends_once() {
    for cookies in [[0, 0, 0], [1, 2, 3]] {
        let mut story = Story::new();
        for cookie in cookies {
            story.netns(ADMIN, 41, cookie);
            // The kernel can drop the last reference in two places.
            story.dropped(41, cookie).dropped(41, cookie).freed(41).freed(41);
        }
        story.check(
            "
            1 netns.created 41
            2 netns.destroyed 41
            4 netns.freed 41
            6 netns.created 41
            7 netns.destroyed 41
            9 netns.freed 41
            11 netns.created 41
            12 netns.destroyed 41
            14 netns.freed 41
        ",
        );
    }
}

#[test]
fn a_number_is_used_again_before_its_end_is_reported() {
    let mut story = Story::new();
    story.netns(ADMIN, 41, 0).netns(ADMIN, 41, 0).dropped(41, 0).freed(41);
    story.check(
        "
            1 netns.created 41
            2 netns.destroyed 41
            2 netns.created 41
            3 netns.destroyed 41
            4 netns.freed 41
        ",
    );
}

/// Two CPUs that drop the last two references at once may both find that another is left.
#[test]
fn what_is_freed_was_dropped() {
    let mut story = Story::new();
    story.netns(ADMIN, 41, 5).freed(41);
    story.freed(42);
    story.check(
        "
            1 netns.created 41
            2 netns.destroyed 41
            2 netns.freed 41
        ",
    );
}

#[test]
fn one_from_before_us_ends_too() {
    let mut story = Story::new();
    story.dropped(41, 5).freed(41);
    story.check(
        "
            1 netns.destroyed 41
            2 netns.freed 41
        ",
    );
}

/// For a pod from before the agent, only the path of its cgroup is known.
#[test]
fn what_is_left_of_an_unknown_pod_has_its_uid() {
    let mut story = Story::new();
    story.rmdir(20, &format!("/kubepods/besteffort/pod{UID}")).rmdir(19, "/system.slice/x.service");
    story.check(
        "
            1 cgroup.removed pod11111 [unnamed]
            2 cgroup.removed x.servic
        ",
    );
}

#[test]
fn an_address_is_reported_once_and_goes_with_its_namespace() {
    let mut story = Story::new();
    story.netns(ADMIN, 41, 5);
    story.address(ADMIN, 41, "fd00::1/64", "eth0").address(WORKER, 41, "fd00::1/64", "eth0");
    story.address(ADMIN, 41, "10.0.0.1/24", "eth0").unaddress(ADMIN, 41, "10.0.0.1/24", "eth0");
    story.unaddress(ADMIN, 41, "10.0.0.1/24", "eth0");
    story.dropped(41, 5).unaddress(WORKER, 41, "fd00::1/64", "eth0").freed(41);
    story.check(
        "
            1 netns.created 41
            2 address.added fd00::1/64 eth0 41
            4 address.added 10.0.0.1/24 eth0 41
            5 address.removed 10.0.0.1/24 eth0 41
            7 netns.destroyed 41
            8 address.removed fd00::1/64 eth0 41
            9 netns.freed 41
        ",
    );
}

#[test]
fn where_netlink_reports_the_end_each_namespace_is_watched() {
    let mut story = Story::new();
    story.at(1).listed(Fact::NetnsFound { netns: NetnsKey::new(40, 0), mounts: Vec::new(), vacant: false });
    story.attached(Signal::NetnsDropped, Some(Mechanism::Netlink)).attached(Signal::NetnsFreed, None);
    story.at(10).netns(ADMIN, 41, 0);
    story
        .at(20)
        .say(Origin::Netlink, Fact::AddressAdded(super::story::address(ADMIN, 41, "10.0.0.1/24", "eth0")));
    story.say(Origin::Netlink, Fact::NetnsDropped { netns: NetnsKey::new(41, 0), by: Task::default() });
    story.check(
        "
            ? watch 40 
            ? watch 41 ip
            10 netns.created 41
            20 address.added 10.0.0.1/24 eth0 41 Netlink
            21 netns.destroyed 41 Netlink
            21 address.removed 10.0.0.1/24 eth0 41 Netlink
            101 finding.opened blind_spot/signal/netns_freed Agent
            101 finding.confirmed blind_spot/signal/netns_freed Agent
        ",
    );
}

/// The lowest tier: hooks report namespaces. Netlink reports their addresses and, out of order, their ends.
#[test]
fn where_a_hook_sees_the_end_too_it_is_reported_in_its_order() {
    let mut story = Story::new();
    story.attached(Signal::NetnsDropped, Some(Mechanism::RawTracepoint));
    story.attached(Signal::AddressV4, Some(Mechanism::Netlink));
    story.at(10).netns(ADMIN, 41, 0);
    story.say(Origin::Netlink, Fact::AddressAdded(super::story::address(ADMIN, 41, "10.0.0.1/24", "eth0")));
    story
        .at(30)
        .say(Origin::Netlink, Fact::NetnsDropped { netns: NetnsKey::new(41, 0), by: Task::default() });
    story.at(40).dropped(41, 0);
    story.check(
        "
            ? watch 41 ip
            10 netns.created 41
            11 address.added 10.0.0.1/24 eth0 41 Netlink
            40 netns.destroyed 41
            40 address.removed 10.0.0.1/24 eth0 41
        ",
    );
}

/// The lowest tier, with netlink far behind in a storm.
fn behind() -> Story {
    let mut story = Story::new();
    for signal in [Signal::NetnsCreated, Signal::NetnsDropped, Signal::NetnsFreed] {
        story.attached(signal, Some(Mechanism::RawTracepoint));
    }
    story.attached(Signal::AddressV4, Some(Mechanism::Netlink));
    story
}

fn unwatched(inode: u32) -> Fact {
    Fact::NetnsUnwatched { netns: NetnsKey::new(inode, 0), unheard_since: None }
}

fn unnamed(inode: u32, cookie: u64) -> Fact {
    Fact::NetnsDropped { netns: NetnsKey::new(inode, cookie), by: Task::default() }
}

/// On a cluster netlink's report came 71 s late in a storm. The namespace was not known any more.
#[test]
fn a_word_of_netlink_that_comes_when_all_is_over_begins_nothing() {
    for cookie in [0, 5] {
        let mut story = behind();
        story.at(10).netns(ADMIN, 41, cookie).at(20).dropped(41, cookie).freed(41);
        story.until(91_000).say(Origin::Netlink, unnamed(41, cookie)).until(200_000).moment();
        story.check(
            "
            ? watch 41 ip
            10 netns.created 41
            20 netns.destroyed 41
            21 netns.freed 41
        ",
        );
    }
}

/// A namespace that a container makes is watched only if it lives for a moment.
#[test]
fn of_what_a_container_makes_only_what_stays_is_watched() {
    let mut story = behind();
    story.at(5).mkdir(20, &super::story::leaf('a'));
    let inside = Who::new(902, 901, "sh").within(20, 40);
    for round in 0..500_u32 {
        story.at(100 + 2 * u64::from(round)).netns(inside, 1000 + round, 0);
        if round % 5 > 0 {
            story.dropped(1000 + round, 0);
        }
    }
    // A namespace of the node itself does not wait behind them.
    story.at(1200).netns(ADMIN, 41, 0);
    let asked = |until| {
        let mut story = story.clone();
        let told = story.until(until).moment().run();
        told.into_iter().filter(|line| line.starts_with("? watch")).collect::<Vec<_>>()
    };
    let first = asked(1300);
    assert!(first.iter().any(|line| line == "? watch 41 ip") && first.len() < 70, "{first:?}");
    // A hundred live on. Only a limited number is watched in each second.
    let all = asked(10_000);
    let stays = |line: &String| ["0 sh", "5 sh"].iter().any(|end| line.ends_with(end));
    assert_eq!((all.len(), all.iter().filter(|line| stays(line)).count()), (101, 100));
}

/// There was no room for the request, or nothing that holds the namespace was found yet.
#[test]
fn what_netlink_could_not_watch_is_asked_for_again_each_time_later_and_not_for_ever() {
    let netns = NetnsKey::new(41, 0);
    let failed = |story: &mut Story| {
        story.say(Origin::Netlink, Fact::NetnsUnwatched { netns, unheard_since: None });
    };
    let asked = |story: &Story| {
        let told = story.clone().until(200_000).moment().run();
        told.into_iter().filter(|line| line.starts_with("? watch")).count()
    };
    let mut story = behind();
    story.at(10).netns(ADMIN, 41, 0);
    // It lasts longer each time, and other questions about it do not shorten that.
    for (tries, at) in [(1, 1000), (2, 2100), (3, 4200), (4, 8300), (5, 16_400), (6, 32_500)] {
        assert_eq!(asked(&story), tries, "before {at}");
        story.until(at);
        failed(&mut story);
        story.listed(Fact::NetnsFound { netns, mounts: vec!["/run/netns/x".to_owned()], vacant: false });
    }
    assert_eq!(asked(&story), 6, "it was asked for often enough");
    let (_, engine) = story.judge(200_000);
    let is_timer =
        |entry: &CheckpointEntry| matches!(entry, CheckpointEntry::Timer { name: Name::Watch, .. });
    assert!(!engine.dump().iter().any(is_timer), "nobody waits for it");
    assert_eq!(engine.unwatched(), 1, "but it is counted");
    // The hooks would report its end. One that existed before them may have ended before its watch began.
    let is_listed_again = |story: &Story| story.clone().until(200_000).run().contains(&"? relist".to_owned());
    assert!(!is_listed_again(&story));
    let mut story = behind();
    story.at(10).listed(Fact::NetnsFound { netns, mounts: vec!["/run/netns/x".to_owned()], vacant: false });
    for at in [1000, 2100, 4200, 8300, 16_400, 32_500] {
        assert!(!is_listed_again(&story), "before {at}");
        failed(story.until(at));
    }
    assert!(is_listed_again(&story));
    // No question is asked about a namespace that is over.
    let mut story = behind();
    story.at(10).netns(ADMIN, 41, 0);
    failed(story.at(100));
    assert_eq!(asked(&story), 2);
    story.at(500).dropped(41, 0);
    assert_eq!(asked(&story), 1);
}

/// 200 pods at once. Netlink had no room for any of them, and reported it each time. They are requested
/// again, although their sandboxes have them by then.
#[test]
fn all_that_found_no_room_are_watched_in_the_end() {
    let mut story = behind();
    let pods = 1000..1200_u32;
    for inode in pods.clone() {
        story.at(100).netns(DAEMON, inode, 0);
    }
    for inode in pods.clone() {
        let path = format!("/run/netns/{inode}");
        story.at(200).listed(found_at(inode, &path));
        let mut add = super::story::call(inode, CONTAINERD, BRIDGE, "ADD", &path, 'a');
        add.variables.container_id = Some(format!("{inode:064x}"));
        let own = |args: String| args.replace(UID, &format!("{inode:08}{}", &UID[8..]));
        add.variables.args = add.variables.args.map(own);
        story.at(300).kernel(Fact::CniCalled(add));
    }
    for inode in pods {
        story.at(1000).say(Origin::Netlink, Fact::Lost { what: Loss::NetlinkSocket, count: 1, since: None });
        story.at(1000).say(Origin::Netlink, unwatched(inode));
    }
    let (_, engine) = story.judge(4000);
    assert!(engine.world.netns.values().all(|row| row.sandbox.is_some()), "each is a sandbox's");
    assert!(engine.unwatched() > 0, "not all at once");
    assert_eq!(story.judge(30_000).1.unwatched(), 0);
    assert_eq!(asked_in(&story.until(30_000).moment().run(), ""), 400);
}

/// A container fills the bulk ring, netlink has no room, or a watch was given up. None of these hides the end
/// of a pod's namespace, and a node that is listed seldom has to watch it.
#[test]
fn a_watch_that_failed_is_tried_again_while_records_of_other_things_are_lost() {
    let losses = [Some(Loss::NetlinkSocket), Some(Loss::BulkRing), None];
    for (what, is_created) in losses.into_iter().flat_map(|what| [(what, true), (what, false)]) {
        let mut story = behind();
        if is_created {
            story.at(10).netns(DAEMON, 41, 0);
        }
        story.at(20).listed(found_at(41, "/run/netns/x"));
        story.at(1000).say(Origin::Netlink, unwatched(41));
        for second in 0..10 {
            story.at(1050 + 1000 * second);
            match what {
                Some(what) => story.say(Origin::Agent, Fact::Lost { what, count: 1, since: None }),
                None => given_up(&mut story, 50 + u32::try_from(second).unwrap_or(0)),
            };
            story.until(2000 + 1000 * second);
        }
        assert_eq!(asked_in(&story.run(), "41"), 2, "{what:?}, created: {is_created}");
    }
}

/// Netlink could not watch a namespace six times.
fn given_up(story: &mut Story, inode: u32) -> &mut Story {
    story.listed(found_at(inode, &format!("/run/netns/{inode}")));
    for _ in 0..6 {
        story.say(Origin::Netlink, unwatched(inode));
    }
    story
}

/// Each plugin of a chain is called for the same sandbox, and each listing shows its file.
#[test]
fn a_failed_watch_is_not_tried_sooner_because_a_sandbox_has_the_namespace() {
    let path = "/run/netns/x";
    let mut story = behind();
    story.at(10).netns(DAEMON, 41, 0).listed(found_at(41, path)).cni(800, CONTAINERD, BRIDGE, "ADD", path);
    for at in [1000, 2100] {
        story.until(at).say(Origin::Netlink, unwatched(41));
    }
    story.at(2200).listed(found_at(41, path)).cni(801, CONTAINERD, "/usr/lib/cni/portmap", "ADD", path);
    let (_, engine) = story.judge(2200);
    assert!(engine.world.netns.values().all(|row| row.sandbox.is_some()), "it is a sandbox's");
    assert_eq!(asked_in(&story.run(), "41"), 2);
    assert_eq!(asked_in(&story.until(4300).run(), "41"), 3);
}

/// The listing finds the namespace, and the next loss comes before the next second.
#[test]
fn while_any_record_may_be_lost_each_listing_that_finds_a_namespace_tries_its_watch_again() {
    let mut story = behind();
    story.at(10).netns(DAEMON, 41, 0).listed(found_at(41, "/run/netns/x"));
    story.at(1000).say(Origin::Netlink, unwatched(41));
    for second in 1..10 {
        story.at(1000 * second + 50).lost();
        if second == 5 {
            assert_eq!(asked_in(&story.run(), "41"), 1, "it may be another one by now");
            story.list(List::Netns, true, |story| {
                story.listed(found_at(41, "/run/netns/x"));
            });
        }
        story.until(1000 * (second + 1));
    }
    assert_eq!(asked_in(&story.run(), "41"), 2);
}

/// Records of containers were lost: its inode may be that of another namespace, which a container made.
#[test]
fn what_a_container_made_waits_for_a_listing_if_records_of_containers_were_lost() {
    let mut story = behind();
    story.at(5).mkdir(20, &super::story::leaf('a'));
    story.at(10).netns(Who::new(902, 901, "sh").within(20, 40), 41, 0);
    story.at(20).listed(found_at(41, "/run/netns/x"));
    story.at(1000).say(Origin::Netlink, unwatched(41));
    story
        .at(1050)
        .say(Origin::Agent, Fact::Lost { what: Loss::BulkRing, count: 1, since: None })
        .until(10_000)
        .moment();
    assert_eq!(asked_in(&story.run(), "41"), 1);
    story.list(List::Netns, true, |story| {
        story.listed(found_at(41, "/run/netns/x"));
    });
    assert_eq!(asked_in(&story.run(), "41"), 2);
}

/// After an outage netlink first reports that it missed something, and then that it works again.
#[test]
fn what_is_known_is_watched_when_an_outage_of_netlink_is_over() {
    let mut story = Story::new();
    story.at(10).listed(found_at(41, "/run/netns/x"));
    story.at(1000).say(Origin::Netlink, Fact::Lost { what: Loss::NetlinkSocket, count: 1, since: None });
    story.attached(Signal::AddressV4, Some(Mechanism::Netlink));
    assert_eq!(asked_in(&story.run(), "41"), 1);
}

/// The runtime makes the namespaces of many pods at once, and the CNI calls of each pod take longer than a
/// change is held.
#[test]
fn which_of_several_is_a_sandboxs_is_asked_at_its_first_call() {
    const PATH: &str = "/var/run/netns/cni-732a3502";
    let made = |story: &mut Story| {
        story.at(10).netns(DAEMON, 41, 1).at(11).netns(DAEMON, 42, 2);
        story.at(20).cni(701, CONTAINERD, BRIDGE, "ADD", PATH);
    };
    let told = |story: &mut Story| {
        story.until(3000).moment();
        let lines = story.run().into_iter().filter(|line| line.contains("netns.created 41"));
        lines.collect::<Vec<_>>()
    };
    let mut story = behind();
    made(&mut story);
    assert_eq!(told(&mut story), ["10 netns.created 41"]);

    let mut story = behind();
    made(&mut story);
    story.at(25).listed(found_at(41, PATH));
    assert_eq!(told(&mut story), ["10 netns.created 41 [default/web-0 a]"]);
    assert!(story.run().contains(&format!("? netns {PATH}")), "{:#?}", story.run());

    // If there is one, nothing is asked.
    let mut story = behind();
    story.at(10).netns(DAEMON, 41, 1).at(20).cni(701, CONTAINERD, BRIDGE, "ADD", PATH);
    assert_eq!(told(&mut story), ["10 netns.created 41 [default/web-0 a]"]);
    assert!(!story.run().iter().any(|line| line.starts_with("? netns")), "{:#?}", story.run());
}

/// The record of its end may be lost, and only a listing can show it. A namespace is listed only if a process
/// is in it.
#[test]
fn one_that_may_have_ended_unseen_and_that_no_listing_shows_is_not_counted() {
    let mut story = behind();
    story.at(10).netns(DAEMON, 41, 1).at(20).netns(DAEMON, 42, 2).at(30).lost().until(2000).moment();
    let (_, engine) = story.judge(2000);
    assert_eq!(engine.netns_in_kernel(), 2);
    story.until(40_000).list(List::Netns, true, |story| {
        let netns = NetnsKey::new(42, 2);
        story.listed(Fact::NetnsFound { netns, mounts: Vec::new(), vacant: false });
    });
    let (_, engine) = story.until(41_000).moment().judge(41_000);
    assert_eq!(engine.netns_in_kernel(), 1);
    // Something else held it: its end is still reported.
    story.dropped(41, 1).until(42_000).moment();
    assert!(story.run().iter().any(|line| line.ends_with(" netns.destroyed 41")), "{:#?}", story.run());
}

/// Ten thousand namespaces a second for ten seconds. The ends of some are not reported, as when the bulk ring
/// overflows.
#[test]
fn no_number_of_namespaces_takes_more_room() {
    let mut engine = Engine::new(Settings::default());
    let mut story = behind();
    story.at(5).mkdir(20, &super::story::leaf('a')).netns(DAEMON, 7, 1);
    let pods = Fact::NetnsFound {
        netns: NetnsKey::new(7, 1),
        mounts: vec!["/run/netns/cni-1".to_owned()],
        vacant: false,
    };
    story.listed(pods);
    super::story::run::feed(&mut engine, &story.facts, Timestamp::ZERO);
    let inside = Who::new(902, 901, "sh").within(20, 40);
    let mut most = 0;
    for round in 0..100_000_u64 {
        let netns = NetnsKey::new(1000 + u32::try_from(round % 10_000).unwrap_or(0), round + 10);
        let at = Timestamp(100_000_000 + 100_000 * round);
        let mut say = |nanos: u64, fact| {
            engine.observe(Observation {
                at: at + Duration::from_nanos(nanos),
                origin: Origin::Kernel,
                fact,
            });
        };
        say(0, Fact::NetnsCreated { netns, by: inside.task(), end_unseen: false });
        if round % 3 > 0 {
            say(10, Fact::NetnsDropped { netns, by: inside.task() });
        }
        if round % 3 > 1 {
            say(20, Fact::NetnsFreed { netns });
        }
        if round % 100 == 0 {
            super::story::run::pass(&mut engine, at);
            while engine.poll().is_some() {}
            most = most.max(engine.world.netns.len());
        }
    }
    assert!((4096..=8192).contains(&most), "{most}");
    assert!(engine.dump().len() < 20_000, "{}", engine.dump().len());
    // A pod's namespace is never forgotten to make room.
    let is_pods = |entry: &CheckpointEntry| matches!(entry, CheckpointEntry::Netns(row) if row.key.inode == 7 && row.is_live());
    assert!(engine.dump().iter().any(is_pods));
}

/// Netlink's report names the earliest possible time of the end. That is before the next namespace with the
/// same number began.
#[test]
fn a_late_word_of_netlink_does_not_end_the_next_holder_of_the_number() {
    for cookies in [[0, 0], [5, 6]] {
        let mut story = Story::new();
        story.attached(Signal::NetnsDropped, Some(Mechanism::Netlink)).attached(Signal::NetnsFreed, None);
        story.at(10).netns(ADMIN, 41, cookies[0]).at(30).netns(ADMIN, 41, cookies[1]);
        story.at(20).say(Origin::Netlink, unnamed(41, cookies[0]));
        story.at(50).say(Origin::Netlink, unnamed(41, cookies[1]));
        let told: Vec<_> = story.run().into_iter().filter(|line| line.contains(" netns.")).collect();
        assert_eq!(
            told,
            [
                "10 netns.created 41",
                "20 netns.destroyed 41 Netlink",
                "30 netns.created 41",
                "50 netns.destroyed 41 Netlink"
            ],
            "{cookies:?}"
        );
    }
}

/// The event of a runtime's namespace waits for the pod's name, and so do all events after it.
#[test]
fn the_stream_waits_for_a_name_but_not_for_ever() {
    let mut story = Story::new();
    story.at(10).netns(Who::new(901, 1, "unshare"), 40, 4);
    story.at(20).netns(DAEMON, 41, 5);
    story.at(30).netns(ADMIN, 42, 6);
    story.at(900).moment();
    story.at(1030).moment();
    story.at(1040).netns(Who::new(902, CONTAINERD, "containerd"), 43, 7);
    story.check(
        "
            10 netns.created 40
            20 netns.created 41
            30 netns.created 42
            1040 netns.created 43
        ",
    );
}
