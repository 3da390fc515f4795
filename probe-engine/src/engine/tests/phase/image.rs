//! The parts of an `image` phase, according to the logs.

use super::{MINUTE, SECOND, container, play, sandbox};
use crate::{
    engine::{
        Engine,
        tests::{
            story::{Story, id, ms, run::pass, uid},
            succession::asked_again,
        },
    },
    model::{
        change::{Output, Question},
        fact::{Fact, ImageWork, Pull, Span},
        phase::{Kind, PartKind, Start, WaitsFor},
        time::Timestamp,
    },
};

fn span(began: u64, ended: u64) -> Span {
    Span { began: ms(began), ended: ms(ended) }
}

fn answer(digit: char, own: Span, other: Span) -> Fact {
    Fact::ImageWork(Box::new(ImageWork {
        container: id(digit),
        pulls: vec![Pull { span: own, failed: false, fetched: None }],
        other_pulls: vec![other],
        refused: Vec::new(),
        services_unread: Vec::new(),
        created: None,
        other_creates: Vec::new(),
    }))
}

/// The parts of each `image` phase that has any, ms.
fn parts(start: &Start) -> Vec<Vec<(&'static str, u128, Option<WaitsFor>)>> {
    let images = start.phases.iter().filter(|phase| phase.kind == Kind::Image && !phase.parts.is_empty());
    let told = images.map(|phase| {
        assert_eq!(phase.parts.iter().map(|part| part.took).sum::<std::time::Duration>(), phase.took());
        phase.parts.iter().map(|part| (part.kind.into(), part.took.as_millis(), part.waits)).collect()
    });
    told.collect()
}

/// The questions of a story, in order.
fn asked(story: &Story) -> Vec<(String, Timestamp, Timestamp)> {
    let mut engine = Engine::new(crate::engine::Settings::default());
    let mut asked = Vec::new();
    for seen in &story.facts {
        pass(&mut engine, Timestamp(seen.at.0 - 1));
        engine.observe(seen.clone());
        while let Some(output) = engine.poll() {
            if let Output::Question(Question::ImageWork { container, from, until }) = output {
                asked.push((container.as_str()[..1].to_owned(), from, until));
            }
        }
    }
    pass(&mut engine, ms(MINUTE));
    while let Some(output) = engine.poll() {
        if let Output::Question(Question::ImageWork { container, from, until }) = output {
            asked.push((container.as_str()[..1].to_owned(), from, until));
        }
    }
    asked
}

#[test]
fn only_a_slow_image_is_asked_about() {
    let mut story = Story::new();
    sandbox(&mut story);
    container(&mut story, 'c', "main", 3 * SECOND);
    container(&mut story, 'd', "side", 4 * SECOND);
    container(&mut story, 'e', "last", 6 * SECOND);
    let slow = [("c", 500, 3000), ("e", 4070, 6000)];
    assert_eq!(asked(&story), slow.map(|(id, from, until)| (id.to_owned(), ms(from), ms(until))));
}

#[test]
fn an_answer_divides_the_phase_before_and_after_the_start_is_reported() {
    let waits = WaitsFor::Pulls { ahead: 1, at_once: 1 };
    let expected = vec![vec![
        (PartKind::Wait.into(), 1500, Some(waits)),
        (PartKind::Pull.into(), 900, None),
        (PartKind::Unknown.into(), 100, None),
    ]];
    let fact = answer('c', span(2000, 2900), span(100, 1999));
    for answered in [3500, 40 * SECOND] {
        let mut story = Story::new();
        sandbox(&mut story);
        container(&mut story, 'c', "main", 3 * SECOND);
        story.at(answered).listed(fact.clone());
        let engine = play(&story, MINUTE);
        assert_eq!(parts(&engine.starts()[0]), expected, "{answered}");
    }
    // Nothing is reported about a container that belongs to no start.
    let mut story = Story::new();
    sandbox(&mut story);
    container(&mut story, 'c', "main", 3 * SECOND);
    story.at(3500).listed(answer('f', span(2000, 2900), span(100, 1999)));
    assert_eq!(parts(&play(&story, MINUTE).starts()[0]), Vec::<Vec<_>>::new());
}

/// The last agent was killed before it had the answers. It is too late to ask about a start that was
/// reported.
#[test]
fn a_new_agent_is_asked_again_while_the_start_goes_on() {
    let mut story = Story::new();
    sandbox(&mut story);
    container(&mut story, 'c', "main", 3 * SECOND);
    let asked = |story: &Story, until| {
        let mut asked = asked_again(&play(story, until));
        asked.retain(|it| matches!(it, Question::Expected { .. } | Question::ImageWork { .. }));
        asked
    };
    let work = Question::ImageWork { container: id('c'), from: ms(500), until: ms(3000) };
    assert_eq!(asked(&story, 3200), [Question::Expected { uid: uid() }, work]);
    assert_eq!(asked(&story, MINUTE), []);
    story.at(3500).listed(answer('c', span(2000, 2900), span(100, 1999)));
    story.listed(Fact::ContainersExpected { uid: uid(), names: vec!["main".to_owned(), "side".to_owned()] });
    assert_eq!(asked(&story, 3600), []);
}
