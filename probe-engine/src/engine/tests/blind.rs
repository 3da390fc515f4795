//! Blind spots, and releases that nothing verifies.

use probe_common::event::class;

use super::story::{CONTAINERD, DAEMON, KUBELET, Story, Who, call, cgroup, id, run::check_lines, uid};
use crate::{
    engine::world::CheckpointEntry,
    model::{
        fact::{
            Answer, Bound, EventStream, Fact, List, Mechanism, NetworksRead, NodeFolders, Origin,
            RuntimeKind, RuntimeLink, RuntimeRead, RuntimeSandbox, SIGKILL, Signal, Store, StoreKind,
            StoreRead,
        },
        finding::{Blind, BlindSpot, FindingKind, Kind, Severity, UnverifiedRelease},
        recovery::Recovery,
        time::Timestamp,
    },
};

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;

#[test]
fn a_signal_that_nothing_reports_is_a_blind_spot() {
    let mut story = Story::new();
    story.at(SECOND).attached(Signal::Exec, None).attached(Signal::Exit, Some(Mechanism::Tracepoint));
    // No verdict depends on this signal.
    story.attached(Signal::CgroupReleased, None);
    let (told, engine) = story.judge(MINUTE);
    check_lines(
        &told,
        "
            1100 finding.opened blind_spot/signal/exec Agent
            1100 finding.confirmed blind_spot/signal/exec Agent
        ",
    );
    assert!(engine.findings().all(|it| it.severity == Severity::Warning));
    story.at(2 * SECOND).attached(Signal::Exec, Some(Mechanism::Kprobe));
    assert!(story.judge(MINUTE).0.ends_with("2100 finding.closed blind_spot/signal/exec Agent"));
}

#[test]
fn lost_records_are_reported_for_ten_minutes() {
    let mut story = Story::new();
    story.at(SECOND).lost().at(9 * MINUTE).lost();
    let (told, engine) = story.judge(10 * MINUTE);
    assert_eq!(told.lines().count(), 2, "{told}");
    let kind = engine.findings().next().map(|it| it.kind.clone());
    assert!(
        matches!(kind, Some(Kind::BlindSpot(BlindSpot { spot: Blind::Lost { count: 6 }, .. }))),
        "all of them: {kind:?}"
    );
    let (told, _) = story.judge(30 * MINUTE);
    assert!(told.ends_with("1140000 finding.closed blind_spot/lost Agent"), "{told}");
}

#[test]
fn a_time_without_an_agent_is_a_blind_spot() {
    let since = Timestamp(2 * SECOND * 1_000_000);
    check_unknown_time(Fact::AgentAway { since }, "blind_spot/no_agent");
}

/// The time of which the fact says that nothing is known is a gap and a finding with this key.
fn check_unknown_time(fact: Fact, key: &str) {
    let mut story = Story::new();
    story.at(9 * SECOND).say(Origin::Agent, fact);
    let told = story.run();
    assert!(told.iter().any(|line| line.starts_with("9000 gap")), "{told:#?}");
    let (told, engine) = story.judge(30 * MINUTE);
    check_lines(
        &told,
        &format!(
            "
            9100 finding.opened {key} Agent
            9100 finding.confirmed {key} Agent
            609000 finding.closed {key} Agent
            "
        ),
    );
    assert_eq!(engine.counts().lost.values().sum::<u64>(), 0, "no record was lost that was counted");
}

#[test]
fn a_lost_state_is_a_gap_and_a_blind_spot() {
    let since = Timestamp(2 * SECOND * 1_000_000);
    check_unknown_time(Fact::StateLost { since }, "blind_spot/state");
}

/// The rule of `orphan_netns` needs a listing of the processes in a namespace. Without one it is off.
#[test]
fn namespaces_that_cannot_be_listed_whole_are_a_blind_spot() {
    let mut story = Story::new();
    story.at(SECOND).list(List::Netns, false, |_| {});
    // From these lists no rule concludes that something is absent.
    story.list(List::Addresses, false, |_| {});
    let (told, engine) = story.judge(MINUTE);
    check_lines(
        &told,
        "
            1100 finding.opened blind_spot/listing/netns Agent
            1100 finding.confirmed blind_spot/listing/netns Agent
        ",
    );
    let kind = engine.findings().next().map(|it| it.kind.clone());
    let Some(Kind::BlindSpot(BlindSpot { spot: Blind::Listing { list: List::Netns }, weaker })) = kind else {
        panic!("{kind:?}");
    };
    assert_eq!(weaker, [FindingKind::OrphanNetns]);
    // An incomplete listing changes nothing. Then a complete one comes.
    story.at(2 * SECOND).list(List::Netns, false, |_| {});
    story.at(3 * SECOND).list(List::Netns, true, |_| {});
    let (told, _) = story.judge(MINUTE);
    assert!(told.ends_with("3100 finding.closed blind_spot/listing/netns Agent"), "{told}");
    assert_eq!(told.lines().count(), 3, "{told}");
}

