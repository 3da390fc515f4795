//! Pods that ran before the agent started.

use probe_common::event::class;

use super::{
    containerd::{self, PATH, PAUSE, TOP},
    story::{
        CONTAINERD, DAEMON, HOST, POD_NETNS, SHIM, Story, UID, Who, address, call, cgroup, id, leaf, ms,
        run::feed, uid,
    },
};
use crate::{
    engine::{Engine, Settings, world::table::sandbox::State},
    model::{
        fact::{CacheFound, Fact, List, Mechanism, NameSource, Role, Signal},
        id::NetnsKey,
    },
};

const MAIN: Who = Who::new(693, SHIM, "nginx").within(22, POD_NETNS);

pub(super) fn node(story: &mut Story, complete: bool) {
    story.list(List::Pods, complete, |story| {
        story.listed(Fact::PodFound {
            uid: uid(),
            namespace: "default".to_owned(),
            name: "web-0".to_owned(),
            source: NameSource::LogFolder,
        });
    });
    story.list(List::Containers, complete, |story| {
        story.container('a', Role::Sandbox, 'a', "").container('c', Role::Container, 'a', "main");
        // The disk still has a container of a pod that is over.
        story.container('d', Role::Container, 'a', "old");
    });
    story.list(List::CniCache, complete, cached);
    story.list(List::Cgroups, complete, |story| {
        for (number, path) in
            [(20, format!("/kubepods/besteffort/pod{UID}")), (21, leaf('a')), (22, leaf('c'))]
        {
            story.listed(Fact::CgroupFound { cgroup: cgroup(number, &path), populated: true });
        }
    });
    story.list(List::Processes, complete, |story| {
        story.found(
            Who::new(CONTAINERD, 1, "containerd"),
            CONTAINERD,
            "/system.slice/containerd.service",
            "/usr/bin/containerd",
        );
        story.found(PAUSE, 1, &leaf('a'), "/pause");
        story.found(MAIN, 1, &leaf('c'), "/usr/sbin/nginx");
        story.found(Who::new(694, 693, "nginx").within(22, POD_NETNS), 7, &leaf('c'), "nginx: worker");
    });
    story.list(List::Netns, complete, |story| {
        let mounts = vec!["/run/netns/cni-732a3502".to_owned()];
        story.listed(Fact::NetnsFound { netns: NetnsKey::new(POD_NETNS, 0), mounts, vacant: false });
    });
    story.list(List::Addresses, complete, |story| {
        story.listed(Fact::AddressFound(address(MAIN, POD_NETNS, "10.88.0.5/24", "eth0")));
    });
}

fn cached(story: &mut Story) {
    story.listed(Fact::CacheFound(CacheFound {
        network: "net".to_owned(),
        container: id('a'),
        ifname: "eth0".to_owned(),
        addresses: Vec::new(),
        netns: Some(PATH.to_owned()),
        args: vec![("K8S_POD_NAME".to_owned(), "web-0".to_owned())],
    }));
}

#[test]
fn pods_that_run_already_are_listed_and_their_end_is_seen() {
    let mut story = Story::new();
    node(story.at(10), true);
    containerd::end(story.at(200));
    story.check(
        "
            22 pod.first_seen [default/web-0] Listed
            23 sandbox.created [default/web-0 a] Listed
            29 container.started nginx [default/web-0 a c=main] Listed
            200 process.exec runc [default/web-0 a c=main]
            202 process.exit sleep 137 killed by runc [default/web-0 a c=main]
            202 container.exited 137 killed by runc None [default/web-0 a c=main]
            203 cgroup.emptied cccccccc [default/web-0 a c=main]
            204 cgroup.removed cccccccc [default/web-0 a c=main]
            222 process.exit pause 137 killed by runc [default/web-0 a]
            222 sandbox.stopped PauseExited [default/web-0 a]
            223 cgroup.emptied aaaaaaaa [default/web-0 a]
            224 cgroup.emptied pod11111 [default/web-0]
            226 cgroup.removed aaaaaaaa [default/web-0 a]
            230 cni.started DEL loopback [default/web-0 a]
            231 cni.finished DEL loopback -> 0 in 1 ms [default/web-0 a]
            232 cni.started DEL bridge [default/web-0 a]
            233 address.removed 10.88.0.5/24 eth0 4026532177 [default/web-0 a]
            234 cni.finished DEL bridge -> 0 in 2 ms [default/web-0 a]
            240 netns.destroyed 4026532177 [default/web-0 a]
            242 netns.freed 4026532177 [default/web-0 a]
        ",
    );
}

