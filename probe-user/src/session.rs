//! One engine and its sinks. Every call, live or replayed, goes through a session, so that the same calls
//! give the same bytes.
//!
//! **Invariant:** a session does no I/O and reads no clock. The caller writes the bytes.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use crate::{
    engine::{Call, Engine, Settings, world::CheckpointEntry},
    model::{
        change::{Output, Question},
        fact::{Fact, List},
        finding::Revision,
        recovery::{Recovery, RunningPods},
        time::Timestamp,
    },
    recording::{Header, WriteError, Writer, state::Snapshot},
    sink::{
        Format, Label, Sink,
        render::summary::Summary,
        select::{filter::Filter, lines::Lines, rate::Rate},
    },
};

/// The number of starts of removed pods that are kept for other commands.
const STARTS: usize = 64;

pub struct Session {
    engine: Engine,
    label: Label,
    lines: Lines,
    summary: Summary,
    /// Further sinks of this run.
    sinks: Vec<Box<dyn Sink>>,
    /// The lists of the node that are complete.
    listed: BTreeSet<List>,
    recording: Option<Writer>,
    /// The calls since the engine's state was last written.
    journal: Option<Writer>,
    questions: Vec<Question>,
    /// The number of the last event.
    last_seq: u64,
}

impl Session {
    #[must_use]
    pub fn new(header: &Header, filter: Filter, format: Box<dyn Format>) -> Self {
        let label = Label {
            node: header.node.clone(),
            boot_id: header.boot_id.clone(),
            boot_wall_ns: header.boot_wall_ns,
        };
        Self {
            engine: Engine::new(header.settings.clone()),
            label,
            lines: Lines::new(filter, format),
            summary: Summary::default(),
            sinks: Vec::new(),
            listed: BTreeSet::new(),
            recording: None,
            journal: None,
            questions: Vec::new(),
            last_seq: 0,
        }
    }

    /// Leaves events out of the stream that come faster.
    pub(crate) fn limit(&mut self, rate: Rate) {
        self.lines.limit(rate);
    }

    /// Writes into the stream how many events the rate has left out, once there would be room for one, or at
    /// the end.
    pub(crate) fn say_left_out(&mut self, now: Timestamp, is_end: bool) {
        self.lines.say_left_out(now, is_end, &self.label);
    }

    /// Returns the counter of events that were left out.
    pub(crate) fn left_out(&self) -> Arc<AtomicU64> {
        self.lines.left_out()
    }

    /// Gives `sink` every change from here on.
    pub fn add_sink(&mut self, sink: Box<dyn Sink>) {
        self.sinks.push(sink);
    }

    /// Records every call from now on; must be called before the first call.
    pub fn record(&mut self, header: &Header) -> Result<(), WriteError> {
        self.recording = Some(Writer::start(header)?);
        Ok(())
    }

    /// Makes a call. An error ends the recording only; the engine has taken the call.
    pub fn call(&mut self, call: Call) -> Result<(), WriteError> {
        let recorded = match &mut self.recording {
            Some(recording) => recording.write(&call),
            None => Ok(()),
        };
        if let Some(journal) = &mut self.journal
            && journal.write(&call).is_err()
        {
            self.journal = None;
        }
        self.see_clock(&call);
        if let Call::Observe(seen) = &call
            && let Fact::ListEnded { list, .. } = seen.fact
        {
            self.listed.insert(list);
        }
        self.engine.call(call);
        while let Some(output) = self.engine.poll() {
            match output {
                Output::Change(change) => {
                    self.last_seq = change.seq;
                    self.summary.on_change(&change, &self.label);
                    self.lines.on_change(&change, &self.label);
                    self.sinks.iter_mut().for_each(|sink| sink.on_change(&change, &self.label));
                }
                Output::Question(question) => self.questions.push(question),
            }
        }
        recorded
    }

    /// Makes a call of an earlier agent again. That agent has reported the events up to the number `told`, so
    /// they are dropped.
    pub(crate) fn resume(&mut self, call: Call, told: u64) {
        self.see_clock(&call);
        self.engine.call(call);
        while let Some(output) = self.engine.poll() {
            let Output::Change(change) = output else { continue };
            self.last_seq = change.seq;
            if change.seq > told {
                self.summary.on_change(&change, &self.label);
                self.lines.on_change(&change, &self.label);
                self.sinks.iter_mut().for_each(|sink| sink.on_change(&change, &self.label));
            }
        }
    }

    /// Gives every later event a number above `told`. This is not a call, so whoever dumps the engine does it
    /// afterwards.
    pub(crate) fn number_after(&mut self, told: u64) {
        self.engine.number_from(told.saturating_add(1));
        self.last_seq = self.last_seq.max(told);
    }

