//! Why a request failed: what to do, for the log; a word, for the metrics; and whether another try makes
//! sense, for the sender.

use std::{fmt, time::Duration};

use http::{HeaderMap, StatusCode, header};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::signal::{PROTOBUF, Signal};
use crate::{retry_after::retry_after, sink::escape::escaped};

/// The kind of a failure. The log has a line for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// The name has no address.
    Resolve,
    /// No connection was made.
    Connect,
    Tls,
    /// No answer came in time.
    Timeout,
    /// The connection ended before the answer.
    Lost,
    /// The peer answers, and is not an OTLP receiver.
    Protocol,
    /// The receiver wants other credentials.
    Credentials,
    /// The receiver does not accept this signal.
    NotFound,
    /// The receiver asks to try later.
    Busy,
    /// The receiver does not accept this request.
    Refused,
}

impl Reason {
    pub(super) const ALL: [Self; 10] = [
        Self::Resolve,
        Self::Connect,
        Self::Tls,
        Self::Timeout,
        Self::Lost,
        Self::Protocol,
        Self::Credentials,
        Self::NotFound,
        Self::Busy,
        Self::Refused,
    ];

    #[must_use]
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Resolve => "resolve",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Lost => "lost",
            Self::Protocol => "protocol",
            Self::Credentials => "credentials",
            Self::NotFound => "not_found",
            Self::Busy => "busy",
            Self::Refused => "refused",
        }
    }
}

/// A failed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) reason: Reason,
    /// What happened, and what to do, for the log.
    pub(super) text: String,
    /// Another try of this request may succeed.
    pub(super) is_passing: bool,
    /// How long the receiver asks to wait before the next try.
    pub(super) wait: Option<Duration>,
}

impl Failure {
    /// A failure that may pass, so that another try makes sense.
    pub(super) fn passing(reason: Reason, text: impl Into<String>) -> Self {
        Self { reason, text: text.into(), is_passing: true, wait: None }
    }

    pub(super) fn lasting(reason: Reason, text: impl Into<String>) -> Self {
        Self { is_passing: false, ..Self::passing(reason, text) }
    }

    pub(super) fn timeout(deadline: Duration) -> Self {
        let text = format!("it did not answer within {} s", deadline.as_secs_f64());
        Self::passing(Reason::Timeout, text)
    }

    /// The failure for an HTTP answer whose status is not a success. `body` may have the reason.
    pub(super) fn of_http(signal: Signal, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        let said = said_in(headers, body);
        let answer = format!("it answers {}{said}", status.as_u16());
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Self::credentials(&answer),
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Self::not_found(signal, &answer),
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => {
                Self { wait: retry_after(headers), ..Self::passing(Reason::Busy, answer) }
            }
            _ => Self::lasting(Reason::Refused, answer),
        }
    }

    /// The failure for a gRPC answer.
    pub(super) fn of_grpc(signal: Signal, status: &Status) -> Self {
        let wait = status.get_details_retry_info().and_then(|info| info.retry_delay);
        let answer = format!("it answers {:?}{}", status.code(), said(status.message()));
        match status.code() {
            Code::Unauthenticated | Code::PermissionDenied => Self::credentials(&answer),
            Code::Unimplemented => Self::not_found(signal, &answer),
            Code::ResourceExhausted if wait.is_none() => Self::lasting(Reason::Refused, answer),
            Code::Cancelled
            | Code::DeadlineExceeded
            | Code::ResourceExhausted
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss => Self { wait, ..Self::passing(Reason::Busy, answer) },
            Code::Ok
            | Code::Unknown
            | Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::FailedPrecondition
            | Code::Internal => Self::lasting(Reason::Refused, answer),
        }
    }

    fn credentials(answer: &str) -> Self {
        let todo = "give what it wants in --otlp-header-file or OTEL_EXPORTER_OTLP_HEADERS";
        Self::lasting(Reason::Credentials, format!("{answer}; {todo}"))
    }

    fn not_found(signal: Signal, answer: &str) -> Self {
        let others = Signal::ALL.into_iter().filter(|it| *it != signal).map(Signal::as_str);
        let others: Vec<&str> = others.collect();
        let todo = format!("correct the URL, or send only {} (--otlp-signals)", others.join(","));
        Self::lasting(Reason::NotFound, format!("{answer}; {todo}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// `: message`, shortened and on one line; empty if there is none.
pub(super) fn said(message: &str) -> String {
    const MAX_CHARS: usize = 200;
    let message: String = message.trim().chars().take(MAX_CHARS).collect();
    if message.is_empty() { message } else { format!(": {}", escaped(&message)) }
}

/// The message in the body, which is a protobuf status or plain text.
fn said_in(headers: &HeaderMap, body: &[u8]) -> String {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    if kind.starts_with(PROTOBUF) {
        let status: Result<tonic_types::Status, _> = prost::Message::decode(body);
        return said(&status.map(|it| it.message).unwrap_or_default());
    }
    if kind.starts_with("text/plain") { said(&String::from_utf8_lossy(body)) } else { String::new() }
}
