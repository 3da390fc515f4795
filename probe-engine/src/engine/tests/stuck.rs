//! Network namespaces and cgroups that the kernel or the kubelet does not remove.

use probe_common::event::class;

use super::{
    containerd::{self, PAUSE, TOP},
    story::{CONTAINERD, DAEMON, HOST, KUBELET, Story, UID, Who, cgroup},
};
use crate::model::{
    fact::{Fact, List, Mechanism, Origin, Signal, Task},
    id::NetnsKey,
};

const ADMIN: Who = Who::new(900, 899, "ip");

fn told(story: &Story) -> Vec<String> {
    let is_verdict = |line: &String| line.contains(" stuck_") && !line.contains(" blind_spot/");
    story.run().into_iter().filter(is_verdict).collect()
}

#[test]
fn a_namespace_that_is_not_taken_apart_is_stuck_with_those_behind_it() {
    let mut story = Story::new();
    story.attached(Signal::NetnsFreed, Some(Mechanism::Kprobe));
    story.at(10).netns(ADMIN, 41, 5).netns(ADMIN, 42, 6);
    story.until(1000).dropped(41, 5).until(2000).dropped(42, 6);
    story.until(59_000).moment().until(62_000).moment();
    story.until(70_000).freed(41).until(70_500).moment().until(71_000).freed(42).until(72_000).moment();
    // The next namespace waited only for this one, so its own time begins now.
    story.check_findings(
        "
            61000 finding.opened stuck_netns_teardown/41/5 Agent
            61000 finding.confirmed stuck_netns_teardown/41/5 Agent
            70099 finding.closed stuck_netns_teardown/41/5 Agent
        ",
    );
}

#[test]
fn where_its_end_is_not_seen_or_may_have_been_lost_none_is_stuck() {
    let mut story = Story::new();
    story.attached(Signal::NetnsFreed, None);
    story.at(10).netns(ADMIN, 41, 5).dropped(41, 5).until(100_000).moment();
    assert_eq!(told(&story), [""; 0]);

    let mut story = Story::new();
    story.attached(Signal::NetnsFreed, Some(Mechanism::Kprobe));
    story.at(10).netns(ADMIN, 41, 5).dropped(41, 5).lost().until(100_000).moment();
    assert_eq!(told(&story), [""; 0]);
}

/// If only netlink or a listing showed the end of a namespace, no source reports the end of its teardown.
#[test]
fn a_namespace_whose_end_no_hook_reports_is_not_stuck() {
    for listed in [false, true] {
        let mut story = Story::new();
        story.attached(Signal::NetnsFreed, Some(Mechanism::RawTracepoint));
        let key = NetnsKey::new(41, 5);
        let found = |story: &mut Story| {
            story.listed(Fact::NetnsFound { netns: key, mounts: Vec::new(), vacant: false });
        };
        story.at(10).list(List::Netns, true, found);
        if listed {
            story.at(20).lost().at(30).list(List::Netns, true, |_| {});
        } else {
            story.at(20).say(Origin::Netlink, Fact::NetnsDropped { netns: key, by: Task::default() });
        }
        story.until(100_000).moment();
        assert_eq!(told(&story), [""; 0], "{listed}");
    }
}

/// The kernel works in order, so the record of the first teardown's end was missed.
#[test]
fn one_whose_successors_are_through_is_through() {
    let mut story = Story::new();
    story.attached(Signal::NetnsFreed, Some(Mechanism::Kprobe));
    story.at(10).netns(ADMIN, 41, 5).netns(ADMIN, 42, 6);
    story.until(1000).dropped(41, 5).until(62_000).moment();
    story.until(63_000).dropped(42, 6).freed(42).until(300_000).moment();
    story.check_findings(
        "
            61000 finding.opened stuck_netns_teardown/41/5 Agent
            61000 finding.confirmed stuck_netns_teardown/41/5 Agent
            63099 finding.closed stuck_netns_teardown/41/5 Agent
        ",
    );
}

fn path() -> String {
    format!("/kubepods/besteffort/pod{UID}")
}

fn daemons(story: &mut Story, kubelet: bool) {
    story.list(List::Processes, true, |story| {
        story.found(DAEMON, CONTAINERD, "/system.slice/containerd.service", "/usr/bin/containerd");
        if kubelet {
            story.found(KUBELET, 500, "/system.slice/kubelet.service", "/usr/bin/kubelet");
        }
    });
}

fn directory(story: &mut Story) {
    story.list(List::Cgroups, true, |story| {
        story.listed(Fact::CgroupFound { cgroup: cgroup(20, &path()), populated: false });
    });
}

/// A pod that ended as usual, except that its own cgroup stayed.
fn ended(kubelet: bool) -> Story {
    let mut story = Story::new();
    daemons(story.at(1), kubelet);
    ended_on(story)
}

fn ended_on(mut story: Story) -> Story {
    containerd::start(&mut story);
    story.at(90).on_record(&['a']);
    containerd::end(&mut story);
    story
}

