//! One engine and what listens to it. Every call, made live or replayed, goes through here, so that the same calls
//! give the same bytes.
//!
//! **Invariant:** no I/O and no clock: bytes are left for the caller to write.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    engine::{Call, Engine},
    model::{
        change::{Output, Question},
        fact::{Fact, List},
        finding::Revision,
        recovery::{Recovery, StandingPods},
        time::Timestamp,
    },
    recording::{Header, WriteError, Writer, state::Snapshot},
    sink::{Label, Observer, Sink, filter::Filter, summary::Summary},
};
#[cfg(feature = "metrics")]
use crate::{
    model::finding::Finding,
    sink::metrics::{Metrics, Views, own::AgentStats},
};

/// So many starts are told to other commands beside those of the pods that are here.
const STARTS: usize = 64;

pub struct Session {
    engine: Engine,
    label: Label,
    filter: Filter,
    sink: Box<dyn Sink>,
    listeners: Vec<Box<dyn Observer>>,
    /// The lists of the node that have been read to their end.
    listed: BTreeSet<List>,
    summary: Summary,
    recording: Option<Writer>,
    #[cfg(feature = "metrics")]
    metrics: Option<Metrics>,
    told: Vec<u8>,
    questions: Vec<Question>,
}

impl Session {
    #[must_use]
    pub fn new(header: &Header, filter: Filter, sink: Box<dyn Sink>) -> Self {
        let label = Label {
            node: header.node.clone(),
            boot_id: header.boot_id.clone(),
            boot_wall_ns: header.boot_wall_ns,
        };
        Self {
            engine: Engine::new(header.settings.clone()),
            label,
            filter,
            sink,
            listeners: Vec::new(),
            listed: BTreeSet::new(),
            summary: Summary::default(),
            recording: None,
            #[cfg(feature = "metrics")]
            metrics: None,
            told: Vec::new(),
            questions: Vec::new(),
        }
    }

    /// Has `listener` hear of every change from here on.
    pub fn listen(&mut self, listener: Box<dyn Observer>) {
        self.listeners.push(listener);
    }

    /// Writes down every call from here on; to be asked before the first.
    pub fn record(&mut self, header: &Header) -> Result<(), WriteError> {
        self.recording = Some(Writer::start(header)?);
        Ok(())
    }

    /// Counts every change from here on, whether it is told or not.
    #[cfg(feature = "metrics")]
    pub fn measure(&mut self, metrics: Metrics) {
        self.metrics = Some(metrics);
    }

    /// What every change is counted by.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn metrics(&self) -> Option<&Metrics> {
        self.metrics.as_ref()
    }

    /// An error is one of the recording, which has then ended; the call was made.
    pub fn call(&mut self, call: Call) -> Result<(), WriteError> {
        let recorded = match &mut self.recording {
            Some(recording) => recording.write(&call),
            None => Ok(()),
        };
        if let Call::Observe(seen) = &call {
            match seen.fact {
                Fact::Clock { boot_wall_ns } => self.label.boot_wall_ns = boot_wall_ns,
                Fact::ListEnded { list, .. } => {
                    self.listed.insert(list);
                }
                _ => {}
            }
        }
        self.engine.call(call);
        while let Some(output) = self.engine.poll() {
            match output {
                Output::Change(change) => {
                    self.summary.add(&change);
                    #[cfg(feature = "metrics")]
                    if let Some(metrics) = &self.metrics {
                        metrics.tell(&change);
                    }
                    self.listeners.iter_mut().for_each(|it| it.hear(&change, &self.label));
                    if self.filter.keeps(&change) {
                        self.sink.tell(&change, &self.label, &mut self.told);
                    }
                }
                Output::Question(question) => self.questions.push(question),
            }
        }
        recorded
    }

    /// When the engine wants to be told the time.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        self.engine.deadline()
    }

    /// How long the engine may hold a change back.
    #[must_use]
    pub fn hold(&self) -> Duration {
        self.engine.settings().hold
    }

    /// The boot's wall time as it was last told.
    #[must_use]
    pub fn boot_wall_ns(&self) -> i64 {
        self.label.boot_wall_ns
    }

    /// Bytes for who asked for the stream; the caller empties it.
    pub fn told(&mut self) -> &mut Vec<u8> {
        &mut self.told
    }

    /// A line of the stream for who has missed so many events before what is told next.
    pub fn missed(&mut self, count: u64) -> Vec<u8> {
        let mut line = Vec::new();
        self.sink.missed(count, &self.label, &mut line);
        line
    }

    /// Bytes for the recording's file, if there is one; the caller empties it.
    pub fn recorded(&mut self) -> Option<&mut Vec<u8>> {
        self.recording.as_mut().map(Writer::bytes)
    }

    /// Records nothing from here on.
    pub fn stop_recording(&mut self) {
        self.recording = None;
    }

    /// The recording's last bytes: no call may follow.
    pub fn end_recording(&mut self) -> Result<Vec<u8>, WriteError> {
        self.recording.take().map_or_else(|| Ok(Vec::new()), Writer::end)
    }

    /// What the engine wants to know. A replay has no use for them: the answers are in the recording.
    pub fn questions(&mut self) -> impl Iterator<Item = Question> + '_ {
        self.questions.drain(..)
    }

    /// What is wrong on the node, and what was; and how its pods started.
    #[must_use]
    pub fn known(&self) -> Snapshot<'_> {
        Snapshot {
            findings: self.engine.findings().collect(),
            starts: self.engine.late_starts(STARTS),
            shares: self.engine.shares(),
        }
    }

    /// Numbers that are other ones when any of that is.
    #[must_use]
    pub fn revision(&self) -> Revision {
        let findings = self.engine.findings_revision();
        // Both count upwards.
        Revision { meaning: findings.meaning.wrapping_add(self.engine.starts_revision()), ..findings }
    }

    /// For whoever only looks.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    #[must_use]
    pub fn label(&self) -> &Label {
        &self.label
    }

    /// All that was on the node at the start has been looked at.
    #[must_use]
    pub fn has_listed(&self) -> bool {
        List::ALL.iter().all(|list| self.listed.contains(list))
    }

    /// What is known of the node's recovery.
    #[must_use]
    pub fn recovery(&self) -> &Recovery {
        self.engine.recovery()
    }

    /// The pods of which something runs now.
    #[must_use]
    pub fn standing(&self) -> StandingPods {
        self.engine.standing()
    }

    /// Sets what is so now on the node, and of the agent, for a scrape.
    #[cfg(feature = "metrics")]
    pub fn look(&self, now: Timestamp, own: &AgentStats) {
        let Some(metrics) = &self.metrics else { return };
        let findings: Vec<&Finding> = self.engine.findings().collect();
        metrics.look(&Views {
            now,
            pods: &self.engine.pods(),
            pools: &self.engine.pools(),
            findings: &findings,
            many: &self.engine.many(),
            recovery: self.engine.recovery(),
            unwatched: self.engine.unwatched(),
            stale: self.engine.counts().stale,
            own,
        });
    }

    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }
}
