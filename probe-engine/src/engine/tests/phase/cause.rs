//! The causes of slow starts, and which starts are compared.

use std::time::Duration;

use probe_common::{event::class, id::CgroupKey};

use super::{MINUTE, SECOND, begin, check, container, ends, main_of, pause, play, pod_path, sandbox};
use crate::{
    engine::{
        Engine, Settings,
        tests::{
            containerd::{PATH, TOP},
            story::{CONTAINERD, DAEMON, POD_NETNS, SHIM, Story, Who, call, cgroup, leaf, ms, run::pass},
        },
    },
    model::{
        change::{Output, Question},
        fact::{CpuUse, Fact, List, Mechanism, Origin, Pressure, PressureRead, Role, Signal, Stall, Task},
        id::NetnsKey,
        phase::{Kind, Part, PartKind},
        time::Timestamp,
    },
};

/// How often the pressure of the pod's cgroup was asked for.
fn asked(story: &Story, until: u64) -> usize {
    let mut engine = Engine::new(Settings::default());
    let mut asked = 0;
    let mut count = |engine: &mut Engine| {
        let outputs = std::iter::from_fn(|| engine.poll());
        asked += outputs.filter(|it| matches!(it, Output::Question(Question::Pressure { .. }))).count();
    };
    for seen in &story.facts {
        pass(&mut engine, Timestamp(seen.at.0 - 1));
        engine.observe(seen.clone());
        count(&mut engine);
    }
    pass(&mut engine, ms(until));
    count(&mut engine);
    asked
}

/// The agent starts when the pod's sandbox already exists.
#[test]
fn what_was_only_listed_is_marked_and_not_compared() {
    let mut story = Story::new();
    let at = 600;
    story.at(at).list(List::Cgroups, true, |story| {
        for (number, path) in [(20, pod_path()), (21, leaf('a'))] {
            let cgroup = cgroup(number, &path);
            story.listed(Fact::CgroupFound { cgroup, populated: true });
        }
    });
    story.container('a', Role::Sandbox, 'a', "");
    story.list(List::Processes, true, |story| {
        story.found(Who::new(644, SHIM, "pause").within(21, POD_NETNS), 1, &leaf('a'), "/pause");
    });
    container(&mut story, 'c', "main", SECOND);
    let engine = play(&story, MINUTE);
    let starts = engine.starts();
    let [start] = starts.as_slice() else { panic!("{starts:#?}") };
    assert!(start.listed && start.complete && !start.is_whole());
    assert_eq!(engine.shares(), []);
}

#[test]
fn a_pod_that_was_there_before_has_no_start() {
    let mut story = Story::new();
    story.at(600).list(List::Cgroups, true, |story| {
        for (number, path) in [(20, pod_path()), (21, leaf('a')), (22, leaf('c'))] {
            let cgroup = cgroup(number, &path);
            story.listed(Fact::CgroupFound { cgroup, populated: true });
        }
    });
    story.container('a', Role::Sandbox, 'a', "").container('c', Role::Container, 'a', "main");
    story.list(List::Processes, true, |story| {
        story.found(Who::new(644, SHIM, "pause").within(21, POD_NETNS), 1, &leaf('a'), "/pause");
        story.found(Who::new(645, SHIM, "main").within(22, POD_NETNS), 1, &leaf('c'), "/main");
    });
    story.at(SECOND).exit(Who::new(645, SHIM, "main").within(22, POD_NETNS), TOP, 0x100);
    container(&mut story, 'd', "main", 2 * SECOND);
    check(&story, MINUTE, "told 0");
}