    /// Begins without what earlier agents knew, after the last event that they reported. That is a call, so
    /// that a recording and the state's file have it.
    pub(crate) fn begin_after(&mut self, told: u64) -> Result<(), WriteError> {
        self.number_after(told);
        let own = self.engine.dump().into_iter().find(|entry| matches!(entry, CheckpointEntry::Engine(_)));
        match own {
            Some(own) => self.call(Call::Restore(Box::new(own))),
            None => Ok(()),
        }
    }

    /// Returns the number of the last event.
    #[must_use]
    pub(crate) fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Begins with an engine that knows nothing.
    pub(crate) fn renew(&mut self, settings: Settings) {
        self.engine = Engine::new(settings);
        self.lines.bytes().clear();
        self.last_seq = 0;
    }

    /// Continues with these settings after the calls of an earlier agent. A recording begins with what those
    /// calls led to.
    pub(crate) fn adopt(&mut self, settings: Settings) -> Result<(), WriteError> {
        self.engine.adopt(settings);
        if let Some(recording) = &mut self.recording {
            for entry in self.engine.dump() {
                recording.write(&Call::Restore(Box::new(entry)))?;
            }
        }
        Ok(())
    }

    /// Writes every call to this journal from now on, or to none.
    pub(crate) fn keep_journal(&mut self, journal: Option<Writer>) {
        self.journal = journal;
    }

    /// Returns the calls in the journal, as lines. The caller empties them.
    pub(crate) fn journal(&mut self) -> Option<&mut Vec<u8>> {
        self.journal.as_mut().map(Writer::bytes)
    }

    /// Returns when the engine wants to be called with the time.
    #[must_use]
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.engine.deadline()
    }

    /// Returns how long the engine may hold a change back.
    #[must_use]
    pub(crate) fn hold(&self) -> Duration {
        self.engine.settings().hold
    }

    fn see_clock(&mut self, call: &Call) {
        if let Call::Observe(seen) = call
            && let Fact::Clock { boot_wall_ns } = seen.fact
        {
            self.label.boot_wall_ns = boot_wall_ns;
        }
    }

    /// Gives the events from here on this wall time of the boot.
    pub(crate) fn set_boot_wall_ns(&mut self, boot_wall_ns: i64) {
        self.label.boot_wall_ns = boot_wall_ns;
    }

    /// Returns the latest wall time of the boot.
    #[must_use]
    pub fn boot_wall_ns(&self) -> i64 {
        self.label.boot_wall_ns
    }

    /// Returns the lines of the stream. The caller empties them.
    pub fn output(&mut self) -> &mut Vec<u8> {
        self.lines.bytes()
    }

    /// Returns the line that says how many changes are missing in the stream before the next one.
    pub(crate) fn missed(&mut self, count: u64) -> Vec<u8> {
        self.lines.missed(count, &self.label)
    }

    /// Returns bytes for the recording's file, if there is one. The caller empties them.
    pub fn recorded(&mut self) -> Option<&mut Vec<u8>> {
        self.recording.as_mut().map(Writer::bytes)
    }

    /// Stops the recording.
    pub(crate) fn stop_recording(&mut self) {
        self.recording = None;
    }

    /// Returns the recording's last bytes; no call may follow.
    pub fn end_recording(&mut self) -> Result<Vec<u8>, WriteError> {
        self.recording.take().map_or_else(|| Ok(Vec::new()), Writer::end)
    }

    /// Returns the engine's questions. A replay ignores them, because the recording has the answers.
    pub(crate) fn questions(&mut self) -> impl Iterator<Item = Question> + '_ {
        self.questions.drain(..)
    }

    /// Returns the findings, open and closed, and how the pods started.
    #[must_use]
    pub fn known(&self) -> Snapshot<'_> {
        Snapshot {
            findings: self.engine.findings().collect(),
            starts: self.engine.late_starts(STARTS),
            shares: self.engine.shares(),
        }
    }

    /// Returns a number that changes whenever any of [`known`](Self::known) does.
    #[must_use]
    pub(crate) fn revision(&self) -> Revision {
        let findings = self.engine.findings_revision();
        // Both only increase.
        Revision { meaning: findings.meaning.wrapping_add(self.engine.starts_revision()), ..findings }
    }

    /// Gives read access to the engine.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    #[must_use]
    pub(crate) fn label(&self) -> &Label {
        &self.label
    }

    /// Whether everything that was on the node at the start was read.
    #[must_use]
    pub(crate) fn has_listed(&self) -> bool {
        List::ALL.iter().all(|list| self.listed.contains(list))
    }

    /// Returns the node's recovery.
    #[must_use]
    pub fn recovery(&self) -> &Recovery {
        self.engine.recovery()
    }

    /// Returns the pods that have running processes.
    #[must_use]
    pub(crate) fn running_pods(&self) -> RunningPods {
        self.engine.running_pods()
    }

    #[must_use]
    pub(crate) fn summary(&self) -> &Summary {
        &self.summary
    }
}