#[test]
fn a_listing_that_races_with_the_kernel_changes_nothing() {
    let mut story = Story::new();
    containerd::start(&mut story);
    containerd::run(&mut story);
    node(story.at(150), true);
    story.check(containerd::RAN);
}

/// A listing was read before records that are older than it.
#[test]
fn records_that_a_listing_overtook_are_reported() {
    let mut story = Story::new();
    story.lag(10).at(100).listed(Fact::CgroupFound { cgroup: cgroup(22, &leaf('c')), populated: true });
    story.found(MAIN, 1, &leaf('c'), "/usr/sbin/nginx");
    story.at(98).mkdir(22, &leaf('c'));
    story.at(99).exec(MAIN, TOP, "/usr/sbin/nginx");
    story.at(110).container('c', Role::Container, 'a', "main");
    story.check(
        "
            ? pod 11111111
            ? container c
            100 pod.first_seen [default/web-0] Listed
            101 container.started nginx [default/web-0 a c=main] Listed
            98 cgroup.created cccccccc [default/web-0 a c=main] late
            99 process.exec /usr/sbin/nginx [default/web-0 a c=main] late
            110 sandbox.created [default/web-0 a] Listed
        ",
    );
}

/// A sandbox whose network is made and whose pause process has not begun.
fn being_made(story: &mut Story) {
    cached(story);
    story.container('a', Role::Sandbox, 'a', "");
    story.listed(Fact::CgroupFound { cgroup: cgroup(21, &leaf('a')), populated: false });
}

fn of_sandbox(story: &Story) -> Vec<String> {
    story.run().into_iter().filter(|line| line.contains(" sandbox.")).collect()
}

/// The network was made before the agent started, and pause was not.
#[test]
fn a_sandbox_that_was_found_while_it_was_made_becomes_ready() {
    let mut story = Story::new();
    being_made(story.at(60));
    story.at(70).exec(PAUSE, TOP | class::PAUSE, "/bin/pause");
    containerd::run(&mut story);
    let told = ["62 sandbox.created [unnamed a] Listed", "70 sandbox.ready [unnamed a]"];
    assert_eq!(of_sandbox(&story), told);
}

/// The listing was read before records that are older than it.
#[test]
fn a_sandbox_whose_records_a_listing_overtook_becomes_ready() {
    let mut story = Story::new();
    story.lag(100).at(79).found(Who::new(1, 0, "systemd"), 1, "/init.scope", "/sbin/init");
    being_made(&mut story);
    story.found(PAUSE, 1, &leaf('a'), "/pause");
    containerd::start(&mut story);
    let told = ["82 sandbox.created [unnamed a] Listed", "83 sandbox.ready [unnamed a]"];
    assert_eq!(of_sandbox(&story), told);
}

/// The pause process that a listing finds may have run for long.
#[test]
fn a_sandbox_whose_making_was_not_seen_was_found_ready() {
    let mut story = Story::new();
    node(story.at(10), true);
    let told = story.run();
    assert!(told.iter().all(|line| !line.contains("sandbox.ready")), "{told:#?}");
}

