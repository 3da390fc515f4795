//! The sandbox's own phases: its network and its pause process, in either order and with any number of tries.

use std::time::Duration;

use probe_common::event::class;

use super::{FAILED, MINUTE, SECOND, add, begin, check, container, ends, pause, sandbox};
use crate::{
    engine::tests::{
        containerd::{PATH, TOP},
        story::{CONTAINERD, DAEMON, HOST, POD_NETNS, SHIM, Story, Who, call, id, key, leaf},
    },
    model::{
        fact::{Fact, Origin, ProgramFound, Role},
        phase::Kind,
    },
};

/// With containerd each try is a new sandbox.
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

/// Its version is asked for when an ADD succeeds, and again ten minutes later, for the plugin may have been
/// replaced.
#[test]
fn a_start_names_its_plugins_with_the_versions_of_then() {
    let mut story = Story::new();
    begin(&mut story);
    story.at(150).netns(DAEMON, POD_NETNS, 7);
    add(&mut story, 'a', 585, "bridge", (160, 260), FAILED);
    let asked = |story: &Story| {
        let lines = story.run().into_iter();
        lines.filter(|line| line.starts_with("? program")).collect::<Vec<_>>()
    };
    assert_eq!(asked(&story), Vec::<String>::new());
    add(&mut story, 'a', 586, "bridge", (1000, 1100), 0);
    let path =
        asked(&story).first().and_then(|line| line.strip_prefix("? program ")).expect("a path").to_owned();
    let found = |version: &str| ProgramFound { path: path.clone(), version: Some(version.to_owned()) };
    story.at(1200).say(Origin::Listed, Fact::ProgramFound(found("1.6.2")));
    pause(&mut story, 'a', 1300, POD_NETNS);
    container(&mut story, 'c', "main", 2 * SECOND);
    assert_eq!(story.judge(MINUTE).1.starts()[0].plugins, [found("1.6.2")]);
    add(&mut story, 'b', 700, "bridge", (9 * MINUTE, 9 * MINUTE + 100), 0);
    assert_eq!(asked(&story).len(), 1);
    add(&mut story, 'd', 701, "bridge", (11 * MINUTE, 11 * MINUTE + 100), 0);
    assert_eq!(asked(&story), vec![format!("? program {path}"); 2]);
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
