//! Properties that hold for every history, even for an impossible one: the facts are random.

mod fact;
mod records;

use std::time::Duration;

use fact::{found, happened};
use proptest::prelude::*;

use super::{
    containerd,
    recovery::restart::forgetful,
    story::{
        Story, ms,
        run::{pass, settle, take},
    },
};
use crate::{
    engine::{Engine, Settings},
    model::{
        change::{Finding, Output},
        fact::{CniCalled, Executed, Exited, Fact, Observation, Origin, ProcessFound, Task},
        time::Timestamp,
    },
};

/// The facts between two watermarks, each at its own time. A long time may pass between the steps.
#[derive(Clone, Debug)]
struct Step {
    happened: Vec<Observation>,
    found: Vec<Observation>,
    watermark: Timestamp,
}

fn history() -> impl Strategy<Value = Vec<Step>> {
    let kernel = proptest::collection::vec(happened(), 0..12);
    let other = proptest::collection::vec(found(), 0..4);
    let pause = prop_oneof![6 => Just(1_u64), 2 => Just(1200_u64), 1 => Just(100_000_u64)];
    proptest::collection::vec((kernel, other, pause), 1..8).prop_map(|steps| {
        let mut now = 1;
        let mut stamp = |origin, fact| {
            now += 1;
            Observation { at: ms(now), origin, fact }
        };
        let mut made = Vec::new();
        for (kernel, other, pause) in steps {
            let happened = kernel.into_iter().map(|fact| {
                let is_foreign = matches!(&fact, Fact::CniCalled(call) if !call.host);
                stamp(if is_foreign { Origin::Delegated } else { Origin::Kernel }, fact)
            });
            let happened = happened.collect();
            let found = other.into_iter().map(|(origin, fact)| stamp(origin, fact)).collect();
            let end = stamp(Origin::Agent, Fact::Watermark).at;
            made.push(Step { happened, found, watermark: end });
            for _ in 0..pause {
                stamp(Origin::Agent, Fact::Watermark);
            }
        }
        made
    })
}

/// Facts at any time, also late ones, and watermarks that jump.
fn nonsense() -> impl Strategy<Value = Vec<Observation>> {
    let any_fact = prop_oneof![
        4 => happened().prop_map(|fact| (Origin::Kernel, fact)),
        2 => found(),
        1 => Just((Origin::Agent, Fact::Watermark)),
    ];
    let at = prop_oneof![4 => 0_u64..50, 1 => 0_u64..200_000, 1 => Just(u64::MAX / 1_000_000)];
    let seen = (any_fact, at).prop_map(|((origin, fact), at)| Observation { at: ms(at), origin, fact });
    proptest::collection::vec(seen, 0..60)
}

/// The life of one pod with containerd, split into steps.
fn story_steps() -> Vec<Step> {
    let mut story = Story::new();
    containerd::start(&mut story);
    containerd::run(&mut story);
    containerd::end(&mut story);
    let kernel: Vec<Observation> =
        story.facts.into_iter().filter(|seen| seen.origin == Origin::Kernel).collect();
    let step = |facts: &[Observation]| Step {
        happened: facts.to_vec(),
        found: Vec::new(),
        watermark: facts.last().map_or(Timestamp::ZERO, |last| last.at),
    };
    kernel.chunks(9).map(step).collect()
}

fn play(engine: &mut Engine, step: &Step) -> Vec<String> {
    for seen in step.happened.iter().chain(&step.found) {
        engine.observe(seen.clone());
    }
    pass(engine, step.watermark);
    take(engine)
}

/// Returns the findings about anything but a daemon that does not run.
fn others(engine: &Engine) -> Vec<&Finding> {
    engine.findings().filter(|it| !it.key.as_str().starts_with("daemon_failing/")).collect()
}

fn play_all(steps: &[Step]) -> Vec<String> {
    let mut engine = Engine::new(Settings::default());
    let mut lines: Vec<String> = steps.iter().flat_map(|step| play(&mut engine, step)).collect();
    lines.extend(settle(&mut engine, end(steps)));
    lines
}

fn end(steps: &[Step]) -> Timestamp {
    steps.last().map_or(Timestamp::ZERO, |step| step.watermark)
}

fn restored(engine: &Engine) -> Engine {
    let mut fresh = Engine::new(engine.settings().clone());
    engine.dump().into_iter().for_each(|entry| fresh.restore(entry));
    fresh
}

