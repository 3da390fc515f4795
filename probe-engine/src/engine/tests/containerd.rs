//! The order of a traced pod's life: containerd 1.6, runc 1.1, bridge with host-local, and portmap.

use probe_common::event::class;

use super::story::{CONTAINERD, DAEMON, HOST, POD_NETNS, SHIM, Story, UID, Who, id, leaf, run::check_lines};
use crate::model::fact::Role;

pub(super) const PATH: &str = "/var/run/netns/cni-732a3502";
pub(super) const TOP: u32 = class::CONTAINER_TOP | class::IN_CONTAINER;

pub(super) const PAUSE: Who = Who::new(644, SHIM, "pause").within(21, POD_NETNS);
const SLEEP: Who = Who::new(693, SHIM, "sleep").within(22, POD_NETNS);
const BRIDGE: Who = Who::new(586, CONTAINERD, "bridge");
const LOOPBACK: Who = Who::new(585, CONTAINERD, "loopback");

pub(super) fn start(story: &mut Story) {
    story.at(10).netns(DAEMON, POD_NETNS, 7);
    story.at(20).cni(585, CONTAINERD, "/usr/lib/cni/loopback", "ADD", PATH);
    story.cni(586, CONTAINERD, "/usr/lib/cni/bridge", "ADD", PATH);
    story.address(LOOPBACK, POD_NETNS, "127.0.0.1/8", "lo");
    story.exit(LOOPBACK, class::CNI, 0);
    story.cni(598, 586, "/usr/lib/cni/host-local", "ADD", PATH);
    story.exit(Who::new(598, 586, "host-local"), class::CNI, 0);
    story.address(BRIDGE, HOST, "10.88.0.1/24", "cni0");
    story.address(BRIDGE, POD_NETNS, "10.88.0.5/24", "eth0");
    story.cni(603, 586, "/usr/sbin/iptables", "ADD", PATH);
    story.exit(Who::new(603, 586, "iptables"), class::CNI, 0x100);
    story.exit(BRIDGE, class::CNI, 0);
    story.cni_done(612, "/usr/lib/cni/portmap", "ADD", PATH);
    let shim = Who::new(617, CONTAINERD, "containerd-shim");
    story.at(50).exec(
        shim,
        class::RUNTIME,
        &format!("/usr/bin/containerd-shim-runc-v2 -id {} start", id('a')),
    );
    story.exec(
        Who::new(SHIM, 617, "containerd-shim"),
        class::RUNTIME,
        &format!("containerd-shim-runc-v2 -id {} -address /x", id('a')),
    );
    story.exit(shim, class::RUNTIME, 0);
    story.exec(
        Who::new(634, SHIM, "runc"),
        class::RUNTIME,
        &format!("runc --root /r create --bundle /b {}", id('a')),
    );
    let init = Who::new(642, 634, "runc:[0:PARENT]");
    story.exec(Who::new(642, 634, "runc"), class::RUNTIME, "runc init");
    story.at(60).mkdir(20, &format!("/kubepods/besteffort/pod{UID}"));
    story.mkdir(21, &leaf('a'));
    story.exit(init.within(21, HOST), TOP, 0);
    story.exit(Who::new(634, SHIM, "runc"), class::RUNTIME, 0);
    story.at(70).exec(PAUSE, TOP | class::PAUSE, "/bin/pause");
}

pub(super) fn run(story: &mut Story) {
    story.at(100).exec(
        Who::new(683, SHIM, "runc"),
        class::RUNTIME,
        &format!("runc --root /r create --bundle /b {}", id('c')),
    );
    story.container('c', Role::Container, 'a', "main");
    story.mkdir(22, &leaf('c'));
    story.exec(Who::new(693, 683, "runc:[2:INIT]").within(22, POD_NETNS), TOP, "runc init");
    story.at(110).exec(SLEEP, TOP, "/bin/sleep 1000");
    story.exec(SLEEP, TOP, "/bin/sleep 2000");
}

pub(super) fn end(story: &mut Story) {
    let runc = Who::new(713, SHIM, "runc");
    story.at(200).exec(runc, class::RUNTIME, &format!("runc kill --all {} 9", id('c')));
    story.kill(runc, SLEEP, 9);
    story.exit(SLEEP, TOP, 9);
    story.emptied(22, &leaf('c'));
    story.rmdir(22, &leaf('c'));
    let runc = Who::new(749, SHIM, "runc");
    story.at(220).kill(runc, PAUSE, 9);
    story.kill(Who::new(750, SHIM, "runc"), PAUSE, 9);
    story.exit(PAUSE, TOP | class::PAUSE, 9);
    story.emptied(21, &leaf('a'));
    story.emptied(20, &format!("/kubepods/besteffort/pod{UID}"));
    story.emptied(19, "/kubepods/besteffort");
    story.rmdir(21, &leaf('a'));
    story.at(230).cni_done(779, "/usr/lib/cni/loopback", "DEL", PATH);
    story.cni(784, CONTAINERD, "/usr/lib/cni/bridge", "DEL", PATH);
    story.unaddress(Who::new(784, CONTAINERD, "bridge"), POD_NETNS, "10.88.0.5/24", "eth0");
    story.exit(Who::new(784, CONTAINERD, "bridge"), class::CNI, 0);
    story.at(240).dropped(POD_NETNS, 7);
    story.unaddress(Who::new(3, 2, "kworker/u4:1"), POD_NETNS, "127.0.0.1/8", "lo");
    story.freed(POD_NETNS);
}