#[test]
fn what_the_pods_cgroup_counted_is_put_down_to_the_phase_that_it_hit() {
    let mut story = Story::new();
    sandbox(&mut story);
    let read = |story: &mut Story, at, throttled, periods| {
        let cpu = CpuUse {
            used: Duration::from_millis(1),
            throttled: Duration::from_millis(throttled),
            periods,
            limit: None,
        };
        let pressure = Pressure { cpu: Some(cpu), ..Pressure::default() };
        let cgroup = CgroupKey::new(0, 20);
        story.at(at).listed(Fact::PressureRead(PressureRead { cgroup, pressure }));
    };
    read(&mut story, 501, 5, 1);
    container(&mut story, 'c', "main", SECOND);
    story.facts.retain(|seen| seen.at < ms(1070));
    read(&mut story, 1021, 6, 1);
    story.at(4000).exec(main_of('c'), TOP, "/main");
    read(&mut story, 4002, 1206, 13);
    let engine = check(
        &story,
        MINUTE,
        "
            100..4000: prepare 50, netns 10, bridge 200, between 5, portmap 35, pause 100, image(main) 500, runtime(main) 20, cgroup(main) 2980
            told 1
        ",
    );
    let starts = engine.starts();
    let hit: Vec<_> = starts[0]
        .phases
        .iter()
        .filter_map(|it| Some((it.kind.clone(), it.pressure.cpu?)))
        .map(|(kind, cpu)| (kind, cpu.throttled.as_millis(), cpu.periods))
        .collect();
    let bridge = Kind::Cni { plugin: "bridge".to_owned(), ifname: "eth0".to_owned() };
    assert_eq!(hit, [(bridge, 5, 1), (Kind::Image, 1, 0), (Kind::Cgroup, 1200, 12)]);
}

#[test]
fn what_the_runtime_waited_for_is_put_down_to_the_image_alone() {
    let mut story = Story::new();
    sandbox(&mut story);
    let read = |story: &mut Story, at, some| {
        let stall = Stall { some: Duration::from_millis(some), full: Duration::from_millis(some / 2) };
        let pressure = Pressure { runtime_io: Some(stall), ..Pressure::default() };
        let cgroup = CgroupKey::new(0, 20);
        story.at(at).listed(Fact::PressureRead(PressureRead { cgroup, pressure }));
    };
    // The runtime has waited for long before this pod, and waits while its network is made.
    read(&mut story, 110, 90_000);
    read(&mut story, 361, 90_100);
    read(&mut story, 501, 90_100);
    container(&mut story, 'c', "main", 3 * SECOND);
    read(&mut story, 3002, 91_300);
    read(&mut story, 3071, 91_320);
    story.facts.sort_by_key(|seen| seen.at);
    let engine = play(&story, MINUTE);
    let starts = engine.starts();
    let stalls = starts[0].phases.iter().filter_map(|it| Some((it.kind.clone(), it.pressure.runtime_io?)));
    let stalls: Vec<_> = stalls.map(|(kind, it)| (kind, it.some.as_millis(), it.full.as_millis())).collect();
    assert_eq!(stalls, [(Kind::Image, 1200, 600)]);
    // It is the runtime's wait for this image only if the runtime pulled it.
    let mut image = starts[0].phases.iter().find(|it| it.kind == Kind::Image).expect("the phase").clone();
    assert_eq!(image.runtime_stall(), None);
    image.parts = vec![Part { kind: PartKind::Pull, begin: image.begin, took: image.took(), waits: None }];
    assert_eq!(image.runtime_stall(), image.pressure.runtime_io);
}

#[test]
fn another_namespaces_end_beside_a_plugin_is_reported() {
    let mut story = Story::new();
    story.at(10).netns(DAEMON, POD_NETNS + 5, 40);
    begin(&mut story);
    story.at(150).netns(DAEMON, POD_NETNS, 7);
    story.at(155).dropped(POD_NETNS + 5, 40);
    story.at(160).kernel(Fact::CniCalled(call(585, CONTAINERD, "/usr/lib/cni/bridge", "ADD", PATH, 'a')));
    story.at(300).kernel(Fact::NetnsFreed { netns: NetnsKey::new(POD_NETNS + 5, 0) });
    story.at(360).exit(Who::new(585, CONTAINERD, "plugin"), class::CNI, 0);
    pause(&mut story, 'a', 500, POD_NETNS);
    container(&mut story, 'c', "main", SECOND);
    let engine = play(&story, MINUTE);
    let starts = engine.starts();
    let beside: Vec<u128> = starts[0].phases.iter().map(|it| it.cause.teardown.as_millis()).collect();
    assert_eq!(beside, [0, 5, 140, 0, 0, 0, 0]);
}