/// A file that was read while it was being written is complete at the next reading.
#[test]
fn a_torn_file_of_libcnis_cache_is_reported_by_name_when_it_was_read_twice() {
    let torn = |story: &mut Story| {
        story.list(List::CniCache, true, |story| {
            story.listed(Fact::CacheUnread { path: "/var/lib/cni/results/podnet-a-eth0".to_owned() });
        });
    };
    let mut story = Story::new();
    torn(story.at(SECOND));
    assert!(!story.judge(8 * SECOND).0.contains("finding.confirmed"));
    torn(story.at(20 * SECOND));
    let (told, engine) = story.judge(MINUTE);
    assert!(told.contains("finding.confirmed blind_spot/cni_cache"), "{told}");
    let kind = engine.findings().next().map(|it| it.kind.clone());
    let Some(Kind::BlindSpot(BlindSpot { spot: Blind::CniCache { path, count: 1 }, .. })) = kind else {
        panic!("{kind:?}");
    };
    assert_eq!(path, "/var/lib/cni/results/podnet-a-eth0");
}

fn read(complete: bool) -> StoreRead {
    StoreRead {
        store: Store {
            kind: StoreKind::HostLocal,
            path: "/var/lib/cni/networks/podnet".to_owned(),
            network: Some("podnet".to_owned()),
            bound: Bound::Sandbox,
        },
        reservations: Vec::new(),
        complete,
    }
}

#[test]
fn records_that_cannot_be_read_whole_are_reported_until_they_can() {
    let mut story = Story::new();
    let place = "/var/lib/containerd".to_owned();
    let kind = Some(RuntimeKind::Containerd);
    let runtime = |complete| {
        let (place, sandboxes) = (place.clone(), Vec::new());
        RuntimeRead { place, kind, sandboxes, complete, unread: 0 }
    };
    story.at(SECOND).listed(Fact::StoreRead(read(false))).listed(Fact::RuntimeRead(runtime(false)));
    let (told, _) = story.judge(MINUTE);
    let opened: Vec<&str> = told.lines().filter(|line| line.contains("opened")).collect();
    check_lines(
        &opened.join("\n"),
        "
            1100 finding.opened blind_spot/store/:var:lib:cni:networks:podnet Agent
            1100 finding.opened blind_spot/runtime/:var:lib:containerd Agent
        ",
    );
    story.at(MINUTE).listed(Fact::StoreRead(read(true))).listed(Fact::RuntimeRead(runtime(true)));
    let (told, _) = story.judge(2 * MINUTE);
    assert_eq!(told.lines().filter(|line| line.contains("closed")).count(), 2, "{told}");
}

#[test]
fn a_file_that_hangs_is_a_blind_spot_until_it_is_read_again() {
    let mut story = Story::new();
    let hangs = |hangs| Fact::FileHangs {
        path: "/proc/7/cmdline".to_owned(),
        since: Timestamp(1_000_000_000),
        hangs,
    };
    story.at(11 * SECOND).listed(hangs(true));
    let (told, _) = story.judge(MINUTE);
    check_lines(
        &told,
        "
            11100 finding.opened blind_spot/file/:proc:7:cmdline Agent
            11100 finding.confirmed blind_spot/file/:proc:7:cmdline Agent
        ",
    );
    story.at(MINUTE).listed(hangs(false));
    let (told, _) = story.judge(2 * MINUTE);
    assert!(told.contains("finding.closed blind_spot/file/:proc:7:cmdline"), "{told}");
}

#[test]
fn a_runtime_without_records_is_a_blind_spot_only_where_there_are_sandboxes() {
    let mut story = Story::new();
    story.at(6 * SECOND).found(DAEMON, CONTAINERD, "/system.slice/containerd.service", "/usr/bin/containerd");
    nothing_configured(&mut story);
    nothing_configured(story.at(20 * SECOND));
    assert_eq!(story.judge(MINUTE).0, "");
    story.cni_done(900, "/usr/lib/cni/bridge", "ADD", "/run/netns/x");
    let (told, _) = story.judge(MINUTE);
    assert!(told.contains("finding.confirmed blind_spot/runtime Agent"), "{told}");
}

