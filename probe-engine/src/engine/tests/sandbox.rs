//! Sandboxes of which a part is missing or comes in another order.

use probe_common::event::class;

use super::{
    containerd::{PATH, PAUSE, TOP},
    story::{CONTAINERD, DAEMON, HOST, POD_NETNS, SHIM, Story, UID, Who, call, id, leaf, pod_name, uid},
};
use crate::model::fact::{Caller, ContainerFound, Fact, NameSource, Origin, Role};

const CRIO: Who = Who::new(700, 1, "crio");

fn shim(story: &mut Story) {
    let line = format!("/usr/bin/containerd-shim-runc-v2 -id {} start", id('a'));
    story.exec(Who::new(SHIM, CONTAINERD, "containerd-shim"), class::RUNTIME, &line);
}

/// CRI-O's order: pinns makes and pins the namespace, and only the pin holds the sandbox.
#[test]
fn crio_holds_a_sandbox_without_a_process() {
    let mut story = Story::new();
    let pinns = Who::new(710, 700, "pinns");
    let path = "/var/run/netns/9ab4";
    story.at(5).mkdir(20, &format!("/kubepods/besteffort/pod{UID}"));
    story.at(10).exec(pinns, class::RUNTIME, "/usr/bin/pinns -d /var/run -f 9ab4 -n");
    story.netns(pinns, POD_NETNS, 7);
    story.exit(pinns, class::RUNTIME, 0);
    let mut add = call(720, 700, "/usr/lib/cni/bridge", "ADD", path, 'a');
    add.caller = Some(Caller { key: CRIO.task().key, comm: "crio".to_owned() });
    story.at(20).kernel(Fact::CniCalled(add));
    story.address(Who::new(720, 700, "bridge"), POD_NETNS, "10.88.0.9/24", "eth0");
    story.exit(Who::new(720, 700, "bridge"), class::CNI, 0);
    let name = "k8s_main_web-0_default_11111111-2222-3333-4444-555555555555_0";
    story.at(40).mkdir(23, &format!("/kubepods/besteffort/pod{UID}/crio-conmon-{}", id('c')));
    story.exec(
        Who::new(730, 1, "conmon"),
        class::RUNTIME,
        &format!("/usr/bin/conmon -b /b -c {} -n {name}", id('c')),
    );
    story.mkdir(22, &format!("/kubepods/besteffort/pod{UID}/crio-{}", id('c')));
    let main = Who::new(740, 730, "nginx").within(22, POD_NETNS);
    story.exec(main, TOP, "/usr/sbin/nginx");
    story.at(90).exit(main, TOP, 0x300);
    story.emptied(22, &format!("/kubepods/besteffort/pod{UID}/crio-{}", id('c')));
    story.rmdir(22, &format!("/kubepods/besteffort/pod{UID}/crio-{}", id('c')));
    story.at(100).cni_done(750, "/usr/lib/cni/bridge", "DEL", path);
    story.dropped(POD_NETNS, 7).freed(POD_NETNS);
    story.rmdir(20, &format!("/kubepods/besteffort/pod{UID}"));
    story.check(
        "
            ? pod 11111111
            ? container c
            5 pod.first_seen [default/web-0]
            5 cgroup.created pod11111 [default/web-0]
            10 process.exec /usr/bin/pinns
            11 netns.created 4026532177 [default/web-0 a]
            12 process.exit pinns 0
            20 sandbox.created [default/web-0 a]
            20 cni.started ADD bridge [default/web-0 a]
            21 address.added 10.88.0.9/24 eth0 4026532177 [default/web-0 a]
            22 cni.finished ADD bridge -> 0 in 2 ms [default/web-0 a]
            40 cgroup.created crio-con [default/web-0]
            41 process.exec /usr/bin/conmon [default/web-0 a c=main]
            42 cgroup.created crio-ccc [default/web-0 a c=main]
            43 process.exec /usr/sbin/nginx [default/web-0 a c=main]
            43 container.started nginx [default/web-0 a c=main]
            43 sandbox.ready 23 ms [default/web-0 a]
            90 process.exit nginx 3 [default/web-0 a c=main]
            90 container.exited 3 Some(47) [default/web-0 a c=main]
            91 cgroup.emptied crio-ccc [default/web-0 a c=main]
            92 cgroup.removed crio-ccc [default/web-0 a c=main]
            100 cni.started DEL bridge [default/web-0 a]
            100 pod.started 38 ms [default/web-0 a] Agent
            100 sandbox.stopped NetworkRemoved [default/web-0 a]
            101 cni.finished DEL bridge -> 0 in 1 ms [default/web-0 a]
            102 netns.destroyed 4026532177 [default/web-0 a]
            103 address.removed 10.88.0.9/24 eth0 4026532177 [default/web-0 a]
            103 netns.freed 4026532177 [default/web-0 a]
            104 cgroup.removed pod11111 [default/web-0]
            104 pod.gone 99 ms [default/web-0]
        ",
    );
}

