//! Lives of network namespaces, whose numbers are used again at once.

use super::story::{CONTAINERD, DAEMON, Story, UID, Who};
use crate::engine::fact::{Fact, Mechanism, Origin, Signal, Task};
use crate::engine::id::NetnsKey;

const ADMIN: Who = Who::new(900, 899, "ip");
const WORKER: Who = Who::new(3, 2, "kworker/u4:1");

#[test]
fn each_life_of_an_inode_begins_and_ends_once() {
    for cookies in [[0, 0, 0], [1, 2, 3]] {
        let mut story = Story::new();
        for cookie in cookies {
            story.netns(ADMIN, 41, cookie);
            // The last reference can be put in two places.
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
fn a_number_is_used_again_before_its_end_is_told() {
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

/// Two CPUs that put the last two references at once both think that another one is left.
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

/// Of a pod from before us only its directory's path is known.
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
fn an_address_is_told_once_and_goes_with_its_namespace() {
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
fn where_netlink_tells_of_the_end_each_namespace_is_watched() {
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

/// The lowest tier: hooks tell of namespaces, netlink of the addresses in them and, out of order, of their end.
#[test]
fn where_a_hook_sees_the_end_too_it_is_told_in_its_order() {
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

/// A runtime's namespace waits for the name of its pod, and so does all that comes after it.
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
