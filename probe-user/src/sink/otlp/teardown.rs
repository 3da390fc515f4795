//! The end of a sandbox as a trace. The root span is the whole teardown. Each call of DEL is a span below it,
//! and so is the kernel's own work on the network namespace.

use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::Span;

use super::{
    attribute::Attributes,
    context, event,
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

/// A teardown with nothing under way is over after this long without another event.
pub(super) const QUIET: Duration = Duration::from_secs(10);
/// After this long, a teardown is sent even if it is not over.
pub(super) const MAX_DURATION: Duration = Duration::from_secs(5 * 60);

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

fn is_begin(what: &ChangeKind) -> bool {
    match what {
        ChangeKind::SandboxStopped { .. } => true,
        ChangeKind::CniStarted { call } => is_del(call),
        _ => false,
    }
}

fn is_del(call: &CniCall) -> bool {
    call.command == "DEL"
}

impl<'a> Teardown<'a> {
    /// Reads a teardown from the events about a sandbox; `None` if none of them says that it ends.
    pub(super) fn of(told: ToldView<'a>) -> Option<Self> {
        let begin = told.events.iter().filter(|it| is_begin(&it.what)).map(|it| it.at).min()?;
        let mut it = Self { told, begin, end: begin, calls: Vec::new(), is_open: false };
        let mut running: Vec<TaskKey> = Vec::new();
        let mut is_dying = false;
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

    /// When the teardown is over, if no other event comes.
    pub(super) fn due(&self) -> Timestamp {
        let latest = self.begin + MAX_DURATION;
        if self.is_open { latest } else { latest.min(self.end + QUIET) }
    }

    fn steps(&self) -> impl Iterator<Item = &'a EvidenceEvent> + use<'a> {
        let begin = self.begin;
        self.told.events.iter().filter(move |it| it.at >= begin && is_step(&it.what))
    }

    /// Makes the spans of the teardown. Only `findings` about the sandbox are used.
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
        if let Some(context) = context::given(self.told.events, "DEL") {
            trace.link(Trace::ROOT, context::link(context, self.told.pod));
        }
        if self.is_open {
            trace.fail(Trace::ROOT, format!("not over after {}", span(MAX_DURATION)));
        }
        let ends = self.told.events.iter().filter(|it| self.begin <= it.at && it.at <= self.end);
        // The purpose of an executed program follows as an event of its own.
        let ends = ends.filter(|it| !matches!(it.what, ChangeKind::ProcessExec { .. }));
        for it in ends.clone() {
            let is_call = matches!(it.what, ChangeKind::CniStarted { .. } | ChangeKind::CniFinished { .. });
            // A call that ended is a span, not an event.
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

    /// Adds the calls. A call that another plugin made is below that plugin's call.
    fn add_calls(&self, trace: &mut Trace<'_>, label: &Label) {
        let mut calls: Vec<&Ended<'_>> = self.calls.iter().collect();
        // The caller begins first.
        calls.sort_by_key(|it| it.begin);
        let mut made: Vec<(&Ended<'_>, SpanRef)> = Vec::new();
        for it in calls {
            let caller = made.iter().rev().find(|(other, _)| {
                it.call.called_by.as_ref() == Some(&other.call.plugin) && it.begin <= other.at
            });
            let parent = caller.map_or(Trace::ROOT, |(_, span)| *span);
            let period = Period::of_call(label, it.call, it.begin, it.at);
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

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

    use super::{MAX_DURATION, QUIET, Teardown};
    use crate::{
        engine::view::ToldView,
        model::{
            change::{ChangeKind, CniCall, End, EvidenceEvent, Process, StopReason},
            fact::{Origin, PodName},
            id::{ContainerId, TaskKey},
            time::Timestamp,
        },
        sink::Label,
    };

    fn ms(at: u64) -> Timestamp {
        Timestamp(at * 1_000_000)
    }

    fn event(at: u64, what: ChangeKind) -> EvidenceEvent {
        let (container, netns, cgroup) = (None, None, None);
        EvidenceEvent { at: ms(at), origin: Origin::Kernel, container, netns, cgroup, what, left_out: 0 }
    }

    fn call(pid: u32, plugin: &str, called_by: Option<&str>) -> Arc<CniCall> {
        let process = Process { key: TaskKey::new(pid, 1), ..Process::default() };
        Arc::new(CniCall {
            command: "DEL".to_owned(),
            plugin: plugin.to_owned(),
            netns: None,
            ifname: Some("eth0".to_owned()),
            process,
            called_by: called_by.map(str::to_owned),
            delegated: false,
            trace: None,
        })
    }

    fn finished(call: &Arc<CniCall>, took: u64, code: u32) -> ChangeKind {
        let end = Some(End { code, ..End::default() });
        ChangeKind::CniFinished { call: Arc::clone(call), end, duration: Duration::from_millis(took) }
    }

    #[test]
    fn it_waits_for_what_is_under_way_and_not_for_ever() {
        let del = call(7, "bridge", None);
        let mut events = vec![
            event(500, ChangeKind::PodFirstSeen),
            event(1000, ChangeKind::SandboxStopped { why: StopReason::PauseExited }),
        ];
        let pod = PodName::default();
        let due = |events: &[EvidenceEvent]| {
            Teardown::of(ToldView { pod: &pod, events }).map(|teardown| teardown.due())
        };
        assert_eq!(due(&events[..1]), None, "nothing ends yet");
        assert_eq!(due(&events), Some(ms(1000) + QUIET));
        events.push(event(1100, ChangeKind::CniStarted { call: Arc::clone(&del) }));
        assert_eq!(due(&events), Some(ms(1000) + MAX_DURATION));
        events.push(event(1400, finished(&del, 300, 0)));
        assert_eq!(due(&events), Some(ms(1400) + QUIET));
        events.push(event(1500, ChangeKind::NetnsDestroyed { by: None }));
        assert_eq!(due(&events), Some(ms(1000) + MAX_DURATION));
        events.push(event(1600, ChangeKind::NetnsFreed { teardown: None }));
        assert_eq!(due(&events), Some(ms(1600) + QUIET));
    }

    #[test]
    fn calls_are_below_their_callers_and_failures_are_marked() {
        let (bridge, ipam, open) =
            (call(7, "bridge", None), call(8, "host-local", Some("bridge")), call(9, "portmap", None));
        let events = vec![
            event(1000, ChangeKind::CniStarted { call: Arc::clone(&bridge) }),
            event(1010, ChangeKind::CniStarted { call: Arc::clone(&ipam) }),
            event(1060, finished(&ipam, 50, 1)),
            event(1100, finished(&bridge, 100, 0)),
            event(1200, ChangeKind::CniStarted { call: Arc::clone(&open) }),
            event(1250, ChangeKind::NetnsFreed { teardown: Some(Duration::from_millis(30)) }),
        ];
        let pod = PodName { name: Some("web".to_owned()), ..PodName::default() };
        let label = Label { node: "n".to_owned(), boot_id: "b".to_owned(), boot_wall_ns: 0 };
        let teardown = Teardown::of(ToldView { pod: &pod, events: &events }).expect("it ends");
        let sandbox = ContainerId::parse(&"a".repeat(64)).expect("an id");
        let spans = teardown.spans(&sandbox, std::iter::empty(), &label);
        let told: Vec<(&str, usize, u64, u64, bool)> = spans
            .iter()
            .map(|span| {
                let parent =
                    spans.iter().position(|it| it.span_id == span.parent_span_id).unwrap_or(usize::MAX);
                let failed = span.status.as_ref().is_some_and(|it| it.code == i32::from(StatusCode::Error));
                let (begin, end) = (span.start_time_unix_nano, span.end_time_unix_nano);
                (span.name.as_str(), parent, begin / 1_000_000, end / 1_000_000, failed)
            })
            .collect();
        assert_eq!(
            told,
            [
                ("sandbox teardown", usize::MAX, 1000, 1250, true),
                ("cni DEL bridge", 0, 1000, 1100, false),
                ("cni DEL host-local", 1, 1010, 1060, true),
                ("netns teardown", 0, 1220, 1250, false),
            ]
        );
        let names: Vec<&str> = spans[0].events.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names, ["cni.started", "netns.freed"], "only the call that did not end is an event");
    }
}
