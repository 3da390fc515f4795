//! A finding as a log record: one for each step, opened, confirmed and closed.

use opentelemetry_proto::tonic::{
    common::v1::any_value::Value,
    logs::v1::{LogRecord, SeverityNumber},
};

use super::{
    attribute::{Attributes, any},
    key, start,
    teardown::{self, Teardown},
    trace::wall,
};
use crate::{
    engine::view::ToldView,
    known::Catalogue,
    model::{
        change::Finding,
        finding::{Detail, Severity, Stage},
        time::Timestamp,
    },
    sink::{
        Label,
        render::{phase, wall_clock::Rfc3339},
    },
};

/// Makes the record of a step at this time. `told` has the events about the finding's first sandbox.
pub(super) fn record(
    it: &Finding,
    at: Timestamp,
    observed: Timestamp,
    told: Option<ToldView<'_>>,
    label: &Label,
) -> LogRecord {
    let explained = it.kind.explain();
    let summary = explained.summary();
    let body = match &it.pod {
        Some(pod) => format!("{}: {summary}", phase::pod(pod)),
        None => summary.clone(),
    };
    let attributes = Attributes::default()
        .finding(it)
        .text(key::SINCE, Rfc3339(label.wall_ns(it.since)).to_string())
        .text(key::SUMMARY, summary)
        .text(key::CAUSE, Catalogue::current().cause(it))
        .mark(key::GAPPED, it.gapped)
        .texts(key::SANDBOXES, it.sandboxes.iter().map(ToString::to_string))
        .json(key::DETAIL, serde_json::to_value(Detail(&it.kind)).unwrap_or_default());
    let attributes = match &it.pod {
        Some(pod) => attributes.pod(pod),
        None => attributes,
    };
    let (severity, severity_text) = severity(it);
    let trace = trace(it, told, label);
    LogRecord {
        time_unix_nano: wall(label, at),
        observed_time_unix_nano: wall(label, observed),
        severity_number: severity.into(),
        severity_text: severity_text.to_owned(),
        body: Some(any(Value::StringValue(body))),
        attributes: attributes.into_list(),
        trace_id: trace,
        event_name: event_name(it.stage).to_owned(),
        ..LogRecord::default()
    }
}

fn event_name(stage: Stage) -> &'static str {
    match stage {
        Stage::Candidate => "finding.opened",
        Stage::Confirmed => "finding.confirmed",
        Stage::Closed => "finding.closed",
    }
}

/// The severity of the record. A closed finding is only information.
fn severity(it: &Finding) -> (SeverityNumber, &'static str) {
    match (it.stage, it.severity) {
        (Stage::Closed, _) | (_, Severity::Info) => (SeverityNumber::Info, "INFO"),
        (_, Severity::Warning) => (SeverityNumber::Warn, "WARN"),
        (_, Severity::Critical) => (SeverityNumber::Error, "ERROR"),
    }
}

/// The trace id of the first sandbox's start, or of its teardown if that began before the problem did.
fn trace(it: &Finding, told: Option<ToldView<'_>>, label: &Label) -> Vec<u8> {
    let Some(sandbox) = it.sandboxes.first() else { return Vec::new() };
    let is_ending = told.and_then(Teardown::of).is_some_and(|teardown| teardown.begin() <= it.since);
    let id = if is_ending { teardown::id } else { start::id };
    id(&label.boot_id, sandbox).bytes()
}
