//! The phases of starts, to the millisecond.

mod cause;
mod expected;
mod held;
mod image;
mod listening;
mod network;
mod overlap;

use std::time::Duration;

use probe_common::event::class;

use super::{
    containerd::{PATH, TOP},
    story::{CONTAINERD, DAEMON, POD_NETNS, SHIM, Story, UID, Who, call, id, leaf, ms, run::check_lines},
};
use crate::{
    engine::Engine,
    model::{
        change::ChangeName,
        fact::{Fact, Observation, Role},
        phase::{Kind, Phase, Start},
    },
};

const SECOND: u64 = 1000;
const FAILED: u32 = 0x100;

fn pod_path() -> String {
    format!("/kubepods/besteffort/pod{UID}")
}

/// The pod's cgroup is made at 100.
fn begin(story: &mut Story) {
    story.at(100).mkdir(20, &pod_path());
}

/// One ADD of a plugin for the sandbox. It begins at `from` and ends at `to`.
fn add(story: &mut Story, sandbox: char, pid: u32, plugin: &str, (from, to): (u64, u64), status: u32) {
    let plugin = format!("/usr/lib/cni/{plugin}");
    story.at(from).kernel(Fact::CniCalled(call(pid, CONTAINERD, &plugin, "ADD", PATH, sandbox)));
    story.at(to).exit(Who::new(pid, CONTAINERD, "plugin"), class::CNI, status);
}

/// The sandbox's own steps after its network: shim, cgroup, pause.
fn pause(story: &mut Story, sandbox: char, at: u64, netns: u32) {
    let line = format!("containerd-shim-runc-v2 -id {} -address /x", id(sandbox));
    story.at(at - 20).exec(Who::new(SHIM, 1, "containerd-shim"), class::RUNTIME, &line);
    story.container(sandbox, Role::Sandbox, sandbox, "");
    story.at(at - 10).mkdir(21, &leaf(sandbox));
    story.at(at).exec(Who::new(644, SHIM, "pause").within(21, netns), TOP | class::PAUSE, "/pause");
}

/// The runtime runs at `at`. The container's cgroup comes 20 ms later, and its program 50 ms after that.
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

/// All steps up to pause, which runs at 500. The network takes 200 ms.
fn sandbox(story: &mut Story) {
    begin(story);
    story.at(150).netns(DAEMON, POD_NETNS, 7);
    add(story, 'a', 585, "bridge", (160, 360), 0);
    add(story, 'a', 586, "portmap", (365, 400), 0);
    pause(story, 'a', 500, POD_NETNS);
}

/// `100..570 prepare 50 netns 10 …`, with the marks of the start.
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
        (start.suspended, " suspended"),
    ];
    let marks: String = marks.iter().filter(|(is_so, _)| *is_so).map(|(_, mark)| *mark).collect();
    let at = |ns: u64| ns / 1_000_000;
    format!("{}..{}{marks}: {}", at(start.begin.0), at(start.end.0), parts.join(", "))
}

fn play(story: &Story, until: u64) -> Engine {
    story.judge(until).1
}

/// The starts at a time, and how often one was reported as complete.
#[track_caller]
fn check(story: &Story, until: u64, expected: &str) -> Engine {
    let engine = play(story, until);
    let starts = engine.starts();
    for start in &starts {
        let sum: Duration = start.phases.iter().map(Phase::took).sum();
        assert_eq!(sum, start.total(), "{start:#?}");
    }
    let told = engine.counts().told.get(&ChangeName::PodStarted).copied().unwrap_or(0);
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
fn a_pod_without_a_sandbox_waits() {
    let mut story = Story::new();
    begin(&mut story);
    story.until(2 * SECOND).moment();
    let waits = |story: &Story| {
        let pods = check(story, 2 * SECOND, "told 0").pods();
        (pods[0].waiting_since, pods[0].start.clone())
    };
    assert_eq!(waits(&story), (Some(ms(100)), None));
    let mut story = Story::new();
    sandbox(&mut story);
    let open = "100..1501 open: prepare 50, netns 10, bridge 200, between 5, portmap 35, pause 100, image 1001\ntold 0";
    let pods = check(&story, 2 * SECOND, open).pods();
    assert_eq!(pods[0].waiting_since, None, "it has one");
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

/// A container's role may be answered only after its end.
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

/// No bundle is left when the agent gets to read it. The answer comes after the end of the second container,
/// and after that of the sandbox.
#[test]
fn containers_that_are_gone_before_anything_names_them_are_part_of_the_start() {
    for answered_at in [2200, 2400] {
        let mut story = Story::new();
        sandbox(&mut story);
        container(&mut story, 'c', "init", SECOND);
        ends(&mut story, 'c', 1080, 0);
        container(&mut story, 'e', "main", 2 * SECOND);
        ends(&mut story, 'e', 2100, 0);
        let is_answer =
            |seen: &Observation| matches!(&seen.fact, Fact::ContainerFound(it) if it.role == Role::Container);
        story.facts.retain(|seen| !is_answer(seen));
        story.at(1100).listed(Fact::ContainerUnknown(id('c')));
        story.at(answered_at).listed(Fact::ContainerUnknown(id('e')));
        story.at(2300).exit(Who::new(644, SHIM, "pause").within(21, POD_NETNS), TOP | class::PAUSE, 0);
        story.facts.sort_by_key(|seen| seen.at);
        check(
            &story,
            MINUTE,
            "
                100..2070: prepare 50, netns 10, bridge 200, between 5, portmap 35, pause 100, image 500, runtime 20, cgroup 50, init 10, image 920, runtime 20, cgroup 50
                told 1
            ",
        );
        let told = format!("{} pod.started", answered_at.max(2300));
        let lines = story.run();
        assert!(lines.iter().any(|line| line.starts_with(&told)), "{told} is not in {lines:#?}");
    }
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

/// A restart that is announced neither lengthens the start nor keeps it open.
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

/// A pod whose tries all fail has one start, however many tries are remembered.
#[test]
fn the_tries_of_a_pod_are_one_start() {
    const PODS: u32 = 100;
    const TRIES: u32 = 16;
    let mut story = Story::new();
    for n in 0..PODS * TRIES {
        let uid = format!("{:08}{}", n % PODS, &UID[8..]);
        let sandbox = format!("{n:064x}");
        let mut it = call(10_000 + n, CONTAINERD, "/usr/lib/cni/bridge", "ADD", PATH, 'a');
        it.variables.container_id = Some(sandbox.clone());
        it.variables.args =
            Some(format!("K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-{};K8S_POD_UID={uid}", n % PODS));
        story.at(SECOND + 100 * u64::from(n)).kernel(Fact::CniCalled(it));
        story.exit(Who::new(10_000 + n, CONTAINERD, "plugin"), class::CNI, FAILED);
    }
    let until = SECOND + 100 * u64::from(PODS * TRIES);
    let (_, engine) = story.judge(until);
    let starts = engine.starts();
    assert_eq!(starts.len(), 100);
    let last = &starts[0];
    assert_eq!(last.sandbox.as_str(), format!("{:064x}", PODS * (TRIES - 1)));
    assert_eq!(last.phases[0].cause.sandboxes, TRIES - 1, "{:?}", last.phases[0]);
}
