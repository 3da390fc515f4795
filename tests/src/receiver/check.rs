//! Checks a request, its message and the contents by the rules of the protocol. An error names the violation.

use http::{HeaderMap, Method, Version};
use opentelemetry_proto::tonic::{
    common::v1::{InstrumentationScope, KeyValue, any_value::Value},
    logs::v1::LogRecord,
    trace::v1::{Span, span::SpanKind},
};

pub(super) fn check(is_so: bool, problem: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(problem()) }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

pub(super) fn http_message<'a>(head: &http::request::Parts, body: &'a [u8]) -> Result<&'a [u8], String> {
    check(head.version == Version::HTTP_11, || format!("{:?}", head.version))?;
    check(head.method == Method::POST, || format!("method {}", head.method))?;
    let path = head.uri.path();
    check(["/v1/traces", "/v1/logs"].contains(&path), || format!("path {path}"))?;
    let kind = text(&head.headers, "content-type");
    check(kind == "application/x-protobuf", || format!("content-type {kind:?}"))?;
    check(!text(&head.headers, "host").is_empty(), || "no host".to_owned())?;
    let encoding = text(&head.headers, "content-encoding");
    check(encoding.is_empty(), || format!("content-encoding {encoding}"))?;
    Ok(body)
}

/// Returns a message of gRPC. Five bytes precede it: whether it is compressed, and its length.
pub(super) fn grpc_message<'a>(head: &http::request::Parts, body: &'a [u8]) -> Result<&'a [u8], String> {
    check(head.version == Version::HTTP_2, || format!("{:?}", head.version))?;
    check(head.method == Method::POST, || format!("method {}", head.method))?;
    let path = head.uri.path();
    let methods = [
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    ];
    check(methods.contains(&path), || format!("path {path}"))?;
    let kind = text(&head.headers, "content-type");
    check(kind == "application/grpc", || format!("content-type {kind:?}"))?;
    let te = text(&head.headers, "te");
    check(te == "trailers", || format!("te {te:?}"))?;
    let (frame, message) = body.split_at_checked(5).ok_or("no frame")?;
    let len = frame.iter().skip(1).fold(0_usize, |len, byte| len << 8 | usize::from(*byte));
    check(frame.first() == Some(&0), || "compressed".to_owned())?;
    check(len == message.len(), || format!("{len} of {} bytes", message.len()))?;
    Ok(message)
}

pub(super) fn check_scope(scope: Option<&InstrumentationScope>) -> Result<(), String> {
    let name = scope.map(|scope| scope.name.as_str()).unwrap_or_default();
    check(!name.is_empty(), || "a scope without a name".to_owned())
}

fn check_id(id: &[u8], len: usize) -> Result<(), String> {
    check(id.len() == len && id.iter().any(|byte| *byte != 0), || format!("no id of {len} bytes: {id:?}"))
}

pub(super) fn check_span(span: &Span) -> Result<(), String> {
    check_id(&span.trace_id, 16)?;
    check_id(&span.span_id, 8)?;
    if !span.parent_span_id.is_empty() {
        check_id(&span.parent_span_id, 8)?;
    }
    check(!span.name.is_empty(), || "a span without a name".to_owned())?;
    check(span.kind == i32::from(SpanKind::Internal), || format!("kind {}", span.kind))?;
    let (begin, end) = (span.start_time_unix_nano, span.end_time_unix_nano);
    check(begin > 0 && begin <= end, || format!("{} from {begin} to {end}", span.name))?;
    check_attributes(&span.attributes)?;
    for event in &span.events {
        check(!event.name.is_empty() && event.time_unix_nano > 0, || format!("{event:?}"))?;
        check_attributes(&event.attributes)?;
    }
    let times: Vec<u64> = span.events.iter().map(|event| event.time_unix_nano).collect();
    check(times.is_sorted(), || format!("events out of order: {times:?}"))
}

pub(super) fn check_record(record: &LogRecord) -> Result<(), String> {
    check(record.time_unix_nano > 0 && record.observed_time_unix_nano > 0, || format!("{record:?}"))?;
    check((1..=24).contains(&record.severity_number), || format!("severity {}", record.severity_number))?;
    check(record.body.as_ref().is_some_and(|body| body.value.is_some()), || "no body".to_owned())?;
    if !record.trace_id.is_empty() {
        check_id(&record.trace_id, 16)?;
    }
    check_attributes(&record.attributes)
}

/// Checks that each key occurs once, in order, with a value.
pub(super) fn check_attributes(all: &[KeyValue]) -> Result<(), String> {
    check(all.is_sorted_by(|one, other| one.key < other.key), || format!("keys {all:?}"))?;
    for it in all {
        check(!it.key.is_empty(), || "an empty key".to_owned())?;
        let value = it.value.as_ref().and_then(|value| value.value.as_ref());
        match value {
            None => return Err(format!("{} has no value", it.key)),
            Some(Value::ArrayValue(list)) => {
                check(!list.values.is_empty(), || format!("{} is empty", it.key))?;
            }
            Some(_) => {}
        }
    }
    Ok(())
}
