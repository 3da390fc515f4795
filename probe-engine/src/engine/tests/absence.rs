//! The effects of a gap, and when a row counts as gone after one.

use probe_common::event::class;

use super::{
    containerd::{self, PATH, TOP},
    story::{CONTAINERD, POD_NETNS, SHIM, Story, Who, call, leaf},
};
use crate::model::{
    fact::{Fact, List, Origin, Role},
    id::NetnsKey,
};

const MAIN: Who = Who::new(693, SHIM, "nginx").within(22, POD_NETNS);

#[test]
fn absence_means_something_only_after_a_gap_and_in_a_complete_list() {
    let mut story = Story::new();
    containerd::start(&mut story);
    containerd::run(&mut story);
    let empty = |story: &mut Story, complete| {
        for list in [List::Processes, List::Netns, List::Cgroups] {
            story.list(list, complete, |_| {});
        }
    };
    empty(story.at(300), true);
    story.at(400).lost();
    empty(story.at(500), false);
    story.at(600).lost().at(700).lost();
    story.at(5600).moment();
    empty(story.at(6000), true);
    story.check(&format!(
        "{}
            ? relist
            400 gap LifecycleRing 3 Agent
            400 finding.opened blind_spot/lost Agent
            400 finding.confirmed blind_spot/lost Agent
            600 gap LifecycleRing 3 Agent
            600 finding.opened blind_spot/listing/netns Agent
            600 finding.confirmed blind_spot/listing/netns Agent
            700 gap LifecycleRing 3 Agent
            ? relist
            6001 pod.started 100 ms [default/web-0 a] Agent
            6001 sandbox.stopped NotListed [default/web-0 a] Listed
            6003 netns.destroyed 4026532177 [default/web-0 a] Listed
            6003 address.removed 127.0.0.1/8 lo 4026532177 [default/web-0 a] Listed
            6003 address.removed 10.88.0.5/24 eth0 4026532177 [default/web-0 a] Listed
            6005 pod.gone 5985 ms [default/web-0] Listed
            6100 finding.closed blind_spot/listing/netns Agent
        ",
        containerd::RAN,
    ));
}

fn list_all_as_empty(story: &mut Story) {
    for list in [List::Processes, List::Netns, List::Cgroups] {
        story.list(list, true, |_| {});
    }
}

/// One program is known only because every exec is reported. The other runs in the container of a CNI daemon.
#[test]
fn what_no_list_shows_is_not_gone_by_its_absence() {
    let mut story = Story::new();
    let (make, cc) = (Who::new(900, 1, "make"), Who::new(901, 900, "cc"));
    story.at(10).exec(make, 0, "/usr/bin/make").exec(cc, 0, "/usr/bin/cc");
    story.at(20).cni(586, CONTAINERD, "/usr/lib/cni/multus-shim", "ADD", PATH);
    let mut delegated = call(811, 800, "/usr/lib/cni/ipvlan", "ADD", PATH, 'a');
    (delegated.host, delegated.caller) = (false, None);
    story.say(Origin::Delegated, Fact::CniCalled(delegated));
    story.at(30).lost();
    list_all_as_empty(story.at(40));
    story.at(50).exit(Who::new(811, 800, "ipvlan"), class::CNI, 0);
    story.exit(cc, 0, 0x100).exit(make, 0, 0);
    story.check(
        "
            10 process.exec /usr/bin/make
            11 process.exec /usr/bin/cc
            20 pod.first_seen [default/web-0]
            20 sandbox.created [default/web-0 a]
            20 cni.started ADD multus-shim [default/web-0 a]
            21 cni.started ADD ipvlan [default/web-0 a] Delegated
            ? relist
            30 gap LifecycleRing 3 Agent
            41 cni.finished ADD multus-shim -> ? in 21 ms [default/web-0 a] Listed
            50 cni.finished ADD ipvlan -> 0 in 29 ms [default/web-0 a] Delegated
            51 process.exit cc 1
            52 process.exit make 0
            110 finding.opened blind_spot/lost Agent
            110 finding.confirmed blind_spot/lost Agent
        ",
    );
}

/// A socket or a thread may hold the namespace: no listing shows that.
#[test]
fn a_namespace_that_no_list_shows_is_not_gone_by_its_absence() {
    let mut story = Story::new();
    story.at(10).netns(Who::new(900, 1, "holder"), POD_NETNS + 1, 9);
    story.netns(Who::new(901, 1, "ip"), POD_NETNS + 2, 10);
    story.list(List::Netns, true, |story| {
        let mounts = vec!["/run/netns/blue".to_owned()];
        story.listed(Fact::NetnsFound { netns: NetnsKey::new(POD_NETNS + 2, 0), mounts, vacant: true });
    });
    story.at(30).lost();
    list_all_as_empty(story.at(40));
    story.at(50).dropped(POD_NETNS + 1, 9).freed(POD_NETNS + 1);
    story.check(
        "
            10 netns.created 4026532178
            11 netns.created 4026532179
            ? relist
            30 gap LifecycleRing 3 Agent
            43 netns.destroyed 4026532179 Listed
            50 netns.destroyed 4026532178
            51 netns.freed 4026532178
            110 finding.opened blind_spot/lost Agent
            110 finding.confirmed blind_spot/lost Agent
        ",
    );
}

/// A process that runs a program is not over, even if a listing did not have it.
#[test]
fn a_process_that_a_list_missed_goes_on() {
    let mut story = Story::new();
    story.at(10).mkdir(22, &leaf('c')).container('c', Role::Container, 'a', "main");
    story.exec(Who::new(693, SHIM, "runc"), class::RUNTIME, "runc init");
    story.at(30).lost();
    story.at(40).list(List::Processes, true, |_| {});
    story.at(50).exec(MAIN, TOP, "/usr/sbin/nginx").exit(MAIN, TOP, 0);
    story.check(
        "
            ? pod 11111111
            ? container c
            10 pod.first_seen [default/web-0]
            10 cgroup.created cccccccc [default/web-0 a c=main]
            11 sandbox.created [default/web-0 a] Listed
            12 process.exec runc
            ? relist
            30 gap LifecycleRing 3 Agent
            50 process.exec /usr/sbin/nginx [default/web-0 a c=main]
            50 container.started nginx [default/web-0 a c=main]
            51 process.exit nginx 0 [default/web-0 a c=main]
            51 container.exited 0 Some(1) [default/web-0 a c=main]
            110 finding.opened blind_spot/lost Agent
            110 finding.confirmed blind_spot/lost Agent
        ",
    );
}