/// Its image cannot be pulled, or its job is done: no container shows that it has its network.
#[test]
fn a_sandbox_without_containers_was_found_ready_if_libcni_has_the_result_of_its_adds() {
    let state = |hooked: bool, cached_in: &[u64], adding: bool| {
        let mut story = Story::new();
        if hooked {
            story.attached(Signal::Exec, Some(Mechanism::RawTracepoint));
        }
        story.at(10).list(List::Processes, true, |story| {
            story.found(Who::new(1, 0, "systemd"), 1, "/init.scope", "/sbin/init");
            story.found(PAUSE, 1, &leaf('a'), "/pause");
        });
        story.container('a', Role::Sandbox, 'a', "");
        if adding {
            story.cni_found(call(586, CONTAINERD, "/usr/lib/cni/bridge", "ADD", PATH, 'a'));
        }
        for at in cached_in {
            story.until(*at).list(List::CniCache, true, cached);
        }
        let until = cached_in.last().map_or(2000, |at| at + 1000);
        let (told, engine) = story.until(until).moment().judge(until + 1);
        assert!(!told.contains("sandbox.ready"), "{told}");
        engine.pods().first().and_then(|pod| Some(pod.sandboxes.first()?.state))
    };
    let is_ready = |state| matches!(state, Some(State::Ready { .. }));
    assert!(is_ready(state(false, &[400], false)));
    assert!(!is_ready(state(false, &[], false)), "nothing shows its network");
    assert!(!is_ready(state(false, &[400], true)), "an ADD runs");
    // Records of its making may still come.
    assert!(!is_ready(state(true, &[400], false)));
    assert!(is_ready(state(true, &[400, 2000], false)));
}

/// No hook reports addresses here, and the namespace was not watched until it had one.
#[test]
fn an_address_that_is_found_in_a_namespace_that_was_seen_made_was_added() {
    let added = |is_made: bool| {
        let mut story = Story::new();
        if is_made {
            story.at(10).netns(DAEMON, POD_NETNS, 7);
        }
        story.at(30);
        for _ in 0..2 {
            story.listed(Fact::AddressFound(address(MAIN, POD_NETNS, "10.88.0.5/24", "eth0")));
        }
        let told = story.run();
        told.into_iter().filter(|line| line.contains("address.added")).collect::<Vec<_>>()
    };
    assert_eq!(added(true), ["30 address.added 10.88.0.5/24 eth0 4026532177 Listed"]);
    assert_eq!(added(false), [""; 0]);
}

/// The agent started in the middle of a pod's ADD: the namespace was made before, and its watch began when it
/// had its address already.
#[test]
fn an_address_that_is_found_where_an_add_was_seen_was_added() {
    let added = |say: fn(&mut Story)| {
        let mut story = Story::new();
        story.at(10).list(List::Netns, true, |story| {
            let mounts = vec![PATH.to_owned()];
            story.listed(Fact::NetnsFound { netns: NetnsKey::new(POD_NETNS, 0), mounts, vacant: false });
        });
        say(story.at(20));
        for at in [50, 60] {
            story.at(at).listed(Fact::AddressFound(address(MAIN, POD_NETNS, "10.88.0.5/24", "eth0")));
        }
        story.run().into_iter().filter(|line| line.contains("address.added")).collect::<Vec<_>>()
    };
    let told = ["50 address.added 10.88.0.5/24 eth0 4026532177 [default/web-0 a] Listed"];
    assert_eq!(added(|story| _ = story.cni_done(800, "/usr/lib/cni/bridge", "ADD", PATH)), told);
    assert_eq!(added(|story| _ = story.cni(800, CONTAINERD, "/usr/lib/cni/bridge", "ADD", PATH)), told);
    // It ran when the agent started.
    let found = |story: &mut Story| {
        _ = story.cni_found(call(800, CONTAINERD, "/usr/lib/cni/bridge", "ADD", PATH, 'a'));
    };
    assert_eq!(added(found), told);
    let found_and_over = |story: &mut Story| {
        story.cni_found(call(800, CONTAINERD, "/usr/lib/cni/bridge", "ADD", PATH, 'a'));
        story.exit(Who::new(800, CONTAINERD, "bridge"), class::CNI, 0);
    };
    assert_eq!(added(found_and_over), told);
    // The pod was there before, and ends now.
    assert_eq!(added(|story| _ = story.cni_done(800, "/usr/lib/cni/bridge", "DEL", PATH)), [""; 0]);
}