/// For a pod on the node's network CRI-O has only its own record.
#[test]
fn a_sandbox_that_is_only_a_record_ends_with_the_pods_directory() {
    let mut story = Story::new();
    let pod = format!("/kubepods/besteffort/pod{UID}");
    let main = Who::new(740, 730, "nginx").within(22, HOST);
    story.at(5).mkdir(20, &pod);
    story.at(10).mkdir(22, &format!("{pod}/crio-{}", id('c')));
    story.at(20).container('c', Role::Container, 'a', "main");
    story.at(30).exec(main, TOP, "/usr/sbin/nginx").exit(main, TOP, 0);
    story.at(40).rmdir(22, &format!("{pod}/crio-{}", id('c'))).rmdir(20, &pod);
    story.check(
        "
            ? pod 11111111
            ? container c
            5 pod.first_seen [default/web-0]
            5 cgroup.created pod11111 [default/web-0]
            10 cgroup.created crio-ccc [default/web-0 a c=main]
            10 sandbox.created [default/web-0 a] late
            30 process.exec /usr/sbin/nginx [default/web-0 a c=main]
            30 container.started nginx [default/web-0 a c=main]
            30 sandbox.ready 20 ms [default/web-0 a]
            31 process.exit nginx 0 [default/web-0 a c=main]
            31 container.exited 0 Some(1) [default/web-0 a c=main]
            40 cgroup.removed crio-ccc [default/web-0 a c=main]
            41 cgroup.removed pod11111 [default/web-0]
            41 pod.started 25 ms [default/web-0 a] Agent
            41 sandbox.stopped Emptied [default/web-0 a]
            41 pod.gone 36 ms [default/web-0]
        ",
    );
}

/// Only the folder of its logs or the bundle gives the name.
#[test]
fn a_host_network_pod_is_named_by_its_bundle() {
    let mut story = Story::new();
    story.at(5).mkdir(20, &format!("/kubepods/besteffort/pod{UID}"));
    story.at(10).kernel(super::story::executed(DAEMON, class::CALLER, "/usr/bin/containerd"));
    shim(story.at(20));
    story.at(30).container('a', Role::Sandbox, 'a', "");
    story.at(40).mkdir(21, &leaf('a'));
    story.at(50).exec(PAUSE.within(21, HOST), TOP | class::PAUSE, "/bin/pause");
    story.at(60).mkdir(22, &leaf('c'));
    story.exec(Who::new(693, SHIM, "sleep").within(22, HOST), TOP, "/bin/sleep 9");
    story.at(90).container('c', Role::Container, 'a', "main");
    story.check(
        "
            ? pod 11111111
            ? container a
            5 pod.first_seen [default/web-0]
            5 cgroup.created pod11111 [default/web-0]
            10 process.exec /usr/bin/containerd
            20 process.exec /usr/bin/containerd-shim-runc-v2 [default/web-0 a]
            20 sandbox.created [default/web-0 a]
            ? container c
            40 cgroup.created aaaaaaaa [default/web-0 a]
            50 process.exec /bin/pause [default/web-0 a]
            50 sandbox.ready 30 ms [default/web-0 a]
            60 cgroup.created cccccccc [default/web-0 a c=main]
            61 process.exec /bin/sleep [default/web-0 a c=main]
            61 container.started sleep [default/web-0 a c=main]
        ",
    );
}

