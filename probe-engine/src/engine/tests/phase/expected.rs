//! Starts of pods whose containers are known from their kubelet's record, and of pods whose containers are
//! not known.

use super::{MINUTE, SECOND, check, container, ends, main_of, play, sandbox};
use crate::{
    engine::{
        Engine,
        tests::{
            containerd::TOP,
            story::{POD_NETNS, SHIM, Story, Who, ms, uid},
        },
    },
    model::{
        change::ChangeName,
        fact::{Fact, Observation},
        phase::{Phase, Start},
    },
};

const HEAD: &str = "prepare 50, netns 10, bridge 200, between 5, portmap 35, pause 100, ";

fn expects(story: &mut Story, at: u64, names: &[&str]) {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    story.at(at).listed(Fact::ContainersExpected { uid: uid(), names });
}

/// The sidecar starts after a second. The image of the main container takes a minute.
fn slow_second(known: bool) -> Story {
    let mut story = Story::new();
    sandbox(&mut story);
    container(&mut story, 'c', "proxy", SECOND);
    if known {
        expects(&mut story, 1100, &["main", "proxy"]);
    }
    story.until(61 * SECOND);
    container(&mut story, 'd', "main", 61 * SECOND);
    story
}

fn only(engine: &Engine) -> Start {
    let starts = engine.starts();
    let [start] = starts.as_slice() else { panic!("one start: {starts:#?}") };
    start.clone()
}

const SLOW: &str = "image(proxy) 500, runtime(proxy) 20, cgroup(proxy) 50, \
                    image(main) 59930, runtime(main) 20, cgroup(main) 50";

#[test]
fn a_container_that_the_pod_is_to_have_is_waited_for() {
    let story = slow_second(true);
    let mut early = story.clone();
    early.facts.retain(|seen| seen.at < ms(61 * SECOND));
    check(
        &early,
        60 * SECOND,
        &format!(
            "100..62071 open: {HEAD}image(proxy) 500, runtime(proxy) 20, cgroup(proxy) 50, image 61001\ntold 0"
        ),
    );
    let engine = check(&story, 62 * SECOND + 70, &format!("100..61070: {HEAD}{SLOW}\ntold 1"));
    let start = only(&engine);
    assert!(start.is_whole() && start.containers_known && !start.revised, "{start:#?}");
    assert_eq!(start.total().as_millis(), 60_970);
}

/// A pod without a record: the start says that its containers are not known, and is reported again.
#[test]
fn without_a_record_a_start_says_that_its_containers_are_not_known() {
    let story = slow_second(false);
    let mut early = story.clone();
    early.facts.retain(|seen| seen.at < ms(40 * SECOND));
    let engine = check(
        &early,
        40 * SECOND,
        &format!("100..1070: {HEAD}image(proxy) 500, runtime(proxy) 20, cgroup(proxy) 50\ntold 1"),
    );
    assert!(!only(&engine).containers_known);
    let engine = check(&story, 2 * MINUTE, &format!("100..61070 revised: {HEAD}{SLOW}\ntold 2"));
    assert!(!only(&engine).containers_known);
}

#[test]
fn a_start_of_known_containers_is_reported_as_soon_as_the_last_one_runs() {
    let mut story = Story::new();
    sandbox(&mut story);
    container(&mut story, 'c', "main", SECOND);
    expects(&mut story, 1100, &["main"]);
    check(
        &story,
        2070,
        &format!("100..1070: {HEAD}image(main) 500, runtime(main) 20, cgroup(main) 50\ntold 1"),
    );
}

/// Most kubelets' records do not have init containers, but they have sidecars.
#[test]
fn init_containers_and_sidecars_come_first_and_belong_to_it() {
    let mut story = Story::new();
    sandbox(&mut story);
    container(&mut story, 'c', "migrate", SECOND);
    expects(&mut story, 1100, &["main", "proxy"]);
    story.until(50 * SECOND);
    ends(&mut story, 'c', 50 * SECOND, 0);
    container(&mut story, 'd', "proxy", 51 * SECOND);
    container(&mut story, 'e', "main", 52 * SECOND);
    check(
        &story,
        MINUTE,
        &format!(
            "100..52070: {HEAD}image(migrate) 500, runtime(migrate) 20, cgroup(migrate) 50, init(migrate) 48930, \
             image(proxy) 1000, runtime(proxy) 20, cgroup(proxy) 50, \
             image(main) 930, runtime(main) 20, cgroup(main) 50\ntold 1"
        ),
    );
}

#[test]
fn a_container_that_never_comes_is_not_waited_for_for_ever() {
    let mut story = Story::new();
    sandbox(&mut story);
    container(&mut story, 'c', "proxy", SECOND);
    expects(&mut story, 1100, &["main", "proxy"]);
    let (told, before) = (1070 + 10 * MINUTE, 1069 + 10 * MINUTE);
    let count =
        |engine: &Engine| engine.counts().told.get(&ChangeName::PodStarted).copied().unwrap_or_default();
    assert_eq!(count(&play(&story, before)), 0);
    let engine = play(&story, told);
    let start = only(&engine);
    assert_eq!((count(&engine), start.complete, start.is_whole()), (1, false, false));
    assert_eq!(start.missing, ["main"]);
    // The missing container comes after all.
    story.until(20 * MINUTE);
    container(&mut story, 'd', "main", 20 * MINUTE);
    let engine = play(&story, 21 * MINUTE);
    let start = only(&engine);
    assert_eq!((count(&engine), start.is_whole(), start.revised), (2, true, true), "{start:#?}");
    assert_eq!(start.end, ms(20 * MINUTE + 70));
}

