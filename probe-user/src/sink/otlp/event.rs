//! The events about a sandbox as events of a span.

use probe_common::runtime;

use super::{
    attribute::Attributes,
    key,
    trace::{SpanRef, Trace},
};
use crate::model::change::{ChangeKind, EvidenceEvent, Finding};

/// Adds an event under its name in the stream (docs/events.md).
pub(super) fn add(trace: &mut Trace<'_>, span: SpanRef, it: &EvidenceEvent) {
    let attributes = match &it.what {
        ChangeKind::CniStarted { call } => Attributes::default().call(call),
        ChangeKind::CniFinished { call, end, duration } => {
            Attributes::default().call(call).end(end.as_ref()).number(key::DURATION, duration.as_nanos())
        }
        ChangeKind::AddressRemoved { ifname, .. } => {
            Attributes::default().text(key::INTERFACE, ifname.as_str())
        }
        ChangeKind::SandboxStopped { why } => Attributes::default().text(key::REASON, why.into_str()),
        ChangeKind::ContainerExited { end, .. } | ChangeKind::ProcessExit { end, .. } => {
            let killer = end.killer.as_ref().map(|killer| killer.comm.as_str());
            Attributes::default().end(Some(end)).some_text(key::KILLER, killer)
        }
        _ => Attributes::default(),
    };
    let attributes = match &it.container {
        Some(container) => attributes.container(container),
        None => attributes,
    };
    trace.event(span, it.what.into_str(), it.at, attributes);
}

/// Adds a finding to the root span, at the time when the problem began.
pub(super) fn add_finding(trace: &mut Trace<'_>, it: &Finding) {
    let attributes = Attributes::default().finding(it).text(key::SUMMARY, it.kind.explain().summary());
    trace.event(Trace::ROOT, "finding", it.since, attributes);
}

/// The runtime that made the sandbox's network namespace.
pub(super) fn runtime(events: &[EvidenceEvent]) -> Option<&str> {
    events.iter().find_map(|it| match &it.what {
        ChangeKind::NetnsCreated { by } => runtime::servers().find(|server| *server == by.comm),
        _ => None,
    })
}