/// No source answers, and only the pod's UID is known. After the hold its events are sent, once, with what is
/// known.
#[test]
fn without_a_name_the_hold_ends() {
    let mut story = Story::new();
    story.at(5).mkdir(20, &format!("/kubepods/besteffort/pod{UID}"));
    story.at(10).mkdir(22, &leaf('c'));
    story.exec(Who::new(693, SHIM, "sleep").within(22, HOST), TOP, "/bin/sleep 9");
    story.at(1500).moment();
    story.at(1600).listed(Fact::PodFound {
        uid: uid(),
        namespace: "default".to_owned(),
        name: "web-0".to_owned(),
        source: NameSource::LogFolder,
    });
    story.at(1700).exit(Who::new(693, SHIM, "sleep").within(22, HOST), TOP, 0);
    story.check(
        "
            ? pod 11111111
            ? container c
            5 pod.first_seen [unnamed]
            5 cgroup.created pod11111 [unnamed]
            10 cgroup.created cccccccc [unnamed c]
            11 process.exec /bin/sleep [unnamed c]
            11 container.started sleep [unnamed c]
            1700 process.exit sleep 0 [default/web-0 c]
            1700 container.exited 0 Some(1689) [default/web-0 c]
        ",
    );
}

/// With a user namespace the OCI runtime makes the network namespace, and CNI is called while pause runs.
#[test]
fn a_user_namespaced_pod_is_connected_afterwards() {
    let mut story = Story::new();
    story.at(5).kernel(super::story::executed(DAEMON, class::CALLER, "/usr/bin/containerd"));
    shim(story.at(10));
    story.at(20).mkdir(20, &format!("/kubepods/besteffort/pod{UID}"));
    story.mkdir(21, &leaf('a'));
    let init = Who::new(644, 643, "runc:[1:CHILD]").within(21, POD_NETNS);
    story.netns(init, POD_NETNS, 7);
    story.at(30).exec(PAUSE, TOP | class::PAUSE, "/bin/pause");
    story.at(40).cni(586, CONTAINERD, "/usr/lib/cni/bridge", "ADD", "/proc/644/ns/net");
    story.address(Who::new(586, CONTAINERD, "bridge"), POD_NETNS, "10.88.0.5/24", "eth0");
    story.exit(Who::new(586, CONTAINERD, "bridge"), class::CNI, 0);
    story.check(
        "
            ? container a
            ? pod 11111111
            5 process.exec /usr/bin/containerd
            10 process.exec /usr/bin/containerd-shim-runc-v2 [default/web-0 a]
            10 sandbox.created [default/web-0 a]
            20 pod.first_seen [default/web-0]
            20 cgroup.created pod11111 [default/web-0]
            21 cgroup.created aaaaaaaa [default/web-0 a]
            22 netns.created 4026532177 [default/web-0 a]
            30 process.exec /bin/pause [default/web-0 a]
            40 cni.started ADD bridge [default/web-0 a]
            41 address.added 10.88.0.5/24 eth0 4026532177 [default/web-0 a]
            42 cni.finished ADD bridge -> 0 in 2 ms [default/web-0 a]
            42 sandbox.ready 32 ms [default/web-0 a]
        ",
    );
}

#[test]
fn a_failed_add_is_retried_in_the_same_sandbox() {
    let mut story = Story::new();
    story.at(10).netns(DAEMON, POD_NETNS, 7);
    story.at(20).cni(585, CONTAINERD, "/usr/lib/cni/bridge", "ADD", PATH);
    story.exit(Who::new(585, CONTAINERD, "bridge"), class::CNI, 0x100);
    story.at(30).cni(586, CONTAINERD, "/usr/lib/cni/bridge", "ADD", PATH);
    story.mkdir(21, &leaf('a'));
    story.exec(PAUSE, TOP | class::PAUSE, "/bin/pause");
    story.exit(Who::new(586, CONTAINERD, "bridge"), class::CNI, 0);
    story.check(
        "
            ? message a
            10 netns.created 4026532177 [default/web-0 a]
            20 pod.first_seen [default/web-0]
            20 sandbox.created [default/web-0 a]
            20 cni.started ADD bridge [default/web-0 a]
            21 cni.finished ADD bridge -> 1 in 1 ms [default/web-0 a]
            30 cni.started ADD bridge [default/web-0 a]
            31 cgroup.created aaaaaaaa [default/web-0 a]
            32 process.exec /bin/pause [default/web-0 a]
            33 cni.finished ADD bridge -> 0 in 3 ms [default/web-0 a]
            33 sandbox.ready 13 ms [default/web-0 a]
        ",
    );
}

