//! What a start waited for besides its own work: requests that the kubelet held back before a sandbox,
//! according to its log, and a runtime that answered nothing.

use super::{DAEMON, MINUTE, POD_NETNS, SECOND, add, begin, container, pause, play};
use crate::{
    engine::{
        Engine,
        tests::story::{Story, id, ms, run::pass},
    },
    model::{
        change::{Output, Question},
        fact::{Answer, EventStream, Fact, HeldRequests, Origin, RuntimeLink, Span},
        phase::{Kind, PartKind, Start, WaitsFor},
        time::Timestamp,
    },
};

/// The pod's cgroup is made at 100, and its sandbox's namespace at `at`.
fn sandbox(story: &mut Story, at: u64) {
    begin(story);
    story.at(at).netns(DAEMON, POD_NETNS, 7);
    add(story, 'a', 585, "bridge", (at + 10, at + 210), 0);
    pause(story, 'a', at + 350, POD_NETNS);
}

fn held(spans: &[(u64, u64)]) -> Fact {
    let held = spans.iter().map(|(began, ended)| Span { began: ms(*began), ended: ms(*ended) }).collect();
    Fact::HeldRequests(HeldRequests { sandbox: id('a'), held })
}

fn asked(story: &Story) -> Vec<(Timestamp, Timestamp)> {
    let mut engine = Engine::new(crate::engine::Settings::default());
    let mut asked = Vec::new();
    let mut hear = |engine: &mut Engine| {
        while let Some(output) = engine.poll() {
            if let Output::Question(Question::HeldRequests { sandbox, from, until }) = output {
                assert_eq!(sandbox, id('a'));
                asked.push((from, until));
            }
        }
    };
    for seen in &story.facts {
        pass(&mut engine, Timestamp(seen.at.0 - 1));
        engine.observe(seen.clone());
        hear(&mut engine);
    }
    pass(&mut engine, ms(MINUTE));
    hear(&mut engine);
    asked
}

/// A part: how long it took, ms, and what it waited for.
type Told = (&'static str, u128, Option<WaitsFor>);

/// The parts of each phase that has any.
fn parts(start: &Start) -> Vec<(Kind, Vec<Told>)> {
    let divided = start.phases.iter().filter(|phase| !phase.parts.is_empty());
    let told = divided.map(|phase| {
        assert_eq!(phase.parts.iter().map(|part| part.took).sum::<std::time::Duration>(), phase.took());
        let parts =
            phase.parts.iter().map(|part| (part.kind.into(), part.took.as_millis(), part.waits)).collect();
        (phase.kind.clone(), parts)
    });
    told.collect()
}

#[test]
fn only_a_sandbox_that_was_long_in_coming_is_asked_about_and_once() {
    for (sign, expected) in [(1099, vec![]), (4100, vec![(ms(100), ms(4100))])] {
        let mut story = Story::new();
        sandbox(&mut story, sign);
        container(&mut story, 'c', "main", sign + SECOND);
        container(&mut story, 'd', "side", sign + 2 * SECOND);
        assert_eq!(asked(&story), expected, "{sign}");
    }
}

#[test]
fn the_kubelets_rate_of_requests_is_a_wait_of_its_own_before_and_after_the_start_is_reported() {
    let wait = |held_back| Some(WaitsFor::ApiRate { held_back });
    let expected = vec![(
        Kind::Prepare,
        vec![
            (PartKind::Wait.into(), 1900, wait(2)),
            (PartKind::Unknown.into(), 500, None),
            (PartKind::Wait.into(), 1500, wait(1)),
            (PartKind::Unknown.into(), 100, None),
        ],
    )];
    // The first request was already held back when the pod came.
    let answer = held(&[(50, 1500), (1000, 2000), (2500, 4000)]);
    for answered in [5500, 40 * SECOND] {
        let mut story = Story::new();
        sandbox(&mut story, 4100);
        container(&mut story, 'c', "main", 5 * SECOND);
        story.at(answered).listed(answer.clone());
        assert_eq!(parts(&play(&story, MINUTE).starts()[0]), expected, "{answered}");
    }
    // The kubelet's log says nothing, or of another time.
    for answer in [held(&[]), held(&[(4100, 9000)])] {
        let mut story = Story::new();
        sandbox(&mut story, 4100);
        container(&mut story, 'c', "main", 5 * SECOND);
        story.at(5500).listed(answer);
        assert_eq!(parts(&play(&story, MINUTE).starts()[0]), vec![]);
    }
}

/// Three pods of one image start together; the kubelet sends one request a second for each.
#[test]
fn each_step_of_the_staircase_is_reported_with_its_own_height() {
    let heights = [1500, 2500, 3500].map(|sent| {
        let mut story = Story::new();
        sandbox(&mut story, sent + 100);
        container(&mut story, 'c', "main", sent + SECOND);
        story.at(6 * SECOND).listed(held(&[(200, sent)]));
        let told = parts(&play(&story, MINUTE).starts()[0]);
        let [(Kind::Prepare, parts)] = &told[..] else { panic!("{told:?}") };
        parts.iter().filter(|(_, _, waits)| waits.is_some()).map(|(_, took, _)| *took).sum::<u128>()
    });
    assert_eq!(heights, [1300, 2300, 3300]);
}

fn link(answer: Answer, since: Option<u64>) -> Fact {
    let socket = "/run/containerd/containerd.sock".to_owned();
    Fact::RuntimeLink(RuntimeLink { socket, answer, events: EventStream::None, since: since.map(ms) })
}

/// It does not answer from 500 on, and answers again at 3000.
#[test]
fn a_runtime_that_answered_nothing_is_a_wait_also_after_the_start_is_reported() {
    let mut story = Story::new();
    begin(&mut story);
    story.at(2500).say(Origin::Cri, link(Answer::Hangs, Some(500)));
    story.at(3000).say(Origin::Cri, link(Answer::Answers, None));
    story.at(4100).netns(DAEMON, POD_NETNS, 7);
    add(&mut story, 'a', 585, "bridge", (4110, 4310), 0);
    pause(&mut story, 'a', 4450, POD_NETNS);
    container(&mut story, 'c', "main", 5 * SECOND);
    let runtime = Some(WaitsFor::Runtime {});
    let parts_of_it = vec![
        (PartKind::Unknown.into(), 400, None),
        (PartKind::Wait.into(), 2500, runtime),
        (PartKind::Unknown.into(), 1100, None),
    ];
    assert_eq!(parts(&play(&story, MINUTE).starts()[0]), vec![(Kind::Prepare, parts_of_it)]);
}

/// The sandbox is up, and the runtime does not start its container.
#[test]
fn a_start_that_goes_on_waits_for_a_runtime_that_answers_nothing() {
    let mut story = Story::new();
    sandbox(&mut story, 200);
    story.at(8 * SECOND).say(Origin::Cri, link(Answer::Hangs, Some(6000)));
    let engine = play(&story, 20 * SECOND);
    let told = parts(&engine.starts()[0]);
    let [(Kind::Image, parts)] = &told[..] else { panic!("{told:?}") };
    let waits: Vec<_> = parts.iter().map(|(_, _, waits)| *waits).collect();
    assert_eq!(waits, [None, Some(WaitsFor::Runtime {})]);
}
