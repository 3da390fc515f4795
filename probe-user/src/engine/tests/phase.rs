//! Where the time of starts went, to the millisecond.

mod cause;

use std::time::Duration;

use probe_common::event::class;

use super::{
    containerd::{PATH, TOP},
    story::{
        CONTAINERD, DAEMON, HOST, POD_NETNS, SHIM, Story, UID, Who, call, id, key, leaf, ms, run::check_lines,
    },
};
use crate::engine::{
    Engine,
    fact::{Fact, Observation, Role},
    phase::{Kind, Phase, Start},
};

const SECOND: u64 = 1000;
const FAILED: u32 = 0x100;

fn pod_path() -> String {
    format!("/kubepods/besteffort/pod{UID}")
}

/// The pod's cgroup at 100.
fn begin(story: &mut Story) {
    story.at(100).mkdir(20, &pod_path());
}

/// One ADD of a plugin for the sandbox; `from` and `to` are when it begins and ends.
fn add(story: &mut Story, sandbox: char, pid: u32, plugin: &str, (from, to): (u64, u64), status: u32) {
    let plugin = format!("/usr/lib/cni/{plugin}");
    story.at(from).kernel(Fact::CniCalled(call(pid, CONTAINERD, &plugin, "ADD", PATH, sandbox)));
    story.at(to).exit(Who::new(pid, CONTAINERD, "plugin"), class::CNI, status);
}

/// The sandbox's own part after its network: shim, cgroup, pause.
fn pause(story: &mut Story, sandbox: char, at: u64, netns: u32) {
    let line = format!("containerd-shim-runc-v2 -id {} -address /x", id(sandbox));
    story.at(at - 20).exec(Who::new(SHIM, 1, "containerd-shim"), class::RUNTIME, &line);
    story.container(sandbox, Role::Sandbox, sandbox, "");
    story.at(at - 10).mkdir(21, &leaf(sandbox));
    story.at(at).exec(Who::new(644, SHIM, "pause").within(21, netns), TOP | class::PAUSE, "/pause");
}

/// Its runtime at `at`, its cgroup 20 ms later, its program 50 ms after that.
fn container(story: &mut Story, digit: char, name: &str, at: u64) {
    let number = u64::from(digit);
    let pid = 1000 + u32::from(digit);
    let line = format!("runc --root /r create --bundle /b {}", id(digit));
    story.at(at).exec(Who::new(pid + 500, SHIM, "runc"), class::RUNTIME, &line);
    story.container(digit, Role::Container, 'a', name);
    story.at(at + 20).mkdir(number, &leaf(digit));
    story.at(at + 70).exec(main_of(digit), TOP, "/main");
}

fn main_of(digit: char) -> Who {
    Who::new(1000 + u32::from(digit), SHIM, "main").within(u64::from(digit), POD_NETNS)
}

fn ends(story: &mut Story, digit: char, at: u64, status: u32) {
    story.at(at).exit(main_of(digit), TOP, status);
    story.emptied(u64::from(digit), &leaf(digit)).rmdir(u64::from(digit), &leaf(digit));
}

/// Up to pause, at 500: a pod whose network takes 200 ms.
fn sandbox(story: &mut Story) {
    begin(story);
    story.at(150).netns(DAEMON, POD_NETNS, 7);
    add(story, 'a', 585, "bridge", (160, 360), 0);
    add(story, 'a', 586, "portmap", (365, 400), 0);
    pause(story, 'a', 500, POD_NETNS);
}

/// `100..570 prepare 50 netns 10 …`, and what makes it less than whole.
fn line(start: &Start) -> String {
    let part = |phase: &Phase| {
        let name = if let Kind::Cni { plugin, .. } = &phase.kind {
            plugin.clone()
        } else {
            format!("{:?}", phase.kind).to_lowercase()
        };
        let of = phase.container.as_ref().and_then(|it| it.name.as_ref());
        let gapped = if phase.gapped { "!" } else { "" };
        let of = of.map(|name| format!("({name})")).unwrap_or_default();
        format!("{name}{of} {}{gapped}", phase.took().as_millis())
    };
    let parts: Vec<String> = start.phases.iter().map(part).collect();
    let marks = [
        (!start.complete, " open"),
        (start.revised, " revised"),
        (start.rebuilt, " rebuilt"),
        (start.listed, " listed"),
    ];
    let marks: String = marks.iter().filter(|(is_so, _)| *is_so).map(|(_, mark)| *mark).collect();
    let at = |ns: u64| ns / 1_000_000;
    format!("{}..{}{marks}: {}", at(start.begin.0), at(start.end.0), parts.join(", "))
}

fn play(story: &Story, until: u64) -> Engine {
    story.judge(until).1
}