#[test]
fn the_directory_of_a_pod_that_is_gone_is_stuck() {
    let mut story = ended(true);
    story.until(1000).on_record(&[]).until(126_000).on_record(&[]).until(127_500).moment();
    directory(story.until(128_000));
    story.until(129_000).moment().until(140_000).rmdir(20, &path()).until(141_000).moment();
    story.check_findings(&format!(
        "
            ? relist
            128099 finding.opened stuck_cgroup/{UID} [default/web-0 a] Agent
            128099 finding.confirmed stuck_cgroup/{UID} [default/web-0 a] Agent
            140099 finding.closed stuck_cgroup/{UID} [default/web-0 a] Agent
        "
    ));
}

/// The runtime had it on record for ten minutes after its end. Nobody cleans up before.
#[test]
fn the_directory_of_a_pod_that_was_on_record_until_now_is_not_stuck() {
    let mut story = ended(true);
    story.until(600_000).on_record(&['a']).until(610_000).on_record(&[]);
    directory(story.until(611_000));
    story.until(720_000).on_record(&[]).until(729_000).moment();
    let is_confirmed = |story: &Story| told(story).iter().any(|line| line.contains("finding.confirmed"));
    assert!(!is_confirmed(&story), "{:?}", told(&story));
    story.until(735_000).on_record(&[]);
    directory(story.until(737_000));
    story.until(738_000).moment();
    assert!(is_confirmed(&story), "{:?}", told(&story));
}

#[test]
fn a_kubelet_in_a_container_of_its_own_is_the_node_s() {
    let container = "e".repeat(64);
    let own = format!("/docker/{container}");
    for (place, ns_pid, netns, forged, is_nodes) in [
        (own.clone(), 500, HOST, false, true),
        (format!("/system.slice/docker-{container}.scope/init"), 500, HOST, false, true),
        // A user other than root runs it, in a cgroup that was delegated to that user (a systemd unit with
        // `Delegate=`).
        (format!("/system.slice/his.service/{container}"), 500, HOST, true, false),
        // In a node that is itself a container, in another network namespace, and in another place.
        (own.clone(), 1, HOST, false, false),
        (own, 500, 77, false, false),
        (format!("/user.slice/user-1000.slice/user@1000.service/{container}"), 500, HOST, false, false),
    ] {
        let mut story = Story::new();
        story.at(1).list(List::Processes, true, |story| {
            story.found(DAEMON, CONTAINERD, "/system.slice/containerd.service", "/usr/bin/containerd");
            story.found(KUBELET.within(77, netns), ns_pid, &place, "kubelet");
            if let Some(Fact::ProcessFound(it)) = story.facts.last_mut().map(|seen| &mut seen.fact) {
                it.forged = forged;
            }
        });
        let mut story = ended_on(story);
        story.until(1000).on_record(&[]).until(126_000).on_record(&[]).until(127_500).moment();
        directory(story.until(128_000));
        story.until(129_000).moment();
        assert_eq!(!told(&story).is_empty(), is_nodes, "{place} {ns_pid} {netns} {forged}");
    }
}

#[test]
fn a_pod_on_record_and_a_node_without_a_kubelet_have_no_stuck_directory() {
    for (kubelet, kept) in [(true, &['a'][..]), (false, &[])] {
        let mut story = ended(kubelet);
        story.until(1000).on_record(kept).until(126_000).on_record(kept).until(127_500).moment();
        directory(story.until(128_000));
        story.until(129_000).moment();
        assert_eq!(told(&story), [""; 0], "{kubelet}");
    }
}

/// The kubelet makes the cgroup first. The volumes take an hour.
#[test]
fn a_pod_that_waits_for_its_sandbox_has_no_stuck_directory() {
    let mut story = Story::new();
    daemons(story.at(1), true);
    story.at(10).mkdir(20, &path()).on_record(&[]);
    story.until(126_000).on_record(&[]).until(127_500).moment();
    directory(story.until(128_000));
    story.until(3_600_000).on_record(&[]).until(3_601_000).moment();
    let key = format!("stuck_start/{UID} [unnamed] Agent");
    let expected = ["opened", "confirmed"].map(|what| format!("300045 finding.{what} {key}"));
    assert_eq!(told(&story), expected);
}

/// The record of a sandbox's making was lost. The sandbox is on record, and its cgroup was removed during the
/// gap.
#[test]
fn across_a_gap_only_what_is_listed_is_stuck() {
    let mut story = Story::new();
    daemons(story.at(1), true);
    containerd::start(&mut story);
    story.at(90).exit(PAUSE, TOP | class::PAUSE, 0).lost();
    story.until(1000).on_record(&[]).until(126_000).on_record(&[]).until(127_500).moment();
    story.until(128_000).list(List::Cgroups, true, |_| {}).until(300_000).moment();
    assert_eq!(told(&story), [""; 0]);
}
