//! A trace in the making: a root span, and spans below it.

use opentelemetry_proto::tonic::trace::v1::{Span, Status, span, span::SpanKind, status::StatusCode};

use super::{attribute::Attributes, id::TraceId};
use crate::{
    model::{change::CniCall, time::Timestamp},
    sink::Label,
};

/// The spans of one trace, the root first.
#[derive(Debug)]
pub(super) struct Trace<'a> {
    id: TraceId,
    label: &'a Label,
    spans: Vec<Span>,
}

/// A span of a trace, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpanRef(usize);

/// A span's name and times, nanoseconds since the epoch.
#[derive(Clone, Debug)]
pub(super) struct Period {
    pub(super) name: String,
    pub(super) begin: u64,
    pub(super) end: u64,
}

impl Period {
    pub(super) fn of(label: &Label, name: impl Into<String>, begin: Timestamp, end: Timestamp) -> Self {
        Self { name: name.into(), begin: wall(label, begin), end: wall(label, end) }
    }

    pub(super) fn of_call(label: &Label, call: &CniCall, begin: Timestamp, end: Timestamp) -> Self {
        Self::of(label, format!("cni {} {}", call.command, call.plugin), begin, end)
    }
}

impl<'a> Trace<'a> {
    pub(super) const ROOT: SpanRef = SpanRef(0);

    pub(super) fn new(id: TraceId, label: &'a Label, root: &Period, attributes: Attributes) -> Self {
        let mut trace = Self { id, label, spans: Vec::new() };
        trace.push(Vec::new(), root, attributes);
        trace
    }

    pub(super) fn child(&mut self, parent: SpanRef, period: &Period, attributes: Attributes) -> SpanRef {
        let parent = self.spans.get(parent.0).map(|it| it.span_id.clone()).unwrap_or_default();
        self.push(parent, period, attributes)
    }

    fn push(&mut self, parent_span_id: Vec<u8>, period: &Period, attributes: Attributes) -> SpanRef {
        let place = self.spans.len();
        self.spans.push(Span {
            trace_id: self.id.bytes(),
            span_id: self.id.span(u32::try_from(place).unwrap_or(u32::MAX)).to_vec(),
            parent_span_id,
            ..span(period, attributes)
        });
        SpanRef(place)
    }

    pub(super) fn event(&mut self, of: SpanRef, name: &str, at: Timestamp, attributes: Attributes) {
        let time_unix_nano = wall(self.label, at);
        let name = name.to_owned();
        let attributes = attributes.into_list();
        if let Some(span) = self.spans.get_mut(of.0) {
            span.events.push(span::Event { time_unix_nano, name, attributes, ..span::Event::default() });
        }
    }

    pub(super) fn link(&mut self, from: SpanRef, link: span::Link) {
        if let Some(it) = self.spans.get_mut(from.0) {
            it.links.push(link);
        }
    }

    /// Marks the span as failed, for this reason.
    pub(super) fn fail(&mut self, span: SpanRef, message: String) {
        if let Some(it) = self.spans.get_mut(span.0) {
            it.status = Some(failed(message));
        }
    }

    /// Returns the spans, with their events in order of time.
    pub(super) fn into_spans(mut self) -> Vec<Span> {
        self.spans.iter_mut().for_each(|span| span.events.sort_by_key(|event| event.time_unix_nano));
        self.spans
    }
}

/// Returns a span that has no ids yet.
pub(super) fn span(period: &Period, attributes: Attributes) -> Span {
    Span {
        name: period.name.clone(),
        kind: SpanKind::Internal.into(),
        start_time_unix_nano: period.begin,
        end_time_unix_nano: period.end.max(period.begin),
        attributes: attributes.into_list(),
        ..Span::default()
    }
}

pub(super) fn failed(message: String) -> Status {
    Status { message, code: StatusCode::Error.into() }
}

/// The wall-clock time, nanoseconds since the epoch. A time before the epoch becomes the epoch.
pub(super) fn wall(label: &Label, at: Timestamp) -> u64 {
    u64::try_from(label.wall_ns(at).max(0)).unwrap_or(u64::MAX)
}
