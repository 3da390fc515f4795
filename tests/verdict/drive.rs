//! Runs an engine on a node that does not exist, and keeps what it finds wrong.

use std::time::Duration;

use probe_user::{
    engine::{Call, Engine, Settings},
    model::{
        change::{Change, ChangeKind, Finding, Output, Question},
        fact::{Fact, Observation, Origin, RecordsDiff},
        finding::Stage,
        time::Timestamp,
    },
};

use crate::sim::Sim;

pub(crate) struct Drive {
    pub(crate) sim: Sim,
    pub(crate) engine: Engine,
    /// Every call that was made into it.
    pub(crate) calls: Vec<Call>,
    /// Every finding, as it was when it was last told of, in the order of opening.
    pub(crate) told: Vec<Finding>,
    /// How often the records were asked for.
    pub(crate) asked_records: u32,
    /// Receives every change that the engine tells.
    pub(crate) each_change: fn(&Change),
    /// What becomes of a record of the kernel on its way.
    pub(crate) way: Box<dyn FnMut(Vec<Observation>) -> Vec<Observation>>,
    /// What the records said last, so that the engine is told only what changed, as by the agent's sources; none: each
    /// reading is told whole.
    pub(crate) diff: Option<RecordsDiff>,
}

impl Drive {
    pub(crate) fn new(sim: Sim) -> Self {
        let engine = Engine::new(Settings::default());
        Self {
            sim,
            engine,
            calls: Vec::new(),
            told: Vec::new(),
            asked_records: 0,
            each_change: |_| {},
            way: Box::new(|facts| facts),
            diff: Some(RecordsDiff::default()),
        }
    }

    /// What happened is told, and answered what is asked, until nothing more is.
    pub(crate) fn settle(&mut self) {
        loop {
            let facts = (self.way)(self.sim.take());
            for seen in facts {
                self.observe(seen);
            }
            let now = self.sim.now();
            self.observe(Observation { at: now, origin: Origin::Kernel, fact: Fact::Watermark });
            let questions = self.poll();
            if questions.is_empty() {
                return;
            }
            for question in questions {
                self.answer(&question);
            }
            self.poll_into_nothing();
        }
    }

    /// Time passes, deadline by deadline.
    pub(crate) fn pass_to(&mut self, at: Timestamp) {
        self.settle();
        while let Some(due) = self.engine.deadline().filter(|due| *due <= at) {
            self.sim.pass_to(due.max(self.sim.now()));
            self.advance(due);
            self.settle();
            // A deadline that does not move on would hold time for ever.
            if self.engine.deadline() == Some(due) {
                self.advance(due + Duration::from_nanos(1));
            }
        }
        self.sim.pass_to(at);
        self.advance(self.sim.now());
        self.settle();
    }

    /// Nothing was seen until now: the agent lists what it finds.
    pub(crate) fn start_late(&mut self, at: Timestamp) {
        self.sim.pass_to(at);
        self.sim.take();
        self.engine = Engine::new(Settings::default());
        self.told.clear();
        self.answer(&Question::Relist);
        self.settle();
    }

    /// The node was suspended until now: the agent learns of it before all else.
    pub(crate) fn wake(&mut self, at: Timestamp) {
        self.sim.wakes(at);
        self.settle();
    }

    /// Another agent takes over with all that this one knew.
    pub(crate) fn restart(&mut self, at: Timestamp) {
        self.pass_to(at);
        let remembered = self.engine.dump();
        self.engine = Engine::new(Settings::default());
        remembered.into_iter().for_each(|entry| self.engine.restore(entry));
        // The new agent's sources know of no reading.
        self.diff = self.diff.take().map(|_| RecordsDiff::default());
        self.settle();
    }

    fn poll_into_nothing(&mut self) {
        // Answers bring changes about, and perhaps further questions, which the next round asks.
        let more = self.poll();
        for question in more {
            self.answer(&question);
        }
    }

    fn answer(&mut self, question: &Question) {
        let mut answer = self.sim.answer(question);
        if let Some(diff) = &mut self.diff {
            // The records are told whole together with everything else.
            if *question == Question::Relist {
                *diff = RecordsDiff::default();
            }
            answer = diff.reduce(answer);
        }
        for seen in answer {
            self.observe(seen);
        }
    }

    fn observe(&mut self, seen: Observation) {
        self.calls.push(Call::Observe(seen.clone()));
        self.engine.observe(seen);
    }

    fn advance(&mut self, now: Timestamp) {
        self.calls.push(Call::Advance(now));
        self.engine.advance(now);
    }

    fn poll(&mut self) -> Vec<Question> {
        let mut questions = Vec::new();
        while let Some(output) = self.engine.poll() {
            match output {
                Output::Question(question) => {
                    self.asked_records += u32::from(question == Question::Records);
                    questions.push(question);
                }
                Output::Change(change) => {
                    (self.each_change)(&change);
                    if let ChangeKind::FindingOpened(it)
                    | ChangeKind::FindingConfirmed(it)
                    | ChangeKind::FindingClosed(it) = change.what
                    {
                        self.tell(*it);
                    }
                }
            }
        }
        questions
    }

    fn tell(&mut self, it: Finding) {
        let known = |other: &&mut Finding| other.key == it.key && other.stage != Stage::Closed;
        match self.told.iter_mut().find(known) {
            Some(known) => *known = it,
            None => self.told.push(it),
        }
    }
}
