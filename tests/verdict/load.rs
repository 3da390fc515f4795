//! A node with thousands of leaks and many events: the time that the engine needs to keep up.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

use probe_user::{
    engine::{Engine, Settings},
    model::{
        change::{Finding, Output, Question},
        fact::{Fact, Observation, Origin},
        finding::{Kind, Stage},
    },
};

use crate::sim::{Add, Sim};

/// The load of a small node. `LOAD=5` in the environment makes a large one, to measure by hand.
const PODS: u32 = 100;
const RESERVED: u32 = 2_000;
/// Each restart of a container is about seven facts.
const TURNS: u32 = 30;
const SECONDS: u32 = 3;

/// The engine, and how long it worked.
struct Timed {
    engine: Engine,
    took: Duration,
    longest: Duration,
    facts: u64,
}

impl Timed {
    fn new() -> Self {
        let engine = Engine::new(Settings::default());
        Self { engine, took: Duration::ZERO, longest: Duration::ZERO, facts: 0 }
    }

    fn work(&mut self, work: impl FnOnce(&mut Engine)) {
        let begun = Instant::now();
        work(&mut self.engine);
        let took = begun.elapsed();
        self.took += took;
        self.longest = self.longest.max(took);
    }

    fn observe(&mut self, facts: Vec<Observation>) {
        for seen in facts {
            self.facts += 1;
            self.work(|engine| engine.observe(seen));
        }
    }

    /// Passes the new observations to the engine and answers its questions.
    fn settle(&mut self, sim: &mut Sim) {
        let facts = sim.take();
        self.observe(facts);
        let at = sim.now();
        self.observe(vec![Observation { at, origin: Origin::Kernel, fact: Fact::Watermark }]);
        let mut asked: Vec<Question> = Vec::new();
        while let Some(output) = self.engine.poll() {
            if let Output::Question(question) = output {
                asked.push(question);
            }
        }
        for question in asked {
            let answer = sim.answer(&question);
            self.observe(answer);
        }
    }
}

fn address(number: u32) -> IpAddr {
    IpAddr::from(Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 100, 0, 0)) + number))
}

/// Returns the number of leaked addresses in a finding.
fn leaked(it: &Finding) -> Option<u32> {
    match &it.kind {
        Kind::LeakedAddress(it) => Some(it.count()),
        _ => None,
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "the test prints what it measured")]
fn the_engine_keeps_up_with_a_busy_node_with_thousands_of_leaks() {
    let load: u32 = std::env::var("LOAD").map_or(1, |load| load.parse().expect("LOAD is a number"));
    let (pods, reserved) = (PODS * load, RESERVED * load);
    let mut sim = Sim::new();
    sim.runtime_starts();
    sim.kubelet_starts();
    let mut timed = Timed::new();
    for number in 0..pods {
        let name = format!("s{number}");
        sim.sandbox_begins(&name, &format!("pod-{number}"));
        sim.add(&name, "keynet", &[address(number)], Add::Succeeds);
        sim.sandbox_runs(&name);
        sim.container_starts("main", &name);
        timed.settle(&mut sim);
    }
    for number in pods..reserved {
        sim.reserve("keynet", address(number), number % 2 == 0);
    }
    let answer = sim.answer(&Question::Relist);
    timed.observe(answer);
    // The grace period passes.
    for _ in 0..20 {
        let next = sim.now() + Duration::from_secs(10);
        sim.pass_to(next);
        timed.work(|engine| engine.advance(next));
        timed.settle(&mut sim);
    }
    println!(
        "{} facts and {reserved} reservations in {:?}, longest call {:?}",
        timed.facts, timed.took, timed.longest
    );
    let confirmed = timed.engine.findings().filter(|it| it.stage == Stage::Confirmed);
    let leaked: Vec<u32> = confirmed.filter_map(leaked).collect();
    assert_eq!(leaked, [(reserved - pods) / 2], "all leaks are one finding");

    (timed.took, timed.longest, timed.facts) = (Duration::ZERO, Duration::ZERO, 0);
    let begun = sim.now();
    for turn in 0..SECONDS * TURNS {
        let name = format!("s{}", turn % pods);
        sim.container_exits("main", &name, 1);
        sim.container_starts("main", &name);
        timed.settle(&mut sim);
        let next = begun + Duration::from_secs(1) / TURNS * turn;
        sim.pass_to(next);
        timed.work(|engine| engine.advance(next));
    }
    let each = timed.took / SECONDS;
    println!(
        "then {} facts in {SECONDS} s: {each:?} of work a second, longest call {:?}",
        timed.facts, timed.longest
    );
    // The bound is for an unoptimized build that runs beside other tests.
    assert!(load > 1 || each < Duration::from_secs(3), "{each:?} of work a second");
}
