//! The network of a node is down for all its pods. The kubelet retries each pod every ten seconds with a new
//! sandbox. The agent must still answer all that time.

use std::{net::Ipv4Addr, time::Duration};

use nix::time::{ClockId, clock_gettime};
use probe_user::{
    engine::{Engine, Settings, world::CheckpointEntry},
    model::{
        change::{Output, Question},
        fact::{Fact, Observation, Origin},
        finding::{CniFailing, Kind, Stage},
        time::Timestamp,
    },
};

use crate::sim::{Add, Sim};

/// The kubelet's default limit of pods.
const PODS: u32 = 110;
/// The kubelet's time between two tries.
const BETWEEN: Duration = Duration::from_secs(10);
/// The agent checks for requests at this interval. It does not check between the calls of one batch.
const TICK: Duration = Duration::from_millis(100);

/// Returns the CPU time of this thread, without the other tests that run at the same time.
fn used() -> Duration {
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("the thread's CPU clock");
    Duration::from(now)
}

struct Outage {
    sim: Sim,
    engine: Engine,
    took: Duration,
    longest: Duration,
    /// How often the engine asked for a plugin's error message.
    questions: usize,
}

impl Outage {
    fn begin() -> Self {
        let mut sim = Sim::new();
        sim.runtime_starts();
        sim.kubelet_starts();
        let engine = Engine::new(Settings::default());
        let (took, longest) = (Duration::ZERO, Duration::ZERO);
        let mut outage = Self { sim, engine, took, longest, questions: 0 };
        let listed = outage.sim.answer(&Question::Relist);
        outage.observe(listed);
        outage
    }

    fn work<T>(&mut self, work: impl FnOnce(&mut Engine) -> T) -> T {
        let begun = used();
        let done = work(&mut self.engine);
        let took = used().saturating_sub(begun);
        self.took += took;
        self.longest = self.longest.max(took);
        done
    }

    fn observe(&mut self, facts: Vec<Observation>) {
        for seen in facts {
            self.work(|engine| engine.observe(seen));
        }
    }

    fn pass_on(&mut self, facts: Vec<Observation>) {
        let at = facts.last().map_or(self.sim.now(), |last| last.at);
        self.observe(facts);
        self.observe(vec![Observation { at, origin: Origin::Kernel, fact: Fact::Watermark }]);
        while let Some(output) = self.work(Engine::poll) {
            let Output::Question(question) = output else { continue };
            self.questions += usize::from(matches!(question, Question::Message { .. }));
            let answer = self.sim.answer(&question);
            self.observe(answer);
        }
    }

    /// Each pod is tried once within the time between two tries.
    fn round(&mut self, round: u32) {
        let begun = self.sim.now();
        for number in 0..PODS {
            self.pass_to(begun + BETWEEN * number / PODS);
            self.sim.try_fails(&format!("s{number}-{round}"), &format!("pod-{number}"), "podnet");
            let facts = self.sim.take();
            self.pass_on(facts);
        }
        self.pass_to(begun + BETWEEN);
    }

    /// Lets time pass, deadline by deadline.
    fn pass_to(&mut self, at: Timestamp) {
        while self.sim.now() < at {
            let next = at.min(self.sim.now() + TICK);
            self.sim.pass_to(next);
            if self.engine.deadline().is_some_and(|due| due <= next) {
                self.work(|engine| engine.advance(next));
                self.pass_on(Vec::new());
            }
        }
    }
}

/// Returns the number of attachments in the engine, which could grow with the tries.
fn attachments(engine: &Engine) -> usize {
    let is_one = |entry: &&CheckpointEntry| matches!(entry, CheckpointEntry::Attachment(_));
    engine.dump().iter().filter(is_one).count()
}

fn failing(engine: &Engine) -> Option<&CniFailing> {
    let mut open = engine.findings().filter(|it| it.stage == Stage::Confirmed);
    open.find_map(|it| match &it.kind {
        Kind::CniFailing(failing) => Some(failing),
        _ => None,
    })
}