pub(super) fn remove(story: &mut Story) {
    story.cni_done(814, "/usr/lib/cni/loopback", "DEL", "");
    story.cni_done(815, "/usr/lib/cni/bridge", "DEL", "");
}

/// The events of `start` and `run`.
pub(super) const RAN: &str = "
    ? container c
    10 netns.created 4026532177 [default/web-0 a]
    20 pod.first_seen [default/web-0]
    20 sandbox.created [default/web-0 a]
    20 cni.started ADD loopback [default/web-0 a]
    21 cni.started ADD bridge [default/web-0 a]
    22 address.added 127.0.0.1/8 lo 4026532177 [default/web-0 a]
    23 cni.finished ADD loopback -> 0 in 3 ms [default/web-0 a]
    24 cni.started ADD host-local by bridge [default/web-0 a]
    25 cni.finished ADD host-local -> 0 in 1 ms [default/web-0 a]
    26 address.added 10.88.0.1/24 cni0 4026531833
    27 address.added 10.88.0.5/24 eth0 4026532177 [default/web-0 a]
    30 cni.finished ADD bridge -> 0 in 9 ms [default/web-0 a]
    31 cni.started ADD portmap [default/web-0 a]
    32 cni.finished ADD portmap -> 0 in 1 ms [default/web-0 a]
    50 process.exec /usr/bin/containerd-shim-runc-v2 [default/web-0 a]
    51 process.exec containerd-shim-runc-v2 [default/web-0 a]
    52 process.exit containerd-shim 0 [default/web-0 a]
    53 process.exec runc [default/web-0 a]
    54 process.exec runc [default/web-0 a]
    60 cgroup.created pod11111 [default/web-0]
    61 cgroup.created aaaaaaaa [default/web-0 a]
    62 process.exit runc:[0:PARENT] 0 [default/web-0 a]
    63 process.exit runc 0 [default/web-0 a]
    70 process.exec /bin/pause [default/web-0 a]
    70 sandbox.ready 50 ms [default/web-0 a]
    100 process.exec runc [default/web-0 a c=main]
    102 cgroup.created cccccccc [default/web-0 a c=main]
    103 process.exec runc [default/web-0 a c=main]
    110 process.exec /bin/sleep [default/web-0 a c=main]
    110 container.started sleep [default/web-0 a c=main]
    111 process.exec /bin/sleep [default/web-0 a c=main]
";

#[test]
fn a_pods_life() {
    let mut story = Story::new();
    start(&mut story);
    run(&mut story);
    end(&mut story);
    remove(story.at(250));
    story.rmdir(20, &format!("/kubepods/besteffort/pod{UID}"));
    story.check(&format!(
        "{RAN}
            200 process.exec runc [default/web-0 a c=main]
            202 process.exit sleep 137 killed by runc [default/web-0 a c=main]
            202 container.exited 137 killed by runc Some(92) [default/web-0 a c=main]
            203 cgroup.emptied cccccccc [default/web-0 a c=main]
            204 cgroup.removed cccccccc [default/web-0 a c=main]
            222 process.exit pause 137 killed by runc [default/web-0 a]
            222 pod.started 100 ms [default/web-0 a] Agent
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
            241 address.removed 127.0.0.1/8 lo 4026532177 [default/web-0 a]
            242 netns.freed 4026532177 [default/web-0 a]
            250 cni.started DEL loopback [default/web-0 a]
            251 cni.finished DEL loopback -> 0 in 1 ms [default/web-0 a]
            252 cni.started DEL bridge [default/web-0 a]
            253 cni.finished DEL bridge -> 0 in 1 ms [default/web-0 a]
            254 cgroup.removed pod11111 [default/web-0]
            254 pod.gone 234 ms [default/web-0]
        ",
    ));
}