/// A container can give its namespace more addresses than are remembered. Each listing finds all of them.
#[test]
fn an_address_for_which_there_is_no_room_is_not_added_by_each_listing() {
    const ROOM: usize = 1024;
    let mut story = Story::new();
    story.at(10).netns(DAEMON, POD_NETNS, 7);
    for at in [30, 40] {
        story.at(at);
        for n in 0..ROOM + 3 {
            let text = format!("10.88.{}.{}/16", n / 256, n % 256);
            story.listed(Fact::AddressFound(address(MAIN, POD_NETNS, &text, "eth0")));
        }
    }
    let told = story.run();
    assert_eq!(told.iter().filter(|line| line.contains("address.added")).count(), ROOM);
}

/// Missing calls prove nothing: they were before the agent started.
#[test]
fn a_listed_pod_is_in_the_network_that_its_processes_are_in() {
    for (netns, is_host) in [(POD_NETNS, false), (HOST, true)] {
        let mut story = Story::new();
        story.at(10).list(List::Containers, true, |story| {
            story.container('a', Role::Sandbox, 'a', "").container('c', Role::Container, 'a', "main");
        });
        story.list(List::Cgroups, true, |story| {
            for (number, digit) in [(21, 'a'), (22, 'c')] {
                story.listed(Fact::CgroupFound { cgroup: cgroup(number, &leaf(digit)), populated: true });
            }
        });
        story.list(List::Processes, true, |story| {
            story.found(Who::new(1, 0, "systemd"), 1, "/init.scope", "/sbin/init");
            story.found(PAUSE.within(21, netns), 1, &leaf('a'), "/pause");
            story.found(MAIN.within(22, netns), 1, &leaf('c'), "/usr/sbin/nginx");
        });
        let mut engine = Engine::new(Settings::default());
        feed(&mut engine, &story.facts, ms(0));
        let pods = engine.pods();
        let [pod] = &pods[..] else { panic!("one pod: {pods:#?}") };
        let [sandbox] = &pod.sandboxes[..] else { panic!("one sandbox: {pods:#?}") };
        assert_eq!(sandbox.host_network, is_host, "{sandbox:#?}");
        assert!(matches!(sandbox.state, State::Ready { .. }), "{sandbox:#?}");
    }
}

/// The records of a sandbox's end and of the next one's beginning were lost, and the kernel gave both
/// namespaces one number.
#[test]
fn a_namespace_at_another_file_after_a_gap_is_another_one() {
    const OTHER: &str = "/run/netns/cni-other";
    let pause = Who::new(744, SHIM, "pause").within(31, POD_NETNS);
    let mut story = Story::new();
    node(story.at(10), true);
    story.at(100).lost();
    story.at(110).list(List::Containers, true, |story| {
        story.container('b', Role::Sandbox, 'b', "");
    });
    story.list(List::CniCache, true, |story| {
        story.listed(Fact::CacheFound(CacheFound {
            network: "net".to_owned(),
            container: id('b'),
            ifname: "eth0".to_owned(),
            addresses: Vec::new(),
            netns: Some(OTHER.to_owned()),
            args: Vec::new(),
        }));
    });
    story.list(List::Cgroups, true, |story| {
        story.listed(Fact::CgroupFound { cgroup: cgroup(31, &leaf('b')), populated: true });
    });
    story.list(List::Processes, true, |story| {
        story.found(pause, 1, &leaf('b'), "/pause");
    });
    story.list(List::Netns, true, |story| {
        let mounts = vec![OTHER.to_owned()];
        story.listed(Fact::NetnsFound { netns: NetnsKey::new(POD_NETNS, 0), mounts, vacant: false });
    });
    story.list(List::Addresses, true, |story| {
        story.listed(Fact::AddressFound(address(pause, POD_NETNS, "10.88.0.6/24", "eth0")));
    });
    let mut engine = Engine::new(Settings::default());
    feed(&mut engine, &story.facts, ms(0));
    let pods = engine.pods();
    let [pod] = &pods[..] else { panic!("one pod: {pods:#?}") };
    let [ended, other] = &pod.sandboxes[..] else { panic!("two sandboxes: {pods:#?}") };
    assert!(matches!(ended.state, State::Stopped { .. }), "{ended:#?}");
    assert_eq!(other.netns, Some(NetnsKey::new(POD_NETNS, 0)));
    let addresses: Vec<_> = other.addresses.iter().map(|one| one.address.to_string()).collect();
    assert_eq!(addresses, ["10.88.0.6/24"]);
}