fn shuffled(steps: &[Step], mut seed: u64) -> Vec<Step> {
    let mut steps = steps.to_vec();
    for step in &mut steps {
        for at in (1..step.happened.len()).rev() {
            // Knuth's generator. Any order will do.
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let other = usize::try_from(seed >> 33).unwrap_or(0) % (at + 1);
            step.happened.swap(at, other);
        }
    }
    steps
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_order_of_delivery_within_the_watermark_means_nothing(steps in history(), seed: u64) {
        prop_assert_eq!(play_all(&shuffled(&steps, seed)), play_all(&steps));
    }

    #[test]
    fn duplicates_change_nothing(steps in history(), seed: u64) {
        let mut twice = steps.clone();
        for step in &mut twice {
            step.happened.extend(step.happened.clone());
        }
        prop_assert_eq!(play_all(&shuffled(&twice, seed)), play_all(&steps));
    }

    #[test]
    fn a_restored_engine_goes_on_as_the_dumped_one(steps in history(), cut in 0_usize..8, half: bool) {
        let mut engine = Engine::new(Settings::default());
        let cut = cut.min(steps.len());
        for step in &steps[..cut] {
            play(&mut engine, step);
        }
        if half && let Some(step) = steps.get(cut) {
            // In the middle of a step, records wait in the timeline.
            for seen in &step.happened {
                engine.observe(seen.clone());
            }
            take(&mut engine);
        }
        let mut other = restored(&engine);
        prop_assert_eq!(other.dump(), engine.dump());
        for step in &steps[cut..] {
            prop_assert_eq!(play(&mut other, step), play(&mut engine, step));
            prop_assert_eq!(other.deadline(), engine.deadline());
        }
        prop_assert_eq!(settle(&mut other, end(&steps)), settle(&mut engine, end(&steps)));
        prop_assert_eq!(other.dump(), engine.dump());
        prop_assert_eq!(other.pods(), engine.pods());
        prop_assert_eq!(other.balance(), engine.balance());
        prop_assert_eq!(other.running_pods(), engine.running_pods());
    }

    #[test]
    fn of_restarts_only_the_end_of_a_daemon_that_is_down_counts(steps in history()) {
        let (mut engine, mut other) = (Engine::new(Settings::default()), Engine::new(Settings::default()));
        let told = |lines: Vec<String>| -> Vec<String> {
            let is_other = |line: &String| !line.starts_with("? program") && !line.contains("daemon_failing");
            lines.into_iter().filter(is_other).collect()
        };
        for step in &steps {
            prop_assert_eq!(told(play(&mut other, step)), told(play(&mut engine, step)));
            other = forgetful(&other);
        }
        prop_assert_eq!(told(settle(&mut other, end(&steps))), told(settle(&mut engine, end(&steps))));
        prop_assert_eq!(others(&other), others(&engine));
    }

    #[test]
    fn whatever_comes_the_engine_goes_on(facts in nonsense()) {
        let mut engine = Engine::new(Settings::default());
        let (mut told, mut latest) = (0, Timestamp::ZERO);
        for seen in facts {
            let at = seen.at;
            engine.observe(seen);
            engine.advance(at);
            let now = engine.now;
            prop_assert!(engine.deadline().is_none_or(|deadline| deadline > now), "it would be woken for ever");
            for it in engine.balance() {
                let closed = it.released + it.released_without_netns + it.unreleased + it.unknown;
                prop_assert_eq!(it.added, closed + it.live + it.ended, "an attachment without a fate, or with two");
                prop_assert!(it.pods <= it.sandboxes && it.sandboxes <= it.added, "{:?}", it);
                prop_assert!(it.unverified <= Some(it.released_without_netns), "{:?}", it);
            }
            for output in std::iter::from_fn(|| engine.poll()) {
                if let Output::Change(change) = output {
                    told += 1;
                    prop_assert_eq!(change.seq, told);
                    prop_assert!(change.late || change.at >= latest, "out of order, and not said so");
                    latest = latest.max(change.at);
                }
            }
        }
    }

    #[test]
    fn memory_is_bounded_by_what_lives(steps in history(), rounds in 1_u64..40) {
        let mut engine = Engine::new(Settings::default());
        // Each round has a quiet time behind it, in which what is over is forgotten.
        let span = end(&steps) + Duration::from_secs(200);
        let mut rows = Vec::new();
        for round in 0..rounds {
            for step in &steps {
                let mut step = step.clone();
                for seen in step.happened.iter_mut().chain(&mut step.found) {
                    seen.at = Timestamp(seen.at.0 + round * span.0);
                    again(&mut seen.fact, round);
                }
                step.watermark = Timestamp(step.watermark.0 + round * span.0);
                play(&mut engine, &step);
            }
            for later in 1..20 {
                engine.advance(Timestamp(end(&steps).0 + round * span.0) + Duration::from_secs(later * 10));
                take(&mut engine);
            }
            rows.push(engine.dump().len());
        }
        let most = rows.iter().copied().max().unwrap_or(0);
        prop_assert!(most <= 100, "rows after each round: {rows:?}");
    }
}

/// Repeats a fact with other processes, whose pids are reused.
fn again(fact: &mut Fact, round: u64) {
    let renew = |task: &mut Task| {
        task.key.start += round * 1_000_000;
        task.parent.start += round * 1_000_000;
    };
    if let Fact::Executed(Executed { task, .. })
    | Fact::CniCalled(CniCalled { task, .. })
    | Fact::Exited(Exited { task, .. })
    | Fact::ProcessFound(ProcessFound { task, .. }) = fact
    {
        renew(task);
    }
}

#[test]
fn a_pods_life_is_the_same_in_any_order_and_across_a_restart() {
    let steps = story_steps();
    let expected = play_all(&steps);
    for seed in 0..50 {
        assert_eq!(play_all(&shuffled(&steps, seed)), expected);
    }
    for cut in 0..=steps.len() {
        let mut engine = Engine::new(Settings::default());
        let mut lines: Vec<String> = steps[..cut].iter().flat_map(|step| play(&mut engine, step)).collect();
        let mut engine = restored(&engine);
        lines.extend(steps[cut..].iter().flat_map(|step| play(&mut engine, step)));
        lines.extend(settle(&mut engine, end(&steps)));
        assert_eq!(lines, expected, "cut at {cut}");
    }
}