/// A hook reported the teardown of one namespace. Only netlink reported the other, and no source reports when
/// its teardown ends.
#[test]
fn only_what_is_known_to_be_taken_apart_is_blamed() {
    let mut story = Story::new();
    story.attached(Signal::NetnsFreed, Some(Mechanism::RawTracepoint));
    for (inode, is_told) in [(POD_NETNS + 5, true), (POD_NETNS + 6, false)] {
        let key = NetnsKey::new(inode, 40);
        story.at(10).listed(Fact::NetnsFound { netns: key, mounts: Vec::new(), vacant: false });
        if is_told {
            story.at(355).dropped(inode, 40);
        } else {
            story.at(20).say(Origin::Netlink, Fact::NetnsDropped { netns: key, by: Task::default() });
        }
    }
    begin(&mut story);
    story.at(150).netns(DAEMON, POD_NETNS, 7);
    story.at(160).kernel(Fact::CniCalled(call(585, CONTAINERD, "/usr/lib/cni/bridge", "ADD", PATH, 'a')));
    story.at(360).exit(Who::new(585, CONTAINERD, "plugin"), class::CNI, 0);
    pause(&mut story, 'a', 500, POD_NETNS);
    container(&mut story, 'c', "main", SECOND);
    story.facts.sort_by_key(|seen| seen.at);
    let engine = play(&story, MINUTE);
    let starts = engine.starts();
    let beside: Vec<u128> = starts[0].phases.iter().map(|it| it.cause.teardown.as_millis()).collect();
    assert_eq!(beside, [0, 0, 5, 0, 0, 0, 0]);
}

#[test]
fn a_loss_marks_the_phases_that_it_may_have_hit() {
    let mut story = Story::new();
    sandbox(&mut story);
    container(&mut story, 'c', "main", 3 * SECOND);
    story.facts.retain(|seen| seen.at < ms(3000));
    story.at(2000).lost();
    container(&mut story, 'c', "main", 3 * SECOND);
    let engine = check(
        &story,
        MINUTE,
        "
            100..3070: prepare 50, netns 10, bridge 200, between 5, portmap 35, pause 100, image(main) 2500!, runtime(main) 20, cgroup(main) 50
            told 1
        ",
    );
    assert_eq!(engine.shares(), []);
}

#[test]
fn the_cgroup_is_asked_about_only_while_the_pod_starts() {
    let mut story = Story::new();
    sandbox(&mut story);
    container(&mut story, 'c', "main", SECOND);
    story.until(40 * SECOND);
    ends(&mut story, 'c', 40 * SECOND, 0x100);
    container(&mut story, 'd', "main", 50 * SECOND);
    assert_eq!(asked(&story, 60 * SECOND), 8, "two ADDs begin and end; pause's cgroup, pause; main's, main");
}

#[test]
fn percentiles_outlive_the_pods() {
    let mut story = Story::new();
    sandbox(&mut story);
    container(&mut story, 'c', "main", SECOND);
    ends(&mut story, 'c', 2 * SECOND, 0);
    story.at(3 * SECOND).exit(Who::new(644, SHIM, "pause").within(21, POD_NETNS), TOP | class::PAUSE, 9);
    story.emptied(21, &leaf('a')).rmdir(21, &leaf('a')).rmdir(20, &pod_path());
    story.dropped(POD_NETNS, 7).freed(POD_NETNS);
    let engine = play(&story, 60 * MINUTE);
    assert_eq!(engine.pods(), []);
    let shares = engine.shares();
    let whole = shares.last().expect("the whole");
    assert_eq!((whole.kind.clone(), whole.starts, whole.p99), (None, 1, Duration::from_millis(970)));
    assert_eq!(shares.len(), 10);
}

/// Boot time goes on while the node is suspended, and no phase lasts that long.
#[test]
fn a_start_during_which_the_node_was_suspended_is_not_compared() {
    let slept = Duration::from_secs(600);
    let awake = "100..3070: prepare 50, netns 10, bridge 200, between 5, portmap 35, pause 100, \
                 image(main) 2500, runtime(main) 20, cgroup(main) 50\ntold 1";
    for (woke_at, starts) in [(50, 1), (2 * SECOND, 0)] {
        let mut story = Story::new();
        sandbox(&mut story);
        story.at(woke_at).say(Origin::Agent, Fact::Resumed { slept });
        container(&mut story, 'c', "main", 3 * SECOND);
        let expected = if starts == 0 { awake.replace("3070:", "3070 suspended:") } else { awake.to_owned() };
        let engine = check(&story, MINUTE, &expected);
        assert_eq!(engine.shares().iter().map(|share| share.starts).max().unwrap_or(0), starts, "{woke_at}");
    }
}