/// After each CNI call the node is read again.
#[test]
fn a_runtime_without_records_is_a_blind_spot_however_often_the_node_is_read() {
    let mut story = Story::new();
    story.at(6 * SECOND).found(DAEMON, CONTAINERD, "/system.slice/containerd.service", "/usr/bin/containerd");
    story.cni_done(900, "/usr/lib/cni/bridge", "ADD", "/run/netns/x");
    for at in (7..60).step_by(6) {
        nothing_configured(story.until(at * SECOND));
    }
    let (told, _) = story.judge(MINUTE);
    assert!(told.contains("finding.confirmed blind_spot/runtime Agent"), "{told}");
}

/// A reading finds no records of a runtime that does not run, and the new one takes a moment until it has
/// them open.
#[test]
fn a_runtime_that_restarts_is_no_blind_spot() {
    let killed = |read_at: &[u64]| {
        let mut story = Story::new();
        story.at(6 * SECOND).found(
            DAEMON,
            CONTAINERD,
            "/system.slice/containerd.service",
            "/usr/bin/containerd",
        );
        story.list(List::Runtimes, true, |story| _ = story.on_record(&['a']));
        nothing_configured(&mut story);
        story.cni_done(900, "/usr/lib/cni/bridge", "ADD", "/run/netns/x");
        story.at(60 * SECOND).exit(DAEMON, class::CALLER, SIGKILL);
        nothing_configured(story.at(61 * SECOND));
        story.list(List::Runtimes, true, |_| {});
        let start = Who::started(70 * SECOND, 1, "containerd");
        story.at(70 * SECOND).exec(start, class::CALLER, "/usr/bin/containerd");
        for at in read_at {
            nothing_configured(story.at(at * SECOND));
            story.list(List::Runtimes, true, |_| {});
        }
        story
    };
    let mut back = killed(&[71]);
    assert_eq!(back.judge(5 * MINUTE).0, "", "it is read again before that is told");
    back.at(82 * SECOND).list(List::Runtimes, true, |story| _ = story.on_record(&['a']));
    assert_eq!(back.judge(5 * MINUTE).0, "");
    // Its records are still not found.
    let told = killed(&[71, 82]).judge(5 * MINUTE).0;
    assert!(told.contains("finding.confirmed blind_spot/runtime Agent"), "{told}");
}

fn nothing_configured(story: &mut Story) {
    story.listed(Fact::NetworksRead(NetworksRead {
        written: None,
        networks: Vec::new(),
        complete: true,
        undecodable: Vec::new(),
        loading: None,
        folders: NodeFolders::default(),
    }));
}

/// The only DEL of this sandbox names no namespace.
fn goes_blindly(story: &mut Story, at: u64, pid: u32, plugin: &str, digit: char) {
    let path = format!("/usr/lib/cni/{plugin}");
    let who = |pid: u32| Who::new(pid, CONTAINERD, "plugin");
    story.at(at).kernel(Fact::CniCalled(call(pid, CONTAINERD, &path, "ADD", "/run/netns/x", digit)));
    story.exit(who(pid), class::CNI, 0);
    story.kernel(Fact::CniCalled(call(pid + 1, CONTAINERD, &path, "DEL", "", digit)));
    story.exit(who(pid + 1), class::CNI, 0);
}

#[test]
fn releases_that_nothing_verifies_are_counted_for_an_hour() {
    let mut story = Story::new();
    goes_blindly(&mut story, SECOND, 100, "cloud-cni", 'a');
    goes_blindly(&mut story, 5 * MINUTE, 200, "cloud-cni", 'b');
    // containerd calls DEL again and again.
    story.kernel(Fact::CniCalled(call(300, CONTAINERD, "/usr/lib/cni/cloud-cni", "DEL", "", 'b')));
    story.exit(Who::new(300, CONTAINERD, "plugin"), class::CNI, 0);
    let (told, engine) = story.judge(30 * MINUTE);
    let key = "unverified_release/cloud-cni";
    assert_eq!(told.matches("finding.").count(), 2, "{told}");
    assert!(told.contains(&format!("finding.opened {key}")), "{told}");
    let finding = engine.findings().next().expect("the finding");
    assert!(
        matches!(finding.kind, Kind::UnverifiedRelease(UnverifiedRelease { count: 2, .. })),
        "{:?}",
        finding.kind
    );
    assert_eq!(finding.severity, Severity::Info);
    assert!(story.judge(70 * MINUTE).0.contains(&format!("finding.closed {key}")));
}