/// The starts as they are at a time, and how often one was told to be complete.
#[track_caller]
fn check(story: &Story, until: u64, expected: &str) -> Engine {
    let engine = play(story, until);
    let starts = engine.starts();
    for start in &starts {
        let sum: Duration = start.phases.iter().map(Phase::took).sum();
        assert_eq!(sum, start.total(), "{start:#?}");
    }
    let told = engine.counts().told.get("pod.started").copied().unwrap_or(0);
    let lines: Vec<String> = starts.iter().map(line).chain([format!("told {told}")]).collect();
    check_lines(&lines.join("\n"), expected);
    engine
}

const MINUTE: u64 = 60 * SECOND;

#[test]
fn a_simple_pod() {
    let mut story = Story::new();
    sandbox(&mut story);
    container(&mut story, 'c', "main", 3 * SECOND);
    let engine = check(
        &story,
        MINUTE,
        "
            100..3070: prepare 50, netns 10, bridge 200, between 5, portmap 35, pause 100, image(main) 2500, runtime(main) 20, cgroup(main) 50
            told 1
        ",
    );
    let pods = engine.pods();
    let start = pods[0].start.as_ref().expect("a start");
    assert_eq!(start.slowest().map(|phase| phase.kind.clone()), Some(Kind::Image));
    assert_eq!(start.pod.name.as_deref(), Some("web-0"));
    assert!(start.is_whole());
}

#[test]
fn a_start_is_not_complete_before_it_was_quiet() {
    let mut story = Story::new();
    sandbox(&mut story);
    check(
        &story,
        2 * SECOND,
        "
            100..1501 open: prepare 50, netns 10, bridge 200, between 5, portmap 35, pause 100, image 1001
            told 0
        ",
    );
    container(&mut story, 'c', "main", 3 * SECOND);
    let open = "100..3070 open: prepare 50, netns 10, bridge 200, between 5, portmap 35, pause 100, \
                image(main) 2500, runtime(main) 20, cgroup(main) 50\ntold 0";
    check(&story, 33 * SECOND, open);
    check(&story, 33 * SECOND + 70, &open.replace(" open", "").replace("told 0", "told 1"));
}

#[test]
fn each_container_has_its_part() {
    let mut story = Story::new();
    sandbox(&mut story);
    container(&mut story, 'c', "main", SECOND);
    container(&mut story, 'd', "side", 2 * SECOND);
    check(
        &story,
        MINUTE,
        "
            100..2070: prepare 50, netns 10, bridge 200, between 5, portmap 35, pause 100, image(main) 500, runtime(main) 20, cgroup(main) 50, image(side) 930, runtime(side) 20, cgroup(side) 50
            told 1
        ",
    );
}

#[test]
fn an_init_container_is_inferred_and_its_restarts_are_its_own() {
    let mut story = Story::new();
    sandbox(&mut story);
    container(&mut story, 'c', "init", SECOND);
    ends(&mut story, 'c', 2070, 0x100);
    container(&mut story, 'd', "init", 3 * SECOND);
    ends(&mut story, 'd', 3570, 0);
    container(&mut story, 'e', "main", 4 * SECOND);
    let engine = check(
        &story,
        MINUTE,
        "
            100..4070: prepare 50, netns 10, bridge 200, between 5, portmap 35, pause 100, image(init) 500, runtime(init) 20, cgroup(init) 50, init(init) 2500, image(main) 430, runtime(main) 20, cgroup(main) 50
            told 1
        ",
    );
    let starts = engine.starts();
    let init = starts[0].phases.iter().find(|phase| phase.kind == Kind::Init).expect("an init container");
    assert_eq!(init.cause.runs, 2);
}

/// What a container is may be answered only after its end.
#[test]
fn an_init_container_that_is_quicker_than_the_answer_ran_all_the_same() {
    let mut story = Story::new();
    sandbox(&mut story);
    container(&mut story, 'c', "init", SECOND);
    ends(&mut story, 'c', 1080, 0);
    let is_answer =
        |seen: &Observation| matches!(&seen.fact, Fact::ContainerFound(it) if it.role == Role::Container);
    story.facts.retain(|seen| !is_answer(seen));
    story.at(1100).container('c', Role::Container, 'a', "init");
    container(&mut story, 'e', "main", 2 * SECOND);
    check(
        &story,
        MINUTE,
        "
            100..2070: prepare 50, netns 10, bridge 200, between 5, portmap 35, pause 100, image(init) 500, runtime(init) 20, cgroup(init) 50, init(init) 10, image(main) 920, runtime(main) 20, cgroup(main) 50
            told 1
        ",
    );
}

