//! The response to a client: a whole document, or a stream.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::{sync::mpsc, time::Instant};

use crate::sink::net::loop_queue::Unanswered;

pub(super) const JSON: &str = "application/json";
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// Headers of every response: it must not be framed, sniffed or cached.
const HEADERS: [(HeaderName, &str); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
];

/// How long a client may take to read a whole response.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// How many bytes the connection gets at once. It copies them.
const PIECE: usize = 16 << 10;

/// The body of a response.
#[derive(Debug)]
pub(super) enum Reply {
    Whole(Whole),
    Stream(mpsc::Receiver<Bytes>),
}

/// The rest of a response, and its deadline.
#[derive(Debug)]
pub(super) struct Whole {
    left: Bytes,
    until: Instant,
}

impl Whole {
    pub(super) fn len(&self) -> usize {
        self.left.len()
    }

    pub(super) fn into_bytes(self) -> Bytes {
        self.left
    }

    fn next(&mut self) -> Option<io::Result<Bytes>> {
        if self.left.is_empty() {
            return None;
        }
        if Instant::now() > self.until {
            return Some(Err(io::ErrorKind::TimedOut.into()));
        }
        Some(Ok(self.left.split_to(self.left.len().min(PIECE))))
    }
}

impl Reply {
    pub(super) fn whole(bytes: Bytes) -> Self {
        Self::Whole(Whole { left: bytes, until: Instant::now() + READ_TIMEOUT })
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let next = match &mut *self {
            Self::Whole(whole) => Poll::Ready(whole.next()),
            Self::Stream(chunks) => chunks.poll_recv(context).map(|chunk| chunk.map(Ok)),
        };
        next.map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(whole) if whole.left.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(whole) => SizeHint::with_exact(whole.left.len() as u64),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// Why a request fails.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ApiError {
    /// What is wrong with a parameter.
    Parameter(String),
    NotFound,
    NoFinding(String),
    Method,
    Body,
    Host,
    Unauthorized,
    TooManyFollowers,
    Overloaded,
    Unanswered,
    Timeout,
}

impl From<Unanswered> for ApiError {
    fn from(_: Unanswered) -> Self {
        Self::Unanswered
    }
}

/// The body of an error.
#[derive(Serialize, JsonSchema)]
pub(super) struct Error<'a> {
    /// The error in one sentence.
    error: &'a str,
}

impl ApiError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Parameter(_) => StatusCode::BAD_REQUEST,
            Self::NotFound | Self::NoFinding(_) => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Body => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Host => StatusCode::MISDIRECTED_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::TooManyFollowers | Self::Overloaded | Self::Unanswered | Self::Timeout => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Parameter(why) => why.clone(),
            Self::NotFound => "there is nothing at this path: see /v1/openapi.json".to_owned(),
            Self::NoFinding(key) => format!("no finding has the key {key:?}: see /v1/findings?state=all"),
            Self::Method => "only GET and HEAD are answered: nothing can be changed here".to_owned(),
            Self::Body => "a request has no body here".to_owned(),
            Self::Host => {
                "asked for by a name that is not this machine's: use localhost or its address".to_owned()
            }
            Self::Unauthorized => {
                "this needs the token (Authorization: Bearer TOKEN) or a certificate of the client authority"
                    .to_owned()
            }
            Self::TooManyFollowers => {
                "too many follow the events over this port or socket, or from this address: end one of those"
                    .to_owned()
            }
            Self::Overloaded => "too much waits for clients that do not take it: ask again".to_owned(),
            Self::Unanswered => Unanswered.to_string(),
            Self::Timeout => "this took too long: ask again".to_owned(),
        }
    }

    pub(super) fn response(&self) -> Response<Reply> {
        let mut body = serde_json::to_vec(&Error { error: &self.text() }).unwrap_or_default();
        body.push(b'\n');
        let mut response = whole(self.status(), JSON, body);
        let headers = response.headers_mut();
        match self {
            Self::Method => {
                headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            }
            Self::Unauthorized => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            // The bytes after the head would be read as the next request.
            Self::Body => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}

pub(super) fn whole(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Reply> {
    with_headers(status, kind, Reply::whole(body.into()))
}

pub(super) fn stream(kind: &'static str, chunks: mpsc::Receiver<Bytes>) -> Response<Reply> {
    with_headers(StatusCode::OK, kind, Reply::Stream(chunks))
}

pub(super) fn json(value: &impl Serialize) -> Response<Reply> {
    json_with(StatusCode::OK, value)
}

pub(super) fn json_with(status: StatusCode, value: &impl Serialize) -> Response<Reply> {
    // This cannot fail: the keys are strings, and a vector accepts every write.
    let mut body = serde_json::to_vec(value).unwrap_or_default();
    body.push(b'\n');
    whole(status, JSON, body)
}

fn with_headers(status: StatusCode, kind: &'static str, body: Reply) -> Response<Reply> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
