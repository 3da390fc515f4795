//! Decides what is sent, and when: a start when it is told, a finding at each of its steps, a teardown when it is over, and a
//! boot when the last pod is back.
//!
//! A sink notes what happened; the loop then has the spans made, from what the engine knows. So nothing of the node is kept
//! here, and a new agent of the same boot tells a teardown whole that began before it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::mpsc::{self, Receiver, Sender},
    time::Duration,
};

use opentelemetry_proto::tonic::trace::v1::Span;

use super::{
    boot, finding,
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

/// How many teardowns are waited for, and how many are remembered as told.
const TEARDOWNS: usize = 4096;
/// How often a recovery that is not over is looked at, and for how long after the boot.
const LOOK: Duration = Duration::from_secs(5);
const LOOKED_AT: Duration = Duration::from_secs(60 * 60);
/// A boot is told if its last pod was back no longer than this before the agent began.
const RECENT: Duration = Duration::from_secs(10 * 60);

/// Something of which spans or records are made.
#[derive(Debug)]
enum Noted {
    Started(Box<Start>),
    /// A step of a sandbox's teardown.
    Ending(ContainerId),
    /// A finding's step, and when it came.
    Finding(Box<Finding>, Timestamp),
}

/// The sink: it notes changes.
#[derive(Debug)]
pub(crate) struct Notes(Sender<Noted>);

impl Sink for Notes {
    fn on_change(&mut self, change: &Change, _: &Label) {
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
        // The loop has ended.
        self.0.send(noted).ok();
    }
}

/// The loop's end.
#[derive(Debug)]
pub(super) struct Feed {
    noted: Receiver<Noted>,
    traces: Option<Queue>,
    logs: Option<Queue>,
    teardowns: Teardowns,
    boots: Boots,
}

impl Feed {
    /// What has no queue is not sent.
    pub(super) fn new(traces: Option<Queue>, logs: Option<Queue>, begun: Timestamp) -> (Self, Notes) {
        let (notes, noted) = mpsc::channel();
        let (teardowns, boots) = (Teardowns::default(), Boots { begun, ..Boots::default() });
        (Self { noted, traces, logs, teardowns, boots }, Notes(notes))
    }

    /// When [`Self::update`] has something to do besides what was noted.
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
                    }
                }
                Noted::Ending(sandbox) if self.traces.is_some() => {
                    // When it is over follows from what was told of it, which is looked at then.
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
            self.teardowns.tell(sandbox, now, engine, label, traces);
        }
        if let Some(spans) = self.boots.look(now, engine, label) {
            traces.push(Item::of_trace(spans));
        }
    }

    /// Tells the teardowns to which nothing is missing, since their last step may be long past when the next agent begins.
    pub(super) fn finish(&mut self, now: Timestamp, engine: &Engine, label: &Label) {
        self.update(now, engine, label);
        let Some(traces) = &self.traces else { return };
        while let Some(sandbox) = self.teardowns.next(now + teardown::QUIET) {
            self.teardowns.tell(sandbox, now + teardown::QUIET, engine, label, traces);
        }
    }
}

/// The teardowns that are not told yet.
#[derive(Debug, Default)]
struct Teardowns {
    due: BTreeSet<(Timestamp, ContainerId)>,
    by_sandbox: BTreeMap<ContainerId, Timestamp>,
    /// Those that were told, the latest last.
    told: VecDeque<ContainerId>,
    is_told: BTreeSet<ContainerId>,
}

impl Teardowns {
    fn due(&self) -> Option<Timestamp> {
        self.due.first().map(|(due, _)| *due)
    }

    /// A step of a teardown came.
    fn expect(&mut self, sandbox: ContainerId, now: Timestamp) {
        if !self.is_told.contains(&sandbox) {
            self.put(sandbox, now);
        }
    }

    fn put(&mut self, sandbox: ContainerId, due: Timestamp) {
        if let Some(before) = self.by_sandbox.insert(sandbox.clone(), due) {
            self.due.remove(&(before, sandbox.clone()));
        }
        self.due.insert((due, sandbox));
    }

    /// The next one that is due, or for which there is no room.
    fn next(&mut self, now: Timestamp) -> Option<ContainerId> {
        let (due, sandbox) = self.due.first()?.clone();
        if due > now && self.due.len() <= TEARDOWNS {
            return None;
        }
        self.due.remove(&(due, sandbox.clone()));
        self.by_sandbox.remove(&sandbox);
        Some(sandbox)
    }

    /// Tells it, or waits for the rest of it.
    fn tell(&mut self, sandbox: ContainerId, now: Timestamp, engine: &Engine, label: &Label, to: &Queue) {
        // A step that another sandbox's end needed, or one that the engine has forgotten, is none.
        let Some(teardown) = engine.told_of(&sandbox).and_then(Teardown::of) else { return };
        let due = teardown.due();
        if due > now && self.due.len() < TEARDOWNS {
            self.put(sandbox, due);
            return;
        }
        to.push(Item::of_trace(teardown.spans(&sandbox, engine.findings(), label)));
        if self.is_told.insert(sandbox.clone()) {
            self.told.push_back(sandbox);
        }
        if self.told.len() > TEARDOWNS
            && let Some(oldest) = self.told.pop_front()
        {
            self.is_told.remove(&oldest);
        }
    }
}

/// This boot's recovery.
#[derive(Debug, Default)]
struct Boots {
    /// When the agent began.
    begun: Timestamp,
    /// The recovery that was looked at.
    revision: Option<u64>,
    due: Option<Timestamp>,
    /// The last pod of the recovery that was told.
    told: Option<Timestamp>,
}

impl Boots {
    fn look(&mut self, now: Timestamp, engine: &Engine, label: &Label) -> Option<Vec<Span>> {
        let recovery = engine.recovery();
        if self.revision == Some(recovery.revision) && self.due.is_none_or(|due| now < due) {
            return None;
        }
        self.revision = Some(recovery.revision);
        let study = RecoveryReport::of(recovery, now);
        let is_young = now < Timestamp::ZERO + LOOKED_AT;
        self.due = (is_young && !study.is_closed()).then(|| now + LOOK);
        let last = study.last_service.as_ref()?.mark.at;
        let is_new = study.is_closed() && self.told != Some(last) && last + RECENT >= self.begun;
        is_new.then(|| {
            self.told = Some(last);
            boot::spans(recovery, &study, label)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Boots, Timestamp};
    use crate::sink::otlp::tests::recorded;

    /// A new agent, weeks after a boot, does not tell of it.
    #[test]
    fn a_boot_is_told_once_and_only_if_it_was_of_late() {
        let (mut session, calls) = recorded::open("boots/restart.jsonl");
        for call in calls {
            session.call(call).expect("nothing is recorded");
        }
        let (engine, label) = (session.engine(), session.label());
        let (mut told, now) = (Boots::default(), engine.now());
        assert!(told.look(now, engine, label).is_some_and(|spans| !spans.is_empty()));
        assert_eq!((told.look(now, engine, label), told.due), (None, None));
        let mut late = Boots { begun: Timestamp(u64::MAX), ..Boots::default() };
        assert_eq!(late.look(now, engine, label), None);
    }
}