/// Until the node has been listed, the pod's own cgroup and its sandbox may exist unseen.
#[test]
fn a_pod_of_which_only_a_container_was_seen_is_not_gone_with_it() {
    let mut story = Story::new();
    let short = Who::new(694, SHIM, "true").within(22, POD_NETNS);
    story.at(10).mkdir(22, &leaf('c')).exec(short, TOP, "/bin/true").exit(short, TOP, 0);
    story.emptied(22, &leaf('c')).rmdir(22, &leaf('c'));
    node(story.at(30), true);
    story.at(60).rmdir(20, &format!("/kubepods/besteffort/pod{UID}"));
    story
        .at(70)
        .mkdir(25, &leaf('b').replace("1111-", "1112-"))
        .rmdir(25, &leaf('b').replace("1111-", "1112-"));
    story.check(
        "
            ? pod 11111111
            ? container c
            10 pod.first_seen [default/web-0]
            10 cgroup.created cccccccc [default/web-0 a c=main]
            11 process.exec /bin/true [default/web-0 a c=main]
            11 container.started true [default/web-0 a c=main]
            12 process.exit true 0 [default/web-0 a c=main]
            12 container.exited 0 Some(1) [default/web-0 a c=main]
            13 cgroup.emptied cccccccc [default/web-0 a c=main]
            14 cgroup.removed cccccccc [default/web-0 a c=main]
            35 sandbox.created [default/web-0 a] Listed
            ? pod 11111112
            ? container b
            60 cgroup.removed pod11111 [default/web-0]
            70 pod.first_seen [unnamed]
            70 cgroup.created bbbbbbbb [unnamed b]
            71 cgroup.removed bbbbbbbb [unnamed b]
        ",
    );
}

/// The plugin ran when the agent started. Its end is reported with the time since its process began.
#[test]
fn a_call_that_ran_already_is_finished() {
    let mut story = Story::new();
    story.at(6000).cni_found(call(586, CONTAINERD, "/usr/lib/cni/bridge", "ADD", PATH, 'a'));
    story.at(7000).exit(Who::new(586, CONTAINERD, "bridge"), class::CNI, 0);
    story.check(
        "
            6000 pod.first_seen [default/web-0] Listed
            6000 sandbox.created [default/web-0 a] Listed
            7000 cni.finished ADD bridge -> 0 in 1140 ms [default/web-0 a]
        ",
    );
}

/// The processes are listed while the record of the plugin's start waits in the ring.
#[test]
fn a_call_that_a_listing_shows_before_its_record_is_read_is_reported_as_seen() {
    let mut story = Story::new();
    story.at(6000).cni_found(call(586, CONTAINERD, "/usr/lib/cni/bridge", "ADD", PATH, 'a'));
    story.at(5900).cni(586, CONTAINERD, "/usr/lib/cni/bridge", "ADD", PATH);
    story.at(7000).exit(Who::new(586, CONTAINERD, "bridge"), class::CNI, 0);
    story.check(
        "
            6000 pod.first_seen [default/web-0] Listed
            6000 sandbox.created [default/web-0 a] Listed
            5900 cni.started ADD bridge [default/web-0 a] late
            7000 cni.finished ADD bridge -> 0 in 1100 ms [default/web-0 a]
        ",
    );
}
