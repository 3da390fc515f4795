//! Drives an engine as the agent does: a watermark each time the rings are read, deadlines when they are due,
//! and an answer to every question. The engine's work is measured; making its input is not.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use anyhow::Result;
use probe_engine::{
    engine::{Call, Engine, Settings},
    model::{
        change::{Output, Question},
        fact::{Fact, Observation, Origin},
        finding::Stage,
        time::Timestamp,
    },
    recording::{Header, Writer},
};

use crate::{COHORT, PROBES, memory, node::Node, scenario::Scenario, script::Script};

/// How long after the first record the agent reads the rings.
const SLACK: Duration = Duration::from_millis(5);
/// The time after which the effects of the beginning are over: verdicts wait for up to two minutes, and rows
/// of what is over stay for a quarter of an hour.
const SETTLED: Duration = Duration::from_secs(20 * 60);
/// The agent begins a day after the node, when the boot is long over.
const BEGUN: Timestamp = Timestamp(86_400_000_000_000);
/// The turns before the measurement. The first of them settle what was found at the beginning.
const FIRST_TURNS: u64 = 10;
/// The number of pods that retry if ADDs fail.
const FAILING: u64 = 100;

/// The cost of the engine's work.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// The number of observations.
    pub(crate) count: u64,
    pub(crate) nanoseconds: u64,
    pub(crate) allocations: u64,
}

pub(crate) struct Drive {
    node: Node,
    engine: Engine,
    now: Timestamp,
    /// The pods that come and go, the oldest first.
    cohort: VecDeque<u64>,
    questions: Vec<Question>,
    /// Kernel records, with the watermarks and deadlines among them.
    pub(crate) events: Cost,
    /// Listings and answers to questions.
    pub(crate) answers: Cost,
    pub(crate) changes: u64,
    is_measured: bool,
    /// The recording of the calls into the engine, if there is one.
    record: Option<Writer>,
}

impl Drive {
    pub(crate) fn new(node: Node) -> Self {
        Self {
            node,
            engine: Engine::new(Settings::default()),
            now: BEGUN,
            cohort: VecDeque::new(),
            questions: Vec::new(),
            events: Cost::default(),
            answers: Cost::default(),
            changes: 0,
            is_measured: false,
            record: None,
        }
    }

    /// Keeps every call into the engine from now on, as the agent's recording does.
    pub(crate) fn record(&mut self) -> Result<()> {
        let header = Header {
            made_by: "bench".to_owned(),
            node: "bench".to_owned(),
            boot_id: "00000000-0000-4000-8000-000000000000".to_owned(),
            kernel: "6.12.0".to_owned(),
            boot_wall_ns: 0,
            settings: Settings::default(),
        };
        self.record = Some(Writer::start(&header)?);
        Ok(())
    }

    /// Returns the recording, if there is one.
    pub(crate) fn recorded(&mut self) -> Result<Option<Vec<u8>>> {
        Ok(self.record.take().map(Writer::end).transpose()?)
    }

    /// Begins the agent on a node with everything on it, and lets time pass.
    pub(crate) fn settle_in(&mut self, scenario: &Scenario) {
        self.questions.push(Question::Relist);
        self.answer();
        self.pass_to(self.now + SETTLED);
        for _ in 0..scenario.failed {
            let pod = self.node.begin_failing(FAILING, self.now);
            let mut script = Script::new(self.now, 100);
            script.fail(&pod);
            self.play(script);
        }
        for turn in 0..FIRST_TURNS {
            self.turn(turn, scenario);
        }
        self.pass_to(self.now + Duration::from_secs(60));
    }

    /// Resets the counters.
    pub(crate) fn begin_to_measure(&mut self) {
        self.is_measured = true;
        (self.events, self.answers, self.changes) = (Cost::default(), Cost::default(), 0);
    }

    /// Starts a pod, probes some, and ends one that was started before.
    pub(crate) fn turn(&mut self, turn: u64, scenario: &Scenario) {
        let begun = self.now;
        let mut script = Script::new(begun, scenario.step_us);
        let number = self.node.begin(begun);
        script.start(self.node.pod(number));
        self.cohort.push_back(number);
        for probe in 0..PROBES {
            if let Some(pod) = self.node.staying(turn * PROBES + probe) {
                script.probe(pod);
            }
        }
        // Its records still exist while it ends.
        let ending = if self.cohort.len() as u64 > COHORT { self.cohort.pop_front() } else { None };
        if let Some(number) = ending {
            script.end(self.node.pod(number));
        }
        self.play(script);
        if let Some(number) = ending {
            self.node.end(number);
        }
        self.pass_to(begun + Duration::from_millis(scenario.pause_ms));
    }

