//! A pod's start as a trace. The root span is the whole start, and each phase is a span below it.

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
        change::{ChangeKind, Finding},
        id::ContainerId,
        phase::{Kind, Listening, Phase, Start},
    },
    sink::{Label, render::phase as wording},
};

/// The trace id of the first start in a sandbox.
pub(super) fn id(boot_id: &str, sandbox: &ContainerId) -> TraceId {
    TraceId::new(Of::Start, boot_id, &[sandbox.as_str()])
}

/// Makes the spans of a start. `told` has the events about its sandbox. Only `findings` about that sandbox
/// are used.
pub(super) fn spans<'a>(
    start: &Start,
    told: Option<ToldView<'_>>,
    findings: impl Iterator<Item = &'a Finding>,
    label: &Label,
) -> Vec<Span> {
    let end = start.end.0.to_string();
    let id = if start.revised {
        // It is longer than the start that was sent before, so it is another trace.
        TraceId::new(Of::Start, &label.boot_id, &[start.sandbox.as_str(), &end])
    } else {
        id(&label.boot_id, &start.sandbox)
    };
    let events = told.map_or(&[][..], |told| told.events);
    let root = Period::of(label, "pod start", start.begin, start.end);
    let attributes = Attributes::default()
        .pod(&start.pod)
        .sandbox(&start.sandbox)
        .some_text(key::RUNTIME, event::runtime(events))
        .flag(key::COMPLETE, start.complete)
        .mark(key::GAPPED, start.is_gapped())
        .texts(key::MARKS, wording::marks(start))
        .texts(key::MISSING, start.missing.iter().map(String::as_str));
    let mut trace = Trace::new(id, label, &root, attributes);
    if !start.missing.is_empty() {
        trace.fail(Trace::ROOT, format!("did not begin: {}", start.missing.join(", ")));
    }
    if let Some(context) = context::given(events, "ADD") {
        trace.link(Trace::ROOT, context::link(context, &start.pod));
    }
    let mut phases: Vec<(&Phase, SpanRef)> = Vec::new();
    for phase in &start.phases {
        let period = Period::of(label, wording::name(&phase.kind), phase.begin, phase.end);
        phases.push((phase, trace.child(Trace::ROOT, &period, of_phase(phase))));
    }
    for it in &start.listening {
        let period = Period::of(label, wording::name(&Kind::Listening), it.begin, it.end);
        trace.child(Trace::ROOT, &period, of_listening(it));
    }
    for it in events.iter().filter(|it| start.begin <= it.at && it.at <= start.end) {
        if !matches!(it.what, ChangeKind::CniStarted { .. } | ChangeKind::CniFinished { .. }) {
            continue;
        }
        // At a boundary the event belongs to the phase that ends, not to the one that begins.
        let phase = phases.iter().find(|(phase, _)| phase.begin <= it.at && it.at <= phase.end);
        event::add(&mut trace, phase.map_or(Trace::ROOT, |(_, span)| *span), it);
    }
    let about = findings.filter(|it| it.sandboxes.contains(&start.sandbox));
    for it in about.filter(|it| start.begin <= it.since && it.since <= start.end) {
        event::add_finding(&mut trace, it);
    }
    trace.into_spans()
}

pub(super) fn of_phase(phase: &Phase) -> Attributes {
    let attributes = Attributes::default()
        .text(key::PHASE, phase.kind.into_str())
        .mark(key::INFERRED, matches!(phase.kind, Kind::Init | Kind::PostStart))
        .mark(key::GAPPED, phase.gapped)
        .count(key::ADDS, phase.cause.adds)
        .count(key::FAILED, phase.cause.failed)
        .texts(key::NOTES, wording::causes(phase));
    let throttled = phase.pressure.cpu.map(|cpu| cpu.throttled).filter(|it| !it.is_zero());
    let attributes = match throttled {
        Some(throttled) => attributes.number(key::THROTTLED, throttled.as_nanos()),
        None => attributes,
    };
    let attributes = match &phase.kind {
        Kind::Cni { plugin, ifname } => attributes
            .text(key::PLUGIN, plugin.as_str())
            .some_text(key::INTERFACE, Some(ifname.as_str()).filter(|name| !name.is_empty())),
        _ => attributes,
    };
    match &phase.container {
        Some(container) => attributes.container(container),
        None => attributes,
    }
}

fn of_listening(it: &Listening) -> Attributes {
    Attributes::default()
        .text(key::PHASE, Kind::Listening.into_str())
        .container(&it.container)
        .number(key::PORT, it.socket.port)
        .mark(key::GAPPED, it.gapped)
        .texts(key::NOTES, wording::listening(it))
}