/// The calls of a CNI daemon in its container count only while the node's own runtime has a call open.
#[test]
fn delegated_calls_are_shown_while_the_host_has_one_open() {
    let mut story = Story::new();
    let delegated = |pid, command: &str| {
        let mut call = call(pid, 800, "/usr/lib/cni/ipvlan", command, PATH, 'a');
        (call.host, call.caller) = (false, None);
        Fact::CniCalled(call)
    };
    story.at(10).say(Origin::Delegated, delegated(810, "ADD"));
    story.exit(Who::new(810, 800, "ipvlan"), class::CNI, 0);
    story.at(20).cni(586, CONTAINERD, "/usr/lib/cni/multus-shim", "ADD", PATH);
    story.say(Origin::Delegated, delegated(811, "ADD"));
    story.exit(Who::new(811, 800, "ipvlan"), class::CNI, 0);
    story.exit(Who::new(586, CONTAINERD, "multus-shim"), class::CNI, 0);
    story.at(30).say(Origin::Delegated, delegated(812, "DEL"));
    story.cni_done(813, "/usr/lib/cni/bridge", "VERSION", PATH);
    story.cni_done(814, "/usr/lib/cni/bridge", "STATUS", PATH);
    story.cni_done(815, "/usr/lib/cni/bridge", "CHECK", PATH);
    story.check(
        "
            20 pod.first_seen [default/web-0]
            20 sandbox.created [default/web-0 a]
            20 cni.started ADD multus-shim [default/web-0 a]
            21 cni.started ADD ipvlan [default/web-0 a] Delegated
            22 cni.finished ADD ipvlan -> 0 in 1 ms [default/web-0 a] Delegated
            23 cni.finished ADD multus-shim -> 0 in 3 ms [default/web-0 a]
            35 cni.started CHECK bridge [default/web-0 a]
            36 cni.finished CHECK bridge -> 0 in 1 ms [default/web-0 a]
        ",
    );
}

/// Two sandboxes are made at the same time. The plugin's work shows which namespace belongs to which.
#[test]
fn of_two_namespaces_made_at_once_neither_is_guessed() {
    let mut story = Story::new();
    story.at(10).netns(DAEMON, POD_NETNS, 7);
    story.netns(DAEMON, POD_NETNS + 1, 8);
    let mut other = call(587, CONTAINERD, "/usr/lib/cni/loopback", "ADD", "/run/netns/other", 'b');
    other.variables.args = Some("K8S_POD_NAMESPACE=default;K8S_POD_NAME=other".to_owned());
    story.at(20).kernel(Fact::CniCalled(other));
    story.cni(586, CONTAINERD, "/usr/lib/cni/loopback", "ADD", PATH);
    story.at(30).address(Who::new(586, CONTAINERD, "loopback"), POD_NETNS, "127.0.0.1/8", "lo");
    story.address(Who::new(587, CONTAINERD, "loopback"), POD_NETNS + 1, "127.0.0.1/8", "lo");
    story.check(
        "
            ? netns /run/netns/other
            ? netns /var/run/netns/cni-732a3502
            10 netns.created 4026532177 [default/web-0 a]
            11 netns.created 4026532178 [default/other b]
            20 pod.first_seen [default/other]
            20 sandbox.created [default/other b]
            20 cni.started ADD loopback [default/other b]
            21 pod.first_seen [default/web-0]
            21 sandbox.created [default/web-0 a]
            21 cni.started ADD loopback [default/web-0 a]
            30 address.added 127.0.0.1/8 lo 4026532177 [default/web-0 a]
            31 address.added 127.0.0.1/8 lo 4026532178 [default/other b]
        ",
    );
}