#[test]
fn releases_that_something_verifies_are_none() {
    // This plugin frees an address by the container's id.
    let mut story = Story::new();
    goes_blindly(&mut story, SECOND, 100, "calico", 'a');
    // An earlier DEL of this sandbox, with a namespace, succeeded.
    story.at(2 * SECOND).cni_done(200, "/usr/lib/cni/cloud-cni", "ADD", "/run/netns/x");
    story.cni_done(201, "/usr/lib/cni/cloud-cni", "DEL", "/run/netns/x");
    story.cni_done(202, "/usr/lib/cni/cloud-cni", "DEL", "");
    assert_eq!(story.judge(30 * MINUTE).0, "");
    // The ADD of this sandbox was before the agent started, so other calls may have been missed too.
    let mut story = Story::new();
    story.at(2 * SECOND).cni_done(202, "/usr/lib/cni/cloud-cni", "DEL", "");
    assert_eq!(story.judge(30 * MINUTE).0, "");
    // The network of this sandbox has a store.
    let mut story = Story::new();
    goes_blindly(&mut story, SECOND, 100, "cloud-cni", 'a');
    story.list(List::CniCache, true, |story| {
        story.listed(Fact::CacheFound(crate::model::fact::CacheFound {
            network: "podnet".to_owned(),
            container: id('a'),
            ifname: "eth0".to_owned(),
            addresses: Vec::new(),
            netns: None,
            args: Vec::new(),
        }));
    });
    story.listed(Fact::StoreRead(read(true)));
    assert_eq!(story.judge(30 * MINUTE).0, "");
}

/// A DEL with a namespace may be among the lost records.
#[test]
fn a_release_across_a_gap_is_not_counted() {
    let mut story = Story::new();
    story.at(SECOND).cni_done(100, "/usr/lib/cni/cloud-cni", "ADD", "/run/netns/x");
    story.lost().cni_done(101, "/usr/lib/cni/cloud-cni", "DEL", "");
    assert!(!story.judge(30 * MINUTE).0.contains("unverified_release"));
}

/// A missing kubelet is reported if there are pods that a kubelet made, and it has had time to start again.
#[test]
fn a_kubelet_that_is_not_known_is_a_blind_spot_where_there_are_pods() {
    let watched = |from: u64, kubelet: bool, pods: bool, expected: bool| {
        let earlier = Recovery { watched_since: Some(Timestamp(1)), ..Recovery::default() };
        let mut story = Story::new();
        story.restored.push(CheckpointEntry::Recovery(Box::new(earlier)));
        story.at(from).listed(Fact::BootRead(Box::default()));
        story.list(List::Processes, true, |story| {
            story.found(DAEMON, CONTAINERD, "/system.slice/containerd.service", "/usr/bin/containerd");
            if kubelet {
                story.found(KUBELET, 500, "/system.slice/kubelet.service", "/usr/bin/kubelet");
            }
        });
        if pods {
            let cgroup = cgroup(20, &format!("/kubepods/besteffort/pod{}", uid()));
            story.listed(Fact::CgroupFound { cgroup, populated: true });
        }
        story.listed(Fact::KubeletExpected(expected));
        nothing_configured(&mut story);
        story
    };
    let node = |kubelet, pods, expected| watched(1, kubelet, pods, expected);
    let told = |story: &Story, until: u64| -> Vec<String> {
        let (told, _) = story.judge(until);
        let own = told.lines().filter_map(|line| Some(line.split_once(" finding.")?.1.to_owned()));
        own.filter_map(|line| Some(line.split_once(" blind_spot/kubelet")?.0.to_owned())).collect()
    };
    // A node of Docker alone, a node whose kubelet runs, and a node that once was in a cluster.
    for (runs, pods, expected) in [(false, false, false), (true, true, true), (false, false, true)] {
        assert_eq!(told(&node(runs, pods, expected), 60 * MINUTE), [""; 0], "{runs} {pods} {expected}");
    }
    assert_eq!(told(&node(false, true, false), 6 * MINUTE), ["opened", "confirmed"]);
    // An earlier run of the agent has observed this boot for long. The kubelet may be restarting just now.
    let late = watched(60 * MINUTE, false, true, false);
    assert_eq!(told(&late, 64 * MINUTE), [""; 0]);
    assert_eq!(told(&late, 66 * MINUTE), ["opened", "confirmed"]);
    // The cgroup of a pod that is gone does not count as a pod.
    let mut story = node(false, false, false);
    let left = cgroup(20, &format!("/kubepods/besteffort/pod{}", uid()));
    story.listed(Fact::CgroupFound { cgroup: left, populated: false });
    assert_eq!(told(&story, 60 * MINUTE), [""; 0]);

    let mut story = node(true, true, true);
    story.at(10 * MINUTE).exit(KUBELET, class::CALLER, 0);
    assert_eq!(told(&story, 11 * MINUTE), [""; 0], "it may come back");
    assert_eq!(told(&story, 16 * MINUTE), ["opened", "confirmed"]);
    let again = Who::new(501, 1, "kubelet");
    let mut quick = story.clone();
    quick.at(11 * MINUTE).exec(again, class::CALLER, "/usr/bin/kubelet");
    assert_eq!(told(&quick, 60 * MINUTE), [""; 0]);
    story.at(20 * MINUTE).exec(again, class::CALLER, "/usr/bin/kubelet");
    assert_eq!(told(&story, 21 * MINUTE), ["opened", "confirmed", "closed"]);
}

