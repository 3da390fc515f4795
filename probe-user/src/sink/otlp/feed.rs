//! Decides what is sent, and when: a start when it is reported, a finding at each of its steps, a teardown
//! when it is over, and a boot when the last pod is back. A call in its caller's trace is sent when it ends.
//!
//! A sink notes what happened. The loop then makes the spans from the engine's state. So no state of the node
//! is kept here, and a new agent of the same boot sends a teardown whole even if it began before the agent.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::mpsc::{self, Receiver, Sender},
    time::Duration,
};

use opentelemetry_proto::tonic::trace::v1::Span;

use super::{
    boot, caller, finding,
    queue::Queue,
    signal::Item,
    start,
    teardown::{self, Teardown},
};
use crate::{
    engine::{Engine, boot::report::RecoveryReport},
    model::{
        change::{Change, ChangeKind, Finding},
        id::ContainerId,
        phase::Start,
        time::Timestamp,
    },
    sink::{Label, Sink},
};

/// How many teardowns are waited for, and how many are remembered as sent.
const MAX_TEARDOWNS: usize = 4096;
/// How often a recovery that is not over is checked, and for how long after the boot.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
const CHECK_LIMIT: Duration = Duration::from_secs(60 * 60);
/// A boot is sent if its last pod was back at most this long before the agent began.
const RECENT: Duration = Duration::from_secs(10 * 60);

/// A change from which spans or records are made.
#[derive(Debug)]
enum Noted {
    Started(Box<Start>),
    /// A step of a sandbox's teardown.
    Ending(ContainerId),
    /// The span of a CNI call in its caller's trace.
    Called(Box<Span>),
    /// A step of a finding, and when it came.
    Finding(Box<Finding>, Timestamp),
}

/// The sink that notes changes.
#[derive(Debug)]
pub(crate) struct ChangeSink(Sender<Noted>);

impl Sink for ChangeSink {
    fn on_change(&mut self, change: &Change, label: &Label) {
        // A call of DEL is a step of a teardown, too.
        if let Some(span) = caller::call(change, label) {
            self.0.send(Noted::Called(Box::new(span))).ok();
        }
        let noted = match &change.what {
            ChangeKind::PodStarted(start) => Noted::Started(start.clone()),
            ChangeKind::FindingOpened(it)
            | ChangeKind::FindingConfirmed(it)
            | ChangeKind::FindingClosed(it) => Noted::Finding(it.clone(), change.at),
            what if teardown::is_step(what) => match &change.context.sandbox {
                Some(sandbox) => Noted::Ending(sandbox.clone()),
                None => return,
            },
            _ => return,
        };
        // This fails only after the loop has ended.
        self.0.send(noted).ok();
    }
}

/// The loop's side.
#[derive(Debug)]
pub(super) struct Feed {
    noted: Receiver<Noted>,
    traces: Option<Queue>,
    logs: Option<Queue>,
    teardowns: Teardowns,
    boots: Boots,
}

impl Feed {
    /// A signal without a queue is not sent.
    pub(super) fn new(traces: Option<Queue>, logs: Option<Queue>, begun: Timestamp) -> (Self, ChangeSink) {
        let (notes, noted) = mpsc::channel();
        let teardowns = Teardowns::default();
        let boots = Boots { begun, ..Boots::default() };
        (Self { noted, traces, logs, teardowns, boots }, ChangeSink(notes))
    }

    /// When [`Self::update`] has something to do besides the noted changes.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.teardowns.due().into_iter().chain(self.boots.due).min()
    }

    pub(super) fn update(&mut self, now: Timestamp, engine: &Engine, label: &Label) {
        while let Ok(noted) = self.noted.try_recv() {
            match noted {
                Noted::Started(start) => {
                    if let Some(traces) = &self.traces {
                        let told = engine.told_of(&start.sandbox);
                        traces.push(Item::of_trace(start::spans(&start, told, engine.findings(), label)));
                        let setup = caller::setup(&start, told, label);
                        if !setup.is_empty() {
                            traces.push(Item::of_trace(setup));
                        }
                    }
                }
                Noted::Called(span) => {
                    if let Some(traces) = &self.traces {
                        traces.push(Item::of_trace(vec![*span]));
                    }
                }
                Noted::Ending(sandbox) if self.traces.is_some() => {
                    // Its end follows from the sandbox's events, which are read later.
                    self.teardowns.expect(sandbox, now);
                }
                Noted::Ending(_) => {}
                Noted::Finding(it, at) => {
                    if let Some(logs) = &self.logs {
                        let told = it.sandboxes.first().and_then(|sandbox| engine.told_of(sandbox));
                        logs.push(Item::of_record(finding::record(&it, at, now, told, label)));
                    }
                }
            }
        }
        let Some(traces) = &self.traces else { return };
        while let Some(sandbox) = self.teardowns.next(now) {
            self.teardowns.send(sandbox, now, engine, label, traces);
        }
        if let Some(spans) = self.boots.check(now, engine, label) {
            traces.push(Item::of_trace(spans));
        }
    }

    /// Sends the complete teardowns, because their last step may be long past when the next agent begins.
    pub(super) fn finish(&mut self, now: Timestamp, engine: &Engine, label: &Label) {
        self.update(now, engine, label);
        let Some(traces) = &self.traces else { return };
        while let Some(sandbox) = self.teardowns.next(now + teardown::QUIET) {
            self.teardowns.send(sandbox, now + teardown::QUIET, engine, label, traces);
        }
    }
}