/// An older runtime does not pass the UID to plugins. The pod is known by its cgroup and, separately, by its
/// name.
#[test]
fn a_name_and_a_uid_come_together_in_the_sandboxs_cgroup() {
    let mut story = Story::new();
    let mut add = call(586, CONTAINERD, "/usr/lib/cni/bridge", "ADD", PATH, 'a');
    add.variables.args = Some("K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0".to_owned());
    story.at(5).mkdir(20, &format!("/kubepods/besteffort/pod{UID}"));
    story.at(20).kernel(Fact::CniCalled(add));
    story.exit(Who::new(586, CONTAINERD, "bridge"), class::CNI, 0);
    story.at(40).mkdir(21, &leaf('a'));
    story.exec(PAUSE, TOP | class::PAUSE, "/bin/pause");
    story.at(50).exit(PAUSE, TOP | class::PAUSE, 0);
    story.rmdir(21, &leaf('a'));
    story.rmdir(20, &format!("/kubepods/besteffort/pod{UID}"));
    story.check(
        "
            ? pod 11111111
            5 pod.first_seen [default/web-0]
            5 cgroup.created pod11111 [default/web-0]
            20 pod.first_seen [default/web-0]
            20 sandbox.created [default/web-0 a]
            20 cni.started ADD bridge [default/web-0 a]
            21 cni.finished ADD bridge -> 0 in 1 ms [default/web-0 a]
            40 cgroup.created aaaaaaaa [default/web-0 a]
            41 process.exec /bin/pause [default/web-0 a]
            41 sandbox.ready 21 ms [default/web-0 a]
            50 process.exit pause 0 [default/web-0 a]
            50 sandbox.stopped PauseExited [default/web-0 a]
            51 cgroup.removed aaaaaaaa [default/web-0 a]
            52 cgroup.removed pod11111 [default/web-0]
            52 pod.gone 47 ms [default/web-0]
        ",
    );
}

/// The answer about a container comes late. The event that follows from it is marked late and has its own
/// time.
#[test]
fn a_sandbox_that_shows_late_is_reported_late() {
    let mut story = Story::new();
    story.at(5).mkdir(20, &format!("/kubepods/besteffort/pod{UID}"));
    story.at(10).mkdir(21, &leaf('a'));
    story.exec(Who::new(693, SHIM, "holder").within(21, HOST), TOP, "/holder");
    story.at(2000).moment();
    story.at(3000).container('a', Role::Sandbox, 'a', "");
    story.at(4000).exit(Who::new(693, SHIM, "holder").within(21, HOST), TOP, 0);
    story.check(
        "
            ? pod 11111111
            ? container a
            5 pod.first_seen [unnamed]
            5 cgroup.created pod11111 [unnamed]
            10 cgroup.created aaaaaaaa [unnamed a]
            11 process.exec /holder [unnamed a]
            11 container.started holder [unnamed a]
            10 sandbox.created [default/web-0 a] late
            11 sandbox.ready 1 ms [default/web-0 a] late
            4000 process.exit holder 0 [default/web-0 a]
            4000 sandbox.stopped PauseExited [default/web-0 a]
        ",
    );
}

#[test]
fn an_oom_kill_is_not_laid_to_who_asked_for_memory() {
    let mut story = Story::new();
    let main = Who::new(693, SHIM, "java").within(22, HOST);
    story.listed(Fact::ContainerFound(ContainerFound {
        id: id('c'),
        role: Role::Container,
        sandbox: None,
        name: Some("main".to_owned()),
        pod: Some(pod_name()),
        source: NameSource::Bundle,
        started: None,
    }));
    story.at(5).mkdir(22, &leaf('c'));
    story.exec(main, TOP, "/usr/bin/java");
    story.at(50).kernel(Fact::OomKilled(crate::model::fact::Signaled {
        target: main.task(),
        signal: 9,
        code: 0,
        sender: Who::new(999, 1, "victim").task(),
    }));
    story.exit(main, TOP, 9);
    story.check(
        "
            ? pod 11111111
            5 pod.first_seen [default/web-0]
            5 cgroup.created cccccccc [default/web-0 c=main]
            6 process.exec /usr/bin/java [default/web-0 c=main]
            6 container.started java [default/web-0 c=main]
            51 process.exit java 137 oom [default/web-0 c=main]
            51 container.exited 137 oom Some(45) [default/web-0 c=main]
        ",
    );
}