/// The kubelet retries 110 pods, each every ten seconds.
#[test]
#[expect(clippy::print_stdout, reason = "the test prints what it measured")]
fn the_engine_keeps_up_with_an_outage_of_any_length() {
    let minutes: u32 = std::env::var("MINUTES").map_or(5, |text| text.parse().expect("a number"));
    let mut outage = Outage::begin();
    let mut stored = 0;
    for minute in 0..minutes {
        (outage.took, outage.longest) = (Duration::ZERO, Duration::ZERO);
        for round in 0..6 {
            outage.round(minute * 6 + round);
        }
        let each = outage.took / 60;
        stored = attachments(&outage.engine);
        println!(
            "minute {minute}: {each:?} of work a second, longest call {:?}; {} questions, {stored} attachments",
            outage.longest, outage.questions
        );
        // The bound is for an unoptimized build that runs beside other tests.
        assert!(each < Duration::from_millis(300), "{each:?} of work a second in minute {minute}");
    }
    let it = failing(&outage.engine).expect("the finding exists");
    let tries = PODS * minutes * 6;
    assert!(it.pods == PODS && it.attempts > tries - PODS && it.attempts <= tries, "{it:?} of {tries} tries");
    assert!(it.message.as_ref().is_some_and(|it| it.text.is_some()), "{it:?}");
    assert!(
        outage.questions <= usize::try_from(minutes * 2 + 1).expect("few"),
        "one question for all failed ADDs"
    );
    // The engine stores sixteen attachments for each interface, and those since the last cleanup.
    let most = usize::try_from(PODS * 2 * (16 + 2)).expect("few");
    assert!(stored <= most, "{stored} attachments are stored");
}

/// The counts of the finding change with each try. The state file need not be written for them.
#[test]
fn a_changed_count_alone_does_not_change_the_revision() {
    let mut outage = Outage::begin();
    (0..6).for_each(|round| outage.round(round));
    let (before, attempts) =
        (outage.engine.findings_revision(), failing(&outage.engine).map(|it| it.attempts));
    (6..12).for_each(|round| outage.round(round));
    let after = failing(&outage.engine).map(|it| it.attempts);
    assert!(after > attempts, "{after:?} attempts after {attempts:?}");
    assert_eq!(outage.engine.findings_revision(), before);
}

/// An agent is replaced during an outage.
#[test]
fn the_count_of_an_outage_survives_a_restart_and_starts_again_after_a_success() {
    let mut outage = Outage::begin();
    (0..24).for_each(|round| outage.round(round));
    let mut restored = Engine::new(Settings::default());
    outage.engine.dump().into_iter().for_each(|entry| restored.restore(entry));
    assert_eq!(restored.dump(), outage.engine.dump());
    assert_eq!(failing(&restored), failing(&outage.engine));
    outage.engine = restored;
    outage.round(24);
    let it = failing(&outage.engine).expect("the finding exists");
    assert!(it.attempts > 24 * PODS && it.attempts <= 25 * PODS, "{it:?}");

    // All ADDs succeed, and later those of one pod fail again.
    for number in 0..PODS {
        let name = format!("works{number}");
        let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 88, 1, 0)) + number);
        outage.sim.sandbox_begins(&name, &format!("pod-{number}"));
        outage.sim.add(&name, "podnet", &[address.into()], Add::Succeeds);
        outage.sim.sandbox_runs(&name);
        let facts = outage.sim.take();
        outage.pass_on(facts);
    }
    let at = outage.sim.now() + BETWEEN;
    outage.pass_to(at);
    assert_eq!(failing(&outage.engine), None);
    for round in 0..20 {
        outage.sim.try_fails(&format!("late{round}"), "pod-0", "podnet");
        let facts = outage.sim.take();
        outage.pass_on(facts);
        let at = outage.sim.now() + BETWEEN;
        outage.pass_to(at);
    }
    let it = failing(&outage.engine).expect("the finding exists again");
    assert_eq!((it.attempts, it.pods), (20, 1));
}
