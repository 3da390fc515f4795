//! Restarts in which a pod counts as back when it first listens.

use super::{App, SECOND, TOP, at, booted, ms, rebooted, seconds};
use crate::{
    engine::{
        Engine, Settings,
        boot::{
            average::average,
            report::{Close, RecoveryReport},
        },
        tests::story::Story,
    },
    model::{
        fact::{Mechanism, Signal},
        recovery::{Kind, Pod, PreviousBoot, Recovered, Recovery, Rules},
    },
};

const MINUTE: u64 = 60 * SECOND;

/// The report by the rule that counts pods that listen.
fn study(story: &Story, until: u64) -> (RecoveryReport, Engine) {
    let boot = Rules { recovered: Recovered::Listening, ..Rules::default() };
    let (_, engine) = story.judge_by(Settings { boot, ..Settings::default() }, until);
    (RecoveryReport::of(engine.recovery(), ms(until)), engine)
}

/// The pods of the boot before. `listened` are those that listened then.
fn before(pods: &[App], listened: &[u32]) -> PreviousBoot {
    let mut before = rebooted(pods);
    for pod in before.pods.iter_mut().flatten() {
        pod.listens = listened.iter().any(|n| App(*n).pod().is(pod));
    }
    before
}

fn heard(before: PreviousBoot) -> Story {
    let mut story = booted(before);
    story.at(3500).attached(Signal::Listening, Some(Mechanism::RawTracepoint));
    story
}

fn names(pods: &[Pod]) -> Vec<&str> {
    pods.iter().filter_map(|pod| pod.name.as_deref()).collect()
}

impl App {
    /// The pod's container `n` listens.
    fn listens(&self, story: &mut Story, at: u64, n: u32) {
        story.at(at).listen(self.who(n, "app"), u64::from(self.0 * 100 + n), 80);
    }
}

#[test]
fn a_pod_that_listened_before_is_back_when_it_does_again() {
    let mut story = heard(before(&[App(1), App(2), App(3)], &[1, 2]));
    App(1).up(&mut story, 20 * SECOND);
    App(2).up(&mut story, 21 * SECOND);
    App(3).up(&mut story, 22 * SECOND);
    App(1).listens(&mut story, 40 * SECOND, 2);
    let (found, engine) = study(&story, 50 * SECOND);
    let Close::Open { back: 2, missing: Some(missing) } = &found.close else { panic!("{:?}", found.close) };
    assert_eq!(names(missing), ["app-2"]);
    assert!(!engine.recovery().closed);
    App(2).listens(&mut story, 55 * SECOND, 2);
    // A second socket changes nothing.
    App(1).listens(&mut story, 56 * SECOND, 2);
    let (found, engine) = study(&story, 60 * SECOND);
    assert_eq!(found.close, Close::All { pods: 3 });
    assert!(engine.recovery().closed);
    let times = [found.first_service.as_ref(), found.last_service.as_ref()].map(at);
    assert_eq!(times, [Some(22_000), Some(55_000)]);
    assert_eq!(names(&found.by_start), ["app-3"], "which rule was applied is said");
    // This boot by the other rule, from the stored facts.
    let other = Recovery { recovered: Recovered::Started, ..engine.recovery().clone() };
    let other = RecoveryReport::of(&other, ms(60 * SECOND));
    assert_eq!(seconds(other.numbers.columns), [Some(21), None, Some(32), Some(34)]);
    assert!(other.by_start.is_empty());
    // This is stored for the next restart.
    let listened: Vec<bool> = engine.running_pods().pods.iter().map(|pod| pod.listens).collect();
    assert_eq!(listened, [true, true, false]);
}

#[test]
fn one_that_is_new_or_did_not_listen_counts_by_its_start_until_it_does() {
    let mut story = heard(before(&[App(1)], &[]));
    App(1).up(&mut story, 20 * SECOND);
    let (found, _) = study(&story, 25 * SECOND);
    assert_eq!((at(found.last_service.as_ref()), found.close), (Some(20_000), Close::All { pods: 1 }));
    App(1).listens(&mut story, 35 * SECOND, 2);
    let (found, _) = study(&story, 40 * SECOND);
    assert_eq!((at(found.last_service.as_ref()), found.by_start.len()), (Some(35_000), 0));
}

/// A pod has ten minutes to listen. Without the hook its start counts at once.
#[test]
fn one_that_does_not_listen_any_more_counts_by_its_start_after_all() {
    let mut story = heard(before(&[App(1)], &[1]));
    App(1).up(&mut story, 20 * SECOND);
    let (found, _) = study(&story, 10 * MINUTE);
    assert_eq!(found.last_service, None);
    let (found, engine) = study(&story, 10 * MINUTE + 25 * SECOND);
    assert_eq!((at(found.last_service.as_ref()), names(&found.by_start)), (Some(20_000), vec!["app-1"]));
    assert!(engine.recovery().closed, "the engine wakes up for it");

    let mut deaf = booted(before(&[App(1)], &[1]));
    deaf.at(3500).attached(Signal::Listening, None);
    App(1).up(&mut deaf, 20 * SECOND);
    let (found, _) = study(&deaf, 30 * SECOND);
    assert_eq!((at(found.last_service.as_ref()), found.close), (Some(20_000), Close::All { pods: 1 }));
}

#[test]
fn an_init_container_that_listens_is_no_recovery_and_a_restart_may_be() {
    let mut story = heard(before(&[App(1)], &[1]));
    App(1).begin(&mut story, 10 * SECOND);
    App(1).run(&mut story, 11 * SECOND, 2, "wait");
    App(1).listens(&mut story, 12 * SECOND, 2);
    story.until(18 * SECOND).exit(App(1).who(2, "app"), TOP, 0);
    App(1).run(&mut story, 19 * SECOND, 3, "main");
    story.at(20 * SECOND).exit(App(1).who(3, "app"), TOP, 1 << 8);
    App(1).run(&mut story, 30 * SECOND, 4, "main");
    App(1).listens(&mut story, 33 * SECOND, 4);
    let (found, engine) = study(&story, 40 * SECOND);
    assert_eq!(at(found.last_service.as_ref()), Some(33_000));
    let back = engine.recovery().pods.first().expect("a pod");
    assert_eq!((back.pod.kind, back.mark.at), (Kind::Service, ms(19 * SECOND)));
}

#[test]
fn boots_by_one_rule_and_by_the_other_have_no_mean_together() {
    let mut story = heard(before(&[App(1)], &[1]));
    App(1).up(&mut story, 20 * SECOND);
    App(1).listens(&mut story, 30 * SECOND, 2);
    let (listening, _) = study(&story, 40 * SECOND);
    let (_, engine) = story.judge(40 * SECOND);
    let started = RecoveryReport::of(engine.recovery(), ms(40 * SECOND));
    let mean = average([&started, &started, &listening].into_iter());
    assert_eq!(
        (mean.boots, mean.recovered, seconds(mean.numbers.columns)[3]),
        (1, Recovered::Listening, Some(42))
    );
    let mean = average([&listening, &started, &started].into_iter());
    assert_eq!(
        (mean.boots, mean.recovered, seconds(mean.numbers.columns)[3]),
        (2, Recovered::Started, Some(32))
    );
}
