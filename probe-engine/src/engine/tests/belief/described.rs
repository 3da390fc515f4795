//! What a runtime says about the identity of a container: it completes the kernel's evidence, and a
//! contradiction is reported.

use super::{BOTH, POD_NETNS, SECOND, SHIM, SLEEP, TOP, Who, dies, id, leaf, running, stated, told};
use crate::{
    engine::{
        Engine, Settings,
        tests::story::{Story, run::pass},
    },
    model::{
        change::{ChangeKind, ContainerRef, Output},
        fact::{Believed, Described, EventStream, PodName, Stated},
        id::PodUid,
        time::Timestamp,
    },
};

const IMAGE: &str = "registry.example/web:1";

/// The container as the runtime describes it.
fn described(digit: char, state: Believed, described: Described) -> Stated {
    Stated { described, ..stated(digit, state, None) }
}

fn named(name: &str) -> Described {
    Described { name: Some(name.to_owned()), attempt: Some(2), image: Some(IMAGE.to_owned()), pod: None }
}

/// The containers that these events are about.
fn references(story: &Story, is_it: fn(&ChangeKind) -> bool) -> Vec<ContainerRef> {
    let mut engine = Engine::new(Settings::default());
    let mut found = Vec::new();
    for seen in &story.facts {
        pass(&mut engine, Timestamp(seen.at.0 - 1));
        engine.observe(seen.clone());
        while let Some(output) = engine.poll() {
            if let Output::Change(change) = output
                && is_it(&change.what)
            {
                found.extend(change.context.container);
            }
        }
    }
    found
}

fn is_start(what: &ChangeKind) -> bool {
    matches!(what, ChangeKind::ContainerStarted { .. })
}

fn is_end(what: &ChangeKind) -> bool {
    matches!(what, ChangeKind::ContainerExited { .. })
}

#[test]
fn attempt_and_image_stand_in_the_events_that_follow() {
    let mut story = running(EventStream::None);
    let sandbox = stated('a', Believed::Running, None);
    story.status(vec![sandbox, described('c', Believed::Running, named("main"))]).until(6 * SECOND);
    dies(&mut story, 9);
    story.until(8 * SECOND).moment();
    let [started] = &references(&story, is_start)[..] else { panic!("one start") };
    assert_eq!((started.attempt, started.image.as_deref()), (None, None));
    let [exited] = &references(&story, is_end)[..] else { panic!("one end") };
    assert_eq!((exited.attempt, exited.image.as_deref()), (Some(2), Some(IMAGE)));
    assert_eq!(exited.name.as_deref(), Some("main"));
}

/// Nobody could read the bundle of a container before it was asked for over CRI.
#[test]
fn a_container_that_no_other_evidence_names_has_the_name_that_its_runtime_gives() {
    let mut story = running(EventStream::None);
    let second = Who::new(900, SHIM, "server").within(41, POD_NETNS);
    story.mkdir(41, &leaf('d')).exec(second, TOP, "/bin/server");
    let mut all: Vec<_> = BOTH.map(|(digit, state)| stated(digit, state, None)).to_vec();
    all.push(described('d', Believed::Running, named("second")));
    story.until(7 * SECOND).status(all).until(8 * SECOND).exit(second, TOP, 0).until(20 * SECOND).moment();
    let exited = references(&story, is_end);
    let [exited] = &exited[..] else { panic!("{exited:?}") };
    assert_eq!((exited.id.clone(), exited.name.as_deref()), (id('d'), Some("second")));
}

#[test]
fn another_name_and_another_pod_are_reported_and_the_same_are_not() {
    let other = PodUid::parse("99999999-0142-4000-8000-0000000be11e");
    let of_other =
        || Described { pod: Some(PodName { uid: other.clone(), ..PodName::default() }), ..named("main") };
    let cases = [(named("main"), None), (named("web"), Some("named web")), (of_other(), Some("of pod 9999"))];
    for (it, expected) in cases {
        let mut story = running(EventStream::None);
        let list =
            || vec![stated('a', Believed::Running, None), described('c', Believed::Running, it.clone())];
        story.status(list()).until(40 * SECOND).status(list()).until(42 * SECOND).moment();
        let confirmed = "40099 finding.confirmed stale_runtime_status/c [default/web-0 a] Agent";
        let lines = told(&story);
        assert_eq!(lines.iter().any(|line| line == confirmed), expected.is_some(), "{it:?}: {lines:#?}");
        let (_, engine) = story.judge(42 * SECOND);
        let summaries: Vec<_> = engine.findings().map(|it| it.kind.explain().summary()).collect();
        let is_said = |expected: &str| summaries.iter().any(|line| line.contains(expected));
        assert!(expected.is_none_or(is_said), "{summaries:?}");
    }
}

/// It closes when the container is over, and a dead container is reported as dead.
#[test]
fn what_a_container_does_comes_before_what_it_is() {
    let mut story = running(EventStream::None);
    let list = || vec![stated('a', Believed::Running, None), described('c', Believed::Running, named("web"))];
    story.exit(SLEEP, TOP, 9).emptied(22, &leaf('c'));
    story.until(20 * SECOND).status(list()).until(40 * SECOND).status(list()).until(41 * SECOND).moment();
    let (_, engine) = story.judge(41 * SECOND);
    let summaries: Vec<_> = engine.findings().map(|it| it.kind.explain().summary()).collect();
    assert_eq!(summaries, ["the runtime says that container main runs, and its process has ended"]);
}