/// The teardowns that are not sent yet.
#[derive(Debug, Default)]
struct Teardowns {
    due: BTreeSet<(Timestamp, ContainerId)>,
    by_sandbox: BTreeMap<ContainerId, Timestamp>,
    /// The sandboxes whose teardown was sent, the latest last.
    sent: VecDeque<ContainerId>,
    is_sent: BTreeSet<ContainerId>,
}

impl Teardowns {
    fn due(&self) -> Option<Timestamp> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Records a step of a teardown.
    fn expect(&mut self, sandbox: ContainerId, now: Timestamp) {
        if !self.is_sent.contains(&sandbox) {
            self.put(sandbox, now);
        }
    }

    fn put(&mut self, sandbox: ContainerId, due: Timestamp) {
        if let Some(before) = self.by_sandbox.insert(sandbox.clone(), due) {
            self.due.remove(&(before, sandbox.clone()));
        }
        self.due.insert((due, sandbox));
    }

    /// Takes the next teardown that is due, or for which there is no room.
    fn next(&mut self, now: Timestamp) -> Option<ContainerId> {
        let (due, sandbox) = self.due.first()?.clone();
        if due > now && self.due.len() <= MAX_TEARDOWNS {
            return None;
        }
        self.due.remove(&(due, sandbox.clone()));
        self.by_sandbox.remove(&sandbox);
        Some(sandbox)
    }

    /// Sends the teardown, or waits for the rest of it.
    fn send(&mut self, sandbox: ContainerId, now: Timestamp, engine: &Engine, label: &Label, to: &Queue) {
        // There is no teardown if the step belongs to the end of another sandbox, or the engine has forgotten
        // it.
        let Some(teardown) = engine.told_of(&sandbox).and_then(Teardown::of) else { return };
        let due = teardown.due();
        if due > now && self.due.len() < MAX_TEARDOWNS {
            self.put(sandbox, due);
            return;
        }
        to.push(Item::of_trace(teardown.spans(&sandbox, engine.findings(), label)));
        if self.is_sent.insert(sandbox.clone()) {
            self.sent.push_back(sandbox);
        }
        if self.sent.len() > MAX_TEARDOWNS
            && let Some(oldest) = self.sent.pop_front()
        {
            self.is_sent.remove(&oldest);
        }
    }
}

/// This boot's recovery.
#[derive(Debug, Default)]
struct Boots {
    /// When the agent began.
    begun: Timestamp,
    /// The revision of the recovery that was checked.
    revision: Option<u64>,
    due: Option<Timestamp>,
    /// When the last pod of the sent recovery was back.
    sent: Option<Timestamp>,
}

impl Boots {
    fn check(&mut self, now: Timestamp, engine: &Engine, label: &Label) -> Option<Vec<Span>> {
        let recovery = engine.recovery();
        if self.revision == Some(recovery.revision) && self.due.is_none_or(|due| now < due) {
            return None;
        }
        self.revision = Some(recovery.revision);
        let report = RecoveryReport::of(recovery, now);
        let is_young = now < Timestamp::ZERO + CHECK_LIMIT;
        self.due = (is_young && !report.is_closed()).then(|| now + CHECK_INTERVAL);
        let last = report.last_service.as_ref()?.mark.at;
        if !report.is_closed() || self.sent == Some(last) || last + RECENT < self.begun {
            return None;
        }
        self.sent = Some(last);
        Some(boot::spans(recovery, &report, label))
    }
}

#[cfg(test)]
mod tests {
    use super::{Boots, Timestamp};
    use crate::sink::otlp::tests::recorded;

    /// A new agent does not send a boot that is weeks old.
    #[test]
    fn a_boot_is_told_once_and_only_if_it_was_of_late() {
        let (mut session, calls) = recorded::open("boots/restart.jsonl");
        for call in calls {
            session.call(call).expect("nothing is recorded");
        }
        let (engine, label) = (session.engine(), session.label());
        let (mut told, now) = (Boots::default(), engine.now());
        assert!(told.check(now, engine, label).is_some_and(|spans| !spans.is_empty()));
        assert_eq!((told.check(now, engine, label), told.due), (None, None));
        let mut late = Boots { begun: Timestamp(u64::MAX), ..Boots::default() };
        assert_eq!(late.check(now, engine, label), None);
    }
}