#[test]
fn records_of_a_runtime_that_has_just_started_may_be_incomplete() {
    let runtime = |complete| RuntimeRead {
        place: "/run/containerd/containerd.sock".to_owned(),
        kind: Some(RuntimeKind::Containerd),
        sandboxes: Vec::new(),
        complete,
        unread: 0,
    };
    let mut story = Story::new();
    story.at(SECOND).exec(DAEMON, class::CALLER, "/usr/bin/containerd");
    story.at(2 * SECOND).listed(Fact::RuntimeRead(runtime(false)));
    let mut quick = story.clone();
    quick.at(5 * SECOND).listed(Fact::RuntimeRead(runtime(true)));
    assert!(!quick.judge(MINUTE).0.contains("blind_spot"));
    assert!(!story.judge(MINUTE).0.contains("blind_spot"), "they were not read again");
    story.at(MINUTE).listed(Fact::RuntimeRead(runtime(false)));
    check_lines(
        &story
            .judge(2 * MINUTE)
            .0
            .lines()
            .filter(|line| line.contains("blind_spot"))
            .collect::<Vec<_>>()
            .join("\n"),
        "
            60100 finding.opened blind_spot/runtime/:run:containerd:containerd.sock Agent
            60100 finding.confirmed blind_spot/runtime/:run:containerd:containerd.sock Agent
        ",
    );
}

/// One of Docker's records cannot be read. Its id is on record all the same, and the other records count.
#[test]
fn a_record_that_cannot_be_read_is_reported_until_it_can() {
    let mut story = Story::new();
    let runtime = |unread| RuntimeRead {
        place: "/var/lib/docker/containers".to_owned(),
        kind: Some(RuntimeKind::Docker),
        sandboxes: vec![RuntimeSandbox { id: id('b'), pod: None }],
        complete: true,
        unread,
    };
    story.at(SECOND).listed(Fact::RuntimeRead(runtime(1)));
    story.at(MINUTE).listed(Fact::RuntimeRead(runtime(0)));
    check_lines(
        &story.judge(2 * MINUTE).0,
        "
            1100 finding.opened blind_spot/runtime/:var:lib:docker:containers Agent
            1100 finding.confirmed blind_spot/runtime/:var:lib:docker:containers Agent
            60100 finding.closed blind_spot/runtime/:var:lib:docker:containers Agent
        ",
    );
}

/// No other finding reports its end, since Docker itself runs on.
#[test]
fn a_cri_server_beside_its_runtime_that_has_ended_is_a_blind_spot() {
    let mut story = Story::new();
    story.at(1).list(List::Processes, true, |story| {
        story.found(Who::new(700, 1, "dockerd"), 500, "/system.slice/docker.service", "/usr/bin/dockerd");
        story.found(KUBELET, 500, "/system.slice/kubelet.service", "/usr/bin/kubelet");
    });
    for (second, answer) in [(2, Answer::Answers), (5, Answer::Gone)] {
        let socket = "/run/cri-dockerd.sock".to_owned();
        let it = RuntimeLink { socket, answer, events: EventStream::None, since: None };
        story.until(second * SECOND).say(Origin::Cri, Fact::RuntimeLink(it));
    }
    let lines = story.until(30 * SECOND).moment().judge(30 * SECOND).0;
    assert!(lines.contains("finding.confirmed blind_spot/cri/:run:cri-dockerd.sock"), "{lines}");
}
