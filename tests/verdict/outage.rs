//! A network that is down for all pods of a node: each is tried again every ten seconds, with another sandbox each time,
//! for as long as it lasts. The agent must be there for who asks, all of that time.

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

/// As many as the kubelet takes unless it is told otherwise.
const PODS: u32 = 110;
/// The kubelet's pause between two tries.
const BETWEEN: Duration = Duration::from_secs(10);
/// How often who asks is looked for: between the calls that an agent makes of one batch nobody is.
const TICK: Duration = Duration::from_millis(100);

/// What this thread has used: others that run beside it do not count.
fn used() -> Duration {
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a thread has its time");
    Duration::from(now)
}

struct Outage {
    sim: Sim,
    engine: Engine,
    took: Duration,
    longest: Duration,
    /// How often it was asked what a plugin said.
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

    fn tell(&mut self, facts: Vec<Observation>) {
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

    /// Every pod is tried once within the time between two tries.
    fn round(&mut self, round: u32) {
        let begun = self.sim.now();
        for number in 0..PODS {
            self.pass_to(begun + BETWEEN * number / PODS);
            self.sim.try_fails(&format!("s{number}-{round}"), &format!("pod-{number}"), "podnet");
            let facts = self.sim.take();
            self.tell(facts);
        }
        self.pass_to(begun + BETWEEN);
    }

    /// Time passes, deadline by deadline.
    fn pass_to(&mut self, at: Timestamp) {
        while self.sim.now() < at {
            let next = at.min(self.sim.now() + TICK);
            self.sim.pass_to(next);
            if self.engine.deadline().is_some_and(|due| due <= next) {
                self.work(|engine| engine.advance(next));
                self.tell(Vec::new());
            }
        }
    }
}

/// What of the engine grows with the tries.
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

/// The kubelet tries each pod once in ten seconds, and this many pods.
#[test]
#[expect(clippy::print_stdout, reason = "the figures are for whoever runs it to measure")]
fn an_outage_of_the_network_is_kept_up_with_however_long_it_lasts() {
    let minutes: u32 = std::env::var("MINUTES").map_or(5, |text| text.parse().expect("a number"));
    let mut outage = Outage::begin();
    let mut kept = 0;
    for minute in 0..minutes {
        (outage.took, outage.longest) = (Duration::ZERO, Duration::ZERO);
        for round in 0..6 {
            outage.round(minute * 6 + round);
        }
        let each = outage.took / 60;
        kept = attachments(&outage.engine);
        println!(
            "minute {minute}: {each:?} of work a second, at once {:?}; {} questions, {kept} attachments",
            outage.longest, outage.questions
        );
        // Not optimized, and beside other tests.
        assert!(each < Duration::from_millis(300), "{each:?} of work a second in minute {minute}");
    }
    let it = failing(&outage.engine).expect("it is told");
    let tries = PODS * minutes * 6;
    assert!(it.pods == PODS && it.attempts > tries - PODS && it.attempts <= tries, "{it:?} of {tries} tries");
    assert!(it.message.as_ref().is_some_and(|it| it.text.is_some()), "{it:?}");
    assert!(
        outage.questions <= usize::try_from(minutes * 2 + 1).expect("few"),
        "one search for all that fail"
    );
    // Sixteen of each interface, and what came since they were last counted.
    let most = usize::try_from(PODS * 2 * (16 + 2)).expect("few");
    assert!(kept <= most, "{kept} attachments are kept");
}

/// Numbers move with each try, and the file in which findings lie for other commands is not written for them.
#[test]
fn what_only_counts_is_no_reason_to_write_anything() {
    let mut outage = Outage::begin();
    (0..6).for_each(|round| outage.round(round));
    let (before, attempts) =
        (outage.engine.findings_revision(), failing(&outage.engine).map(|it| it.attempts));
    (6..12).for_each(|round| outage.round(round));
    let after = failing(&outage.engine).map(|it| it.attempts);
    assert!(after > attempts, "{after:?} attempts after {attempts:?}");
    assert_eq!(outage.engine.findings_revision(), before);
}

/// As on a node whose agent is replaced during an outage.
#[test]
fn what_an_outage_has_cost_is_known_after_a_restart_and_counted_anew_after_a_success() {
    let mut outage = Outage::begin();
    (0..24).for_each(|round| outage.round(round));
    let mut again = Engine::new(Settings::default());
    outage.engine.dump().into_iter().for_each(|entry| again.restore(entry));
    assert_eq!(again.dump(), outage.engine.dump());
    assert_eq!(failing(&again), failing(&outage.engine));
    outage.engine = again;
    outage.round(24);
    let it = failing(&outage.engine).expect("it goes on");
    assert!(it.attempts > 24 * PODS && it.attempts <= 25 * PODS, "{it:?}");

    // All come through, and later one fails again.
    for number in 0..PODS {
        let name = format!("works{number}");
        let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 88, 1, 0)) + number);
        outage.sim.sandbox_begins(&name, &format!("pod-{number}"));
        outage.sim.add(&name, "podnet", &[address.into()], Add::Succeeds);
        outage.sim.sandbox_runs(&name);
        let facts = outage.sim.take();
        outage.tell(facts);
    }
    let at = outage.sim.now() + BETWEEN;
    outage.pass_to(at);
    assert_eq!(failing(&outage.engine), None);
    for round in 0..20 {
        outage.sim.try_fails(&format!("late{round}"), "pod-0", "podnet");
        let facts = outage.sim.take();
        outage.tell(facts);
        let at = outage.sim.now() + BETWEEN;
        outage.pass_to(at);
    }
    let it = failing(&outage.engine).expect("it is told again");
    assert_eq!((it.attempts, it.pods), (20, 1));
}