#[test]
fn an_init_container_that_takes_long_revises_the_start() {
    let mut story = Story::new();
    sandbox(&mut story);
    container(&mut story, 'c', "init", SECOND);
    story.until(50 * SECOND);
    ends(&mut story, 'c', 50 * SECOND, 0);
    container(&mut story, 'e', "main", 51 * SECOND);
    check(
        &story,
        2 * MINUTE,
        "
            100..51070 revised: prepare 50, netns 10, bridge 200, between 5, portmap 35, pause 100, image(init) 500, runtime(init) 20, cgroup(init) 50, init(init) 48930, image(main) 1000, runtime(main) 20, cgroup(main) 50
            told 2
        ",
    );
}

#[test]
fn a_restart_is_no_part_of_a_start() {
    let mut story = Story::new();
    sandbox(&mut story);
    container(&mut story, 'c', "main", SECOND);
    ends(&mut story, 'c', 2 * SECOND, 0x100);
    container(&mut story, 'd', "main", 3 * SECOND);
    story.until(40 * SECOND);
    ends(&mut story, 'd', 40 * SECOND, 0x100);
    container(&mut story, 'e', "main", 50 * SECOND);
    check(
        &story,
        2 * MINUTE,
        "
            100..1070: prepare 50, netns 10, bridge 200, between 5, portmap 35, pause 100, image(main) 500, runtime(main) 20, cgroup(main) 50
            told 1
        ",
    );
}

/// A restart that is in the making does not make the start longer, nor hold it open.
#[test]
fn a_restart_that_is_announced_is_none_of_the_start() {
    let mut story = Story::new();
    sandbox(&mut story);
    container(&mut story, 'c', "main", SECOND);
    ends(&mut story, 'c', 2 * SECOND, 0x100);
    container(&mut story, 'd', "main", 20 * SECOND);
    story.facts.retain(|seen| seen.at < ms(20_070));
    let expected = "100..1070: prepare 50, netns 10, bridge 200, between 5, portmap 35, pause 100, \
                    image(main) 500, runtime(main) 20, cgroup(main) 50\ntold 1";
    let open = expected.replace("1070:", "1070 open:").replace("told 1", "told 0");
    check(&story, 22 * SECOND, &open);
    check(&story, 32 * SECOND, expected);
}

/// As containerd does it: each try is a new sandbox.
#[test]
fn sandboxes_whose_add_failed_are_one_phase() {
    let mut story = Story::new();
    begin(&mut story);
    for (n, digit) in (0..).zip(['d', 'e']) {
        let at = 200 + 10 * SECOND * n;
        let inode = POD_NETNS + 1 + u32::try_from(n).expect("few");
        story.at(at).netns(DAEMON, inode, 30 + n);
        add(&mut story, digit, 590 + u32::try_from(n).expect("few"), "bridge", (at + 20, at + 520), FAILED);
        story.at(at + 530).dropped(inode, 30 + n).freed(inode);
    }
    story.at(20_200).netns(DAEMON, POD_NETNS, 7);
    add(&mut story, 'a', 600, "bridge", (20_210, 20_310), 0);
    pause(&mut story, 'a', 20_400, POD_NETNS);
    container(&mut story, 'c', "main", 20_500);
    let engine = check(
        &story,
        2 * MINUTE,
        "
            100..20570: prepare 100, retry 20000, netns 10, bridge 100, pause 90, image(main) 100, runtime(main) 20, cgroup(main) 50
            told 1
        ",
    );
    let cause = engine.starts()[0].phases[1].cause;
    assert_eq!((cause.sandboxes, cause.adds, cause.failed), (2, 2, 2));
    assert_eq!(cause.wasted, Duration::from_secs(1));
}

#[test]
fn a_plugin_that_is_called_again_is_one_phase() {
    let mut story = Story::new();
    begin(&mut story);
    story.at(150).netns(DAEMON, POD_NETNS, 7);
    add(&mut story, 'a', 585, "bridge", (160, 260), FAILED);
    add(&mut story, 'a', 586, "bridge", (1000, 1100), FAILED);
    add(&mut story, 'a', 587, "bridge", (3000, 3200), 0);
    pause(&mut story, 'a', 3300, POD_NETNS);
    container(&mut story, 'c', "main", 4 * SECOND);
    let engine = check(
        &story,
        MINUTE,
        "
            100..4070: prepare 50, netns 10, bridge 3040, pause 100, image(main) 700, runtime(main) 20, cgroup(main) 50
            told 1
        ",
    );
    let starts = engine.starts();
    let slowest = starts[0].slowest().expect("a phase");
    assert_eq!(slowest.kind, Kind::Cni { plugin: "bridge".to_owned(), ifname: "eth0".to_owned() });
    let cause = slowest.cause;
    assert_eq!((cause.adds, cause.failed), (3, 2));
    assert_eq!((cause.wasted, cause.took), (Duration::from_millis(200), Duration::from_millis(400)));
}

