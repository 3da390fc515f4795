//! The signals: traces and log records. They are sent separately, so that a receiver that refuses one still
//! gets the other.

use bytes::Bytes;
use http::uri::PathAndQuery;
use opentelemetry_proto::tonic::{
    collector::{
        logs::v1::{ExportLogsServiceRequest, ExportLogsServiceResponse},
        trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
    },
    logs::v1::{LogRecord, ResourceLogs, ScopeLogs},
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span},
};
use prost::{DecodeError, Message};

use super::resource;

/// The content type of messages over HTTP.
pub(super) const PROTOBUF: &str = "application/x-protobuf";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Traces,
    Logs,
}

/// Spans of one trace, or log records. They wait in encoded form, which is small and can be counted.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// A `ScopeSpans` or a `ScopeLogs`. Several of them, concatenated, decode as one with all of their spans
    /// or records.
    pub(super) bytes: Vec<u8>,
    /// The number of spans or records.
    pub(super) entries: u64,
}

/// The part of an accepted request that the receiver rejected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Partial {
    pub(super) rejected: u64,
    pub(super) message: String,
}

impl Signal {
    pub(crate) const ALL: [Self; 2] = [Self::Traces, Self::Logs];

    #[must_use]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Logs => "logs",
        }
    }

    /// Parses the name of a signal.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|signal| signal.as_str() == text);
        known.ok_or_else(|| format!("{text:?} is neither \"traces\" nor \"logs\""))
    }

    /// The HTTP path, below the path of the receiver's URL.
    #[must_use]
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Traces => "/v1/traces",
            Self::Logs => "/v1/logs",
        }
    }

    #[must_use]
    pub(super) fn method(self) -> PathAndQuery {
        PathAndQuery::from_static(match self {
            Self::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Self::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        })
    }

    /// Makes the request with these concatenated scopes.
    pub(super) fn request(self, scopes: &[u8], resource: &Resource) -> Bytes {
        const OWN: &str = "what was encoded can be decoded";
        let resource = Some(resource.clone());
        let schema_url = resource::SCHEMA.to_owned();
        let request = match self {
            Self::Traces => {
                let mut all = ScopeSpans::decode(scopes).expect(OWN);
                all.scope = Some(resource::scope());
                all.schema_url.clone_from(&schema_url);
                let resource_spans = vec![ResourceSpans { resource, scope_spans: vec![all], schema_url }];
                ExportTraceServiceRequest { resource_spans }.encode_to_vec()
            }
            Self::Logs => {
                let mut all = ScopeLogs::decode(scopes).expect(OWN);
                all.scope = Some(resource::scope());
                all.schema_url.clone_from(&schema_url);
                let resource_logs = vec![ResourceLogs { resource, scope_logs: vec![all], schema_url }];
                ExportLogsServiceRequest { resource_logs }.encode_to_vec()
            }
        };
        request.into()
    }

    /// Reads the answer to an accepted request.
    pub(super) fn answer(self, answer: &[u8]) -> Result<Partial, DecodeError> {
        let partial = match self {
            Self::Traces => ExportTraceServiceResponse::decode(answer)?
                .partial_success
                .map(|it| (it.rejected_spans, it.error_message)),
            Self::Logs => ExportLogsServiceResponse::decode(answer)?
                .partial_success
                .map(|it| (it.rejected_log_records, it.error_message)),
        };
        let (rejected, message) = partial.unwrap_or_default();
        Ok(Partial { rejected: u64::try_from(rejected).unwrap_or_default(), message })
    }
}

impl Item {
    pub(super) fn of_trace(spans: Vec<Span>) -> Self {
        let entries = count(spans.len());
        Self { bytes: ScopeSpans { spans, ..ScopeSpans::default() }.encode_to_vec(), entries }
    }

    pub(super) fn of_record(record: LogRecord) -> Self {
        let scope = ScopeLogs { log_records: vec![record], ..ScopeLogs::default() };
        Self { bytes: scope.encode_to_vec(), entries: 1 }
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
