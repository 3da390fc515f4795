//! The end of a sandbox as a trace: the root is the whole teardown, each call of DEL is a span below it, and so is the
//! kernel's own work on the network namespace.

use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::Span;

use super::{
    attribute::Attributes,
    event,
    id::{Of, TraceId},
    key,
    trace::{Period, SpanRef, Trace},
};
use crate::{
    engine::view::ToldView,
    model::{
        change::{ChangeKind, CniCall, End, EvidenceEvent, Finding},
        id::{ContainerId, TaskKey},
        time::Timestamp,
    },
    sink::{Label, span::span},
};

/// Without another event for so long, a teardown with nothing under way is over.
pub(super) const QUIET: Duration = Duration::from_secs(10);
/// After so long it is told as it is.
pub(super) const LONGEST: Duration = Duration::from_secs(5 * 60);

/// A teardown, from the first sign of the sandbox's end.
#[derive(Debug)]
pub(super) struct Teardown<'a> {
    told: ToldView<'a>,
    begin: Timestamp,
    end: Timestamp,
    /// The calls of DEL that ended, in the order of their ends.
    calls: Vec<Ended<'a>>,
    /// A call of DEL or the end of the network namespace is under way.
    is_open: bool,
}

#[derive(Debug)]
struct Ended<'a> {
    call: &'a CniCall,
    end: Option<&'a End>,
    begin: Timestamp,
    at: Timestamp,
}

pub(super) fn id(boot_id: &str, sandbox: &ContainerId) -> TraceId {
    TraceId::new(Of::Teardown, boot_id, &[sandbox.as_str()])
}

/// Whether the change is a step of a teardown.
pub(super) fn is_step(what: &ChangeKind) -> bool {
    match what {
        ChangeKind::CniStarted { call } | ChangeKind::CniFinished { call, .. } => is_del(call),
        ChangeKind::SandboxStopped { .. }
        | ChangeKind::NetnsDestroyed { .. }
        | ChangeKind::NetnsFreed { .. }
        | ChangeKind::CgroupRemoved { .. }
        | ChangeKind::AddressRemoved { .. } => true,
        _ => false,
    }
}

fn is_del(call: &CniCall) -> bool {
    call.command == "DEL"
}

impl<'a> Teardown<'a> {
    /// `None`: nothing told of the sandbox says that it ends.
    pub(super) fn of(told: ToldView<'a>) -> Option<Self> {
        let begins = |what: &ChangeKind| match what {
            ChangeKind::SandboxStopped { .. } => true,
            ChangeKind::CniStarted { call } => is_del(call),
            _ => false,
        };
        let begin = told.events.iter().filter(|it| begins(&it.what)).map(|it| it.at).min()?;
        let mut it = Self { told, begin, end: begin, calls: Vec::new(), is_open: false };
        let (mut running, mut is_dying): (Vec<TaskKey>, bool) = (Vec::new(), false);
        for step in it.steps() {
            it.end = it.end.max(step.at);
            match &step.what {
                ChangeKind::CniStarted { call } => running.push(call.process.key),
                ChangeKind::CniFinished { call, end, duration } => {
                    running.retain(|key| *key != call.process.key);
                    let begin = step.at.saturating_sub(*duration);
                    it.calls.push(Ended { call, end: end.as_ref(), begin, at: step.at });
                }
                ChangeKind::NetnsDestroyed { .. } => is_dying = true,
                ChangeKind::NetnsFreed { .. } => is_dying = false,
                _ => {}
            }
        }
        it.is_open = is_dying || !running.is_empty();
        Some(it)
    }

    pub(super) fn begin(&self) -> Timestamp {
        self.begin
    }

    /// When it is over, if nothing else comes.
    pub(super) fn due(&self) -> Timestamp {
        if self.is_open { self.begin + LONGEST } else { (self.end + QUIET).min(self.begin + LONGEST) }
    }

    fn steps(&self) -> impl Iterator<Item = &'a EvidenceEvent> + use<'a> {
        let begin = self.begin;
        self.told.events.iter().filter(move |it| it.at >= begin && is_step(&it.what))
    }

    /// Of `findings` those count that are about it.
    pub(super) fn spans<'f>(
        &self,
        sandbox: &ContainerId,
        findings: impl Iterator<Item = &'f Finding>,
        label: &Label,
    ) -> Vec<Span> {
        let root = Period::of(label, "sandbox teardown", self.begin, self.end);
        let attributes = Attributes::default()
            .pod(self.told.pod)
            .sandbox(sandbox)
            .some_text(key::RUNTIME, event::runtime(self.told.events))
            .flag(key::COMPLETE, !self.is_open);
        let mut trace = Trace::new(id(&label.boot_id, sandbox), label, &root, attributes);
        if self.is_open {
            trace.fail(Trace::ROOT, format!("not over after {}", span(LONGEST)));
        }
        let is_within = |it: &&EvidenceEvent| self.begin <= it.at && it.at <= self.end;
        let ends = self.told.events.iter().filter(is_within);
        // What a program is executed for follows as an event of its own.
        let ends = ends.filter(|it| !matches!(it.what, ChangeKind::ProcessExec { .. }));
        for it in ends.clone() {
            let is_call = matches!(it.what, ChangeKind::CniStarted { .. } | ChangeKind::CniFinished { .. });
            // A call that ended is a span.
            if !is_call || self.calls.iter().all(|ended| !is_of(&it.what, ended.call)) {
                event::add(&mut trace, Trace::ROOT, it);
            }
        }
        self.add_calls(&mut trace, label);
        for it in ends {
            if let ChangeKind::NetnsFreed { teardown: Some(took) } = &it.what {
                let period = Period::of(label, "netns teardown", it.at.saturating_sub(*took), it.at);
                trace.child(Trace::ROOT, &period, Attributes::default());
            }
        }
        let about = findings.filter(|it| it.sandboxes.contains(sandbox) && it.since >= self.begin);
        about.for_each(|it| event::add_finding(&mut trace, it));
        trace.into_spans()
    }

    /// A call that another plugin made is below that one's.
    fn add_calls(&self, trace: &mut Trace<'_>, label: &Label) {
        let mut calls: Vec<&Ended<'_>> = self.calls.iter().collect();
        // The caller begins first.
        calls.sort_by_key(|it| it.begin);
        let mut made: Vec<(&Ended<'_>, SpanRef)> = Vec::new();
        for it in calls {
            let is_caller = |(other, _): &&(&Ended<'_>, SpanRef)| {
                it.call.called_by.as_ref() == Some(&other.call.plugin) && it.begin <= other.at
            };
            let parent = made.iter().rev().find(is_caller).map_or(Trace::ROOT, |(_, span)| *span);
            let name = format!("cni {} {}", it.call.command, it.call.plugin);
            let period = Period::of(label, name, it.begin, it.at);
            let attributes = Attributes::default().call(it.call).end(it.end);
            let span = trace.child(parent, &period, attributes);
            if let Some(end) = it.end.filter(|end| end.code != 0) {
                trace.fail(span, format!("exit {}", end.code));
            }
            made.push((it, span));
        }
    }
}

fn is_of(what: &ChangeKind, ended: &CniCall) -> bool {
    match what {
        ChangeKind::CniStarted { call } | ChangeKind::CniFinished { call, .. } => {
            call.process.key == ended.process.key
        }
        _ => false,
    }
}