#[test]
fn plugins_side_by_side_do_not_count_twice() {
    let mut story = Story::new();
    begin(&mut story);
    story.at(150).netns(DAEMON, POD_NETNS, 7);
    let plugin = |name: &str, pid| Fact::CniCalled(call(pid, CONTAINERD, name, "ADD", PATH, 'a'));
    story.at(160).kernel(plugin("/usr/lib/cni/loopback", 585));
    story.at(161).kernel(plugin("/usr/lib/cni/slow", 586));
    story.at(170).exit(Who::new(585, CONTAINERD, "plugin"), class::CNI, 0);
    story.at(500).kernel(plugin("/usr/lib/cni/within", 587));
    story.at(600).exit(Who::new(587, CONTAINERD, "plugin"), class::CNI, 0);
    story.at(2161).exit(Who::new(586, CONTAINERD, "plugin"), class::CNI, 0);
    pause(&mut story, 'a', 2200, POD_NETNS);
    container(&mut story, 'c', "main", 2300);
    let engine = check(
        &story,
        MINUTE,
        "
            100..2370: prepare 50, netns 10, loopback 1, slow 2000, within 0, pause 39, image(main) 100, runtime(main) 20, cgroup(main) 50
            told 1
        ",
    );
    let took: Vec<u128> = engine.starts()[0].phases.iter().map(|it| it.cause.took.as_millis()).collect();
    assert_eq!(took[2..5], [10, 2000, 100]);
}

#[test]
fn a_pod_on_the_nodes_network_has_none_of_its_own() {
    let mut story = Story::new();
    begin(&mut story);
    pause(&mut story, 'a', 500, HOST);
    container(&mut story, 'c', "main", SECOND);
    check(
        &story,
        MINUTE,
        "
            100..1070: prepare 380, pause 20, image(main) 500, runtime(main) 20, cgroup(main) 50
            told 1
        ",
    );
}

/// With user namespaces the OCI runtime makes the namespace, and pause runs before the plugins.
#[test]
fn order_is_data() {
    let mut story = Story::new();
    begin(&mut story);
    pause(&mut story, 'a', 200, POD_NETNS);
    let init = Who::new(643, SHIM, "runc:[1:CHILD]");
    story.facts.retain(|seen| !matches!(seen.fact, Fact::Executed(ref it) if it.task.key == key(644)));
    story.at(195).netns(init, POD_NETNS, 7);
    story.at(200).exec(Who::new(644, SHIM, "pause").within(21, POD_NETNS), TOP | class::PAUSE, "/pause");
    add(&mut story, 'a', 585, "bridge", (300, 500), 0);
    container(&mut story, 'c', "main", SECOND);
    check(
        &story,
        MINUTE,
        "
            100..1070: prepare 80, netns 120, bridge 200, image(main) 500, runtime(main) 20, cgroup(main) 50
            told 1
        ",
    );
}

#[test]
fn a_sandbox_that_is_made_anew_has_a_start_of_its_own() {
    let mut story = Story::new();
    sandbox(&mut story);
    container(&mut story, 'c', "main", SECOND);
    ends(&mut story, 'c', 5 * SECOND, 9);
    story.at(6 * SECOND).exit(Who::new(644, SHIM, "pause").within(21, POD_NETNS), TOP | class::PAUSE, 9);
    story.at(10 * SECOND).netns(DAEMON, POD_NETNS + 1, 8);
    add(&mut story, 'b', 700, "bridge", (10_010, 10_110), 0);
    let line = format!("containerd-shim-runc-v2 -id {} -address /x", id('b'));
    story.at(10_150).exec(Who::new(701, 1, "containerd-shim"), class::RUNTIME, &line);
    story.container('b', Role::Sandbox, 'b', "").at(10_160).mkdir(31, &leaf('b'));
    story.at(10_200).exec(
        Who::new(702, 701, "pause").within(31, POD_NETNS + 1),
        TOP | class::PAUSE,
        "/pause",
    );
    let line = format!("runc --root /r create --bundle /b {}", id('d'));
    story.at(11_000).exec(Who::new(703, 701, "runc"), class::RUNTIME, &line);
    story.container('d', Role::Container, 'b', "main").at(11_020).mkdir(32, &leaf('d'));
    story.at(11_070).exec(Who::new(704, 701, "main").within(32, POD_NETNS + 1), TOP, "/main");
    let engine = check(
        &story,
        MINUTE,
        "
            100..1070: prepare 50, netns 10, bridge 200, between 5, portmap 35, pause 100, image(main) 500, runtime(main) 20, cgroup(main) 50
            10000..11070 rebuilt: netns 10, bridge 100, pause 90, image(main) 800, runtime(main) 20, cgroup(main) 50
            told 2
        ",
    );
    let whole = engine.shares().last().map(|share| (share.kind.clone(), share.starts));
    assert_eq!(whole, Some((None, 1)), "only the first is compared");
}