#[test]
fn a_sandbox_that_is_over_before_all_ran_is_no_whole_start() {
    let mut story = Story::new();
    sandbox(&mut story);
    container(&mut story, 'c', "migrate", SECOND);
    expects(&mut story, 1100, &["main"]);
    ends(&mut story, 'c', 3 * SECOND, 0x100);
    let pause = Who::new(644, SHIM, "pause").within(21, POD_NETNS);
    story.at(4 * SECOND).exit(pause, TOP, 9);
    let engine = play(&story, 5 * SECOND);
    let start = only(&engine);
    assert_eq!((start.complete, start.is_whole()), (false, false), "{start:#?}");
    assert_eq!(start.missing, ["main"]);
}

/// `kubectl debug` is run twenty seconds after the start.
fn debugged(known: bool, name: &str) -> Start {
    let mut story = Story::new();
    sandbox(&mut story);
    container(&mut story, 'c', "main", SECOND);
    if known {
        expects(&mut story, 1100, &["main"]);
    }
    story.until(21 * SECOND);
    container(&mut story, 'd', name, 21 * SECOND);
    only(&play(&story, 2 * MINUTE))
}

#[test]
fn an_ephemeral_container_belongs_to_no_start() {
    for (known, name) in [(true, "shell"), (true, "debugger-x7k2p"), (false, "debugger-x7k2p")] {
        let start = debugged(known, name);
        assert_eq!((start.total().as_millis(), start.revised), (970, false), "{known} {name}: {start:#?}");
        assert!(
            start
                .phases
                .iter()
                .all(|it| it.container.as_ref().is_none_or(|it| it.name.as_deref() != Some(name)))
        );
    }
    // It looks like a container whose image took as long. The start says that its containers are not known.
    let start = debugged(false, "shell");
    assert_eq!((start.total().as_millis(), start.containers_known), (20_970, false));
}

#[test]
fn an_answer_may_come_after_the_last_container() {
    let mut story = Story::new();
    sandbox(&mut story);
    container(&mut story, 'c', "proxy", SECOND);
    container(&mut story, 'd', "main", 2 * SECOND);
    story.until(10 * SECOND);
    expects(&mut story, 10 * SECOND, &["main", "proxy"]);
    let engine = play(&story, 11 * SECOND);
    let start = only(&engine);
    assert!(start.is_whole() && start.containers_known, "{start:#?}");
    assert_eq!(start.end, ms(2070));
}

/// The runtime executes a program into a container of the story, from `from` to `to`.
fn executed(story: &mut Story, digit: char, from: u64, to: u64) {
    let main = main_of(digit);
    let hook = Who { pid: main.pid + 900, comm: "hook", ..main };
    story.at(from).exec(hook, TOP, "/bin/hook");
    story.at(to).exit(hook, TOP, 0);
}

fn phases(story: &Story) -> Vec<String> {
    let start = only(&play(story, 2 * MINUTE));
    let name = |it: &Phase| it.container.as_ref().and_then(|it| it.name.clone()).unwrap_or_default();
    let own = start.phases.iter().filter(|it| it.container.is_some());
    own.map(|it| format!("{:?}({}) {}", it.kind, name(it), it.took().as_millis())).collect()
}

#[test]
fn a_post_start_hook_is_a_phase_if_the_next_container_waits_for_it() {
    let mut story = Story::new();
    sandbox(&mut story);
    container(&mut story, 'c', "proxy", SECOND);
    executed(&mut story, 'c', 1170, 4000);
    container(&mut story, 'd', "main", 5 * SECOND);
    let told = ["Image(proxy) 500", "Runtime(proxy) 20", "Cgroup(proxy) 50", "PostStart(proxy) 2930"];
    let rest = ["Image(main) 1000", "Runtime(main) 20", "Cgroup(main) 50"];
    assert_eq!(phases(&story), [&told[..], &rest[..]].concat());
}

/// A probe comes later, because the kubelet probes a container only after all were started. A program that
/// still runs when the next container comes was not waited for. A program in the last container is no part of
/// the start.
#[test]
fn what_else_is_executed_into_a_container_is_no_phase() {
    for (digit, from, to) in [('c', 2100, 2200), ('c', 1170, 9000), ('d', 5170, 6000)] {
        let mut story = Story::new();
        sandbox(&mut story);
        container(&mut story, 'c', "proxy", SECOND);
        if digit == 'c' {
            executed(&mut story, 'c', from, to);
        }
        container(&mut story, 'd', "main", 5 * SECOND);
        if digit == 'd' {
            executed(&mut story, 'd', from, to);
        }
        story.facts.sort_by_key(|seen: &Observation| seen.at);
        let told = phases(&story);
        assert!(!told.iter().any(|it| it.starts_with("PostStart")), "{digit} {from}: {told:?}");
        assert!(told.contains(&"Image(main) 3930".to_owned()), "{told:?}");
    }
}