/// Linux 7 removes a directory before the last process in it is switched out, and reports only after that
/// that it is empty.
#[test]
fn a_directory_goes_before_it_is_empty() {
    let mut story = Story::new();
    let pod = format!("/kubepods/besteffort/pod{UID}");
    start(&mut story);
    run(&mut story);
    story.at(200).exit(SLEEP, TOP, 0).rmdir(22, &leaf('c')).emptied(22, &leaf('c'));
    story.at(210).exit(PAUSE, TOP | class::PAUSE, 0).rmdir(21, &leaf('a'));
    story.at(220).dropped(POD_NETNS, 7).freed(POD_NETNS).rmdir(20, &pod);
    let told = story.run();
    assert_eq!(told.last().map(String::as_str), Some("222 pod.gone 202 ms [default/web-0]"));
    story.at(230).emptied(21, &leaf('a')).emptied(20, &pod);
    let late = story.run().split_off(told.len()).join("\n");
    check_lines(
        &late,
        "
            230 cgroup.emptied aaaaaaaa [default/web-0 a]
            231 cgroup.emptied pod11111 [default/web-0]
        ",
    );
}

/// A wrapper that logs runs the real plugin, which then is in no directory of `CNI_PATH` and calls the IPAM
/// plugin.
#[test]
fn a_plugin_in_a_wrapper_is_one_call() {
    let mut story = Story::new();
    story.at(20).cni(586, CONTAINERD, "/usr/lib/cni/bridge", "ADD", PATH);
    story.cni(587, 586, "/opt/real/bridge", "ADD", PATH);
    story.cni(588, 587, "/usr/lib/cni/host-local", "ADD", PATH);
    for pid in [588, 587, 586] {
        story.exit(Who::new(pid, pid - 1, "plugin"), class::CNI, 0);
    }
    let calls = story.run().into_iter().filter(|line| line.contains("cni.")).collect::<Vec<_>>().join("\n");
    check_lines(
        &calls,
        "
            20 cni.started ADD bridge [default/web-0 a]
            22 cni.started ADD host-local by bridge [default/web-0 a]
            23 cni.finished ADD host-local -> 0 in 1 ms [default/web-0 a]
            25 cni.finished ADD bridge -> 0 in 5 ms [default/web-0 a]
        ",
    );
}

/// `out=$(sed … | bridge)` in a plugin that is a shell script: the shell forks itself before it runs bridge,
/// and no hook sees that.
#[test]
fn a_plugin_that_a_fork_of_another_one_runs_is_no_call_of_the_runtime() {
    let told = |parent: u32| {
        let mut story = Story::new();
        story.at(20).cni(586, CONTAINERD, "/usr/lib/cni/wrap", "ADD", PATH);
        story.cni(588, parent, "/usr/lib/cni/bridge", "ADD", PATH);
        let lines = story.run().into_iter().filter(|line| line.contains("started ADD bridge"));
        lines.collect::<Vec<_>>()
    };
    assert_eq!(told(587), ["21 cni.started ADD bridge by wrap [default/web-0 a]"]);
    assert_eq!(told(CONTAINERD), ["21 cni.started ADD bridge [default/web-0 a]"], "the runtime's own");
}

/// Another program still mounts the namespace. Its end, minutes later, is reported with the same pod.
#[test]
fn a_namespace_that_outlives_its_sandbox_keeps_its_name() {
    let mut story = Story::new();
    start(&mut story);
    story.at(100).exit(PAUSE, TOP | class::PAUSE, 0).rmdir(21, &leaf('a'));
    story.at(110).cni_done(784, "/usr/lib/cni/bridge", "DEL", PATH);
    story.at(120).rmdir(20, &format!("/kubepods/besteffort/pod{UID}"));
    story.at(300_000).moment().at(600_000).moment();
    let told = story.run().len();
    story.dropped(POD_NETNS, 7).freed(POD_NETNS);
    let late = story.run().split_off(told).join("\n");
    check_lines(
        &late,
        "
            600001 netns.destroyed 4026532177 [default/web-0 a]
            600001 pod.gone 599981 ms [default/web-0]
            600002 address.removed 127.0.0.1/8 lo 4026532177 [default/web-0 a]
            600002 address.removed 10.88.0.5/24 eth0 4026532177 [default/web-0 a]
            600002 netns.freed 4026532177 [default/web-0 a]
        ",
    );
}

/// The kubelet removes a dead sandbox long after the pod's end. The DELs of that second round are for a
/// sandbox that is over.
#[test]
fn a_blind_second_round_of_del_begins_nothing() {
    let mut story = Story::new();
    start(&mut story);
    end(&mut story);
    story.rmdir(20, &format!("/kubepods/besteffort/pod{UID}"));
    story.at(590_000).moment();
    let told = story.run().len();
    remove(story.at(600_000));
    let mut lines = story.run();
    let late = lines.split_off(told).join("\n");
    check_lines(
        &late,
        "
            600000 cni.started DEL loopback [default/web-0 a]
            600001 cni.finished DEL loopback -> 0 in 1 ms [default/web-0 a]
            600002 cni.started DEL bridge [default/web-0 a]
            600003 cni.finished DEL bridge -> 0 in 1 ms [default/web-0 a]
        ",
    );
}
