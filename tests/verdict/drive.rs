//! Runs an engine on a simulated node and collects its findings.

use std::time::Duration;

use probe_user::{
    engine::{Call, Engine, Settings, world::CheckpointEntry},
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
    /// Every call that was made to the engine.
    pub(crate) calls: Vec<Call>,
    /// Every finding in its last reported state, in the order of opening.
    pub(crate) findings: Vec<Finding>,
    /// How often the engine asked for the records.
    pub(crate) asked_records: u32,
    /// Is called with every change that the engine reports.
    pub(crate) each_change: fn(&Change),
    /// Alters the kernel's records on their way to the engine.
    pub(crate) delivery: Box<dyn FnMut(Vec<Observation>) -> Vec<Observation>>,
    /// The records of the last reading. With it the engine gets only the changes, as from the agent's
    /// sources. `None`: the engine gets each reading completely.
    pub(crate) diff: Option<RecordsDiff>,
}

impl Drive {
    pub(crate) fn new(sim: Sim) -> Self {
        let engine = Engine::new(Settings::default());
        Self {
            sim,
            engine,
            calls: Vec::new(),
            findings: Vec::new(),
            asked_records: 0,
            each_change: |_| {},
            delivery: Box::new(|facts| facts),
            diff: Some(RecordsDiff::default()),
        }
    }

    /// Passes the new observations to the engine and answers its questions, until it asks no more.
    pub(crate) fn settle(&mut self) {
        loop {
            let facts = (self.delivery)(self.sim.take());
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
            self.answer_follow_ups();
        }
    }

    /// Lets time pass, deadline by deadline.
    pub(crate) fn pass_to(&mut self, at: Timestamp) {
        self.settle();
        while let Some(due) = self.engine.deadline().filter(|due| *due <= at) {
            self.sim.pass_to(due.max(self.sim.now()));
            self.advance(due);
            self.settle();
            // A deadline that does not move would stop time for ever.
            if self.engine.deadline() == Some(due) {
                self.advance(due + Duration::from_nanos(1));
            }
        }
        self.sim.pass_to(at);
        self.advance(self.sim.now());
        self.settle();
    }

    /// Starts an agent that saw nothing until now. It lists what it finds.
    pub(crate) fn start_late(&mut self, at: Timestamp) {
        self.sim.pass_to(at);
        self.sim.take();
        self.engine = Engine::new(Settings::default());
        self.findings.clear();
        self.relist();
    }

    /// Ends a suspend of the node. The agent learns of that first.
    pub(crate) fn wake(&mut self, at: Timestamp) {
        self.sim.wakes(at);
        self.settle();
    }

    /// A new agent takes over everything that this one knew.
    pub(crate) fn restart(&mut self, at: Timestamp) {
        self.pass_to(at);
        let remembered = self.engine.dump();
        self.engine = Engine::new(Settings::default());
        remembered.into_iter().for_each(|entry| self.engine.restore(entry));
        // The new agent's sources remember no reading.
        self.diff = self.diff.take().map(|_| RecordsDiff::default());
        self.settle();
    }

    /// Ends the agent. Nothing sees what happens from now on. Returns its state, and the time.
    pub(crate) fn agent_ends(&mut self) -> (Vec<CheckpointEntry>, Timestamp) {
        let kept = (self.engine.dump(), self.sim.now());
        self.engine = Engine::new(Settings::default());
        kept
    }

    /// Starts another agent, which continues with the last one's state and lists the node.
    pub(crate) fn agent_returns(&mut self, (kept, since): (Vec<CheckpointEntry>, Timestamp)) {
        // Nobody has read them.
        drop(self.sim.take());
        kept.into_iter().for_each(|entry| self.engine.restore(entry));
        self.diff = self.diff.take().map(|_| RecordsDiff::default());
        let at = self.sim.now();
        self.observe(Observation { at, origin: Origin::Agent, fact: Fact::AgentAway { since } });
        self.relist();
    }

    pub(crate) fn relist(&mut self) {
        self.answer(&Question::Relist);
        self.settle();
    }

    fn answer_follow_ups(&mut self) {
        // Answers cause changes, and perhaps more questions. The next round answers those.
        let more = self.poll();
        for question in more {
            self.answer(&question);
        }
    }

    fn answer(&mut self, question: &Question) {
        let mut answer = self.sim.answer(question);
        if let Some(diff) = &mut self.diff {
            // A listing contains all the records.
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
                        self.update(*it);
                    }
                }
            }
        }
        questions
    }

    fn update(&mut self, it: Finding) {
        let known = |other: &&mut Finding| other.key == it.key && other.stage != Stage::Closed;
        match self.findings.iter_mut().find(known) {
            Some(known) => *known = it,
            None => self.findings.push(it),
        }
    }
}