    /// Reads the events in portions.
    fn play(&mut self, script: Script) {
        let end = script.at;
        let mut portion: Vec<Observation> = Vec::new();
        for seen in script.facts {
            if portion.first().is_some_and(|first| seen.at.since(first.at) >= SLACK) {
                self.read(std::mem::take(&mut portion));
            }
            portion.push(seen);
        }
        self.read(portion);
        self.now = self.now.max(end);
    }

    fn read(&mut self, mut portion: Vec<Observation>) {
        let Some(last) = portion.last() else { return };
        let at = last.at;
        self.advance_to(at);
        portion.push(Observation { at, origin: Origin::Agent, fact: Fact::Watermark });
        self.now = at;
        keep(&mut self.record, portion.iter().cloned().map(Call::Observe));
        let work = || taking_events(&mut self.engine, portion, &mut self.questions, &mut self.changes);
        self.events.add(|| if self.is_measured { counted(work) } else { work() });
        self.answer();
    }

    /// Lets time pass, deadline by deadline.
    fn pass_to(&mut self, at: Timestamp) {
        self.advance_to(at);
        self.now = self.now.max(at);
    }

    fn advance_to(&mut self, at: Timestamp) {
        while let Some(due) = self.engine.deadline().filter(|due| *due <= at) {
            self.now = self.now.max(due);
            let now = self.now;
            keep(&mut self.record, [Call::Advance(now)]);
            let mut work = || falling_due(&mut self.engine, now, &mut self.questions, &mut self.changes);
            self.events.add(|| if self.is_measured { counted(work) } else { work() });
            self.answer();
        }
    }

    fn answer(&mut self) {
        while let Some(question) = self.questions.pop() {
            let facts = self.node.answer(&question, self.now);
            keep(&mut self.record, facts.iter().cloned().map(Call::Observe));
            self.answers
                .add(|| taking_answers(&mut self.engine, facts, &mut self.questions, &mut self.changes));
        }
    }

    pub(crate) fn open_findings(&self) -> u64 {
        self.engine.findings().filter(|it| it.stage != Stage::Closed).count() as u64
    }

    /// Returns the number of rows of the engine's state.
    pub(crate) fn engine_rows(&self) -> usize {
        self.engine.dump().len()
    }

    /// Returns the memory of the engine, bytes.
    pub(crate) fn heap(self) -> u64 {
        let with_engine = memory::live_bytes();
        drop(self.engine);
        with_engine - memory::live_bytes()
    }
}

impl Cost {
    fn add(&mut self, work: impl FnOnce() -> u64) {
        let (begun, allocations) = (Instant::now(), memory::allocations());
        self.count += work();
        self.allocations += memory::allocations() - allocations;
        self.nanoseconds += u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    }
}

/// Writes the calls to the recording. Nothing is copied if there is none.
fn keep(record: &mut Option<Writer>, calls: impl IntoIterator<Item = Call>) {
    if let Some(writer) = record {
        for call in calls {
            writer.write(&call).expect("a call of the bench has a form as a line");
        }
    }
}

/// Runs the work. `cargo xtask bench` counts the instructions in this function, by its name.
#[inline(never)]
fn counted(work: impl FnOnce() -> u64) -> u64 {
    work()
}

fn taking_events(
    engine: &mut Engine,
    facts: Vec<Observation>,
    questions: &mut Vec<Question>,
    changes: &mut u64,
) -> u64 {
    // The watermark is not counted.
    let count = facts.len() as u64 - 1;
    take_in(engine, facts, questions, changes);
    count
}

fn taking_answers(
    engine: &mut Engine,
    facts: Vec<Observation>,
    questions: &mut Vec<Question>,
    changes: &mut u64,
) -> u64 {
    let count = facts.len() as u64;
    take_in(engine, facts, questions, changes);
    count
}

fn falling_due(engine: &mut Engine, now: Timestamp, questions: &mut Vec<Question>, changes: &mut u64) -> u64 {
    engine.advance(now);
    drain(engine, questions, changes);
    0
}

fn take_in(engine: &mut Engine, facts: Vec<Observation>, questions: &mut Vec<Question>, changes: &mut u64) {
    for seen in facts {
        engine.observe(seen);
        drain(engine, questions, changes);
    }
}

fn drain(engine: &mut Engine, questions: &mut Vec<Question>, changes: &mut u64) {
    while let Some(output) = engine.poll() {
        match output {
            Output::Change(_) => *changes += 1,
            Output::Question(question) => questions.push(question),
        }
    }
}
