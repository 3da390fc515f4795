//! Sends one request at a time, over one connection that stays open.

use std::{error::Error, sync::Arc};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::time::{Instant, timeout_at};
use tonic::{
    Code, Status,
    body::Body,
    client::Grpc,
    metadata::{KeyAndValueRef, MetadataMap},
};
use tower::service_fn;

use super::{
    connect::connect,
    credentials::{Credentials, Current},
    failure::{Failure, Reason, said},
    pace::Pace,
    signal::{PROTOBUF, Partial, Signal},
    target::{Protocol, Target},
};
use crate::grpc::{Raw, checked};

const USER_AGENT: &str = concat!("sandprobe/", env!("CARGO_PKG_VERSION"));
/// The longest answer that is read, bytes.
const MAX_ANSWER: usize = 64 << 10;

/// A client of one receiver for one signal.
#[derive(Debug)]
pub(super) struct Client {
    target: Target,
    signal: Signal,
    credentials: Credentials,
    connection: Option<Connection>,
    /// The receiver has accepted a request.
    has_answered: bool,
}

#[derive(Debug)]
enum Connection {
    Grpc(http2::SendRequest<Body>),
    Http(http1::SendRequest<Body>),
}

impl Connection {
    fn is_open(&self) -> bool {
        match self {
            Self::Grpc(sender) => !sender.is_closed(),
            Self::Http(sender) => sender.is_ready(),
        }
    }
}

impl Client {
    pub(super) fn new(target: Target, signal: Signal, credentials: Credentials) -> Self {
        Self { target, signal, credentials, connection: None, has_answered: false }
    }

    /// Sends a request within the deadline.
    pub(super) async fn send(&mut self, request: &Bytes, pace: &Pace) -> Result<Partial, Failure> {
        let until = Instant::now() + pace.deadline;
        let answered = timeout_at(until, self.ask(request, until)).await;
        let answer = answered.unwrap_or_else(|_elapsed| Err(Failure::timeout(pace.deadline)));
        match &answer {
            Ok(_) => self.has_answered = true,
            Err(failure) if breaks(failure.reason) => self.connection = None,
            Err(_) => {}
        }
        answer
    }

    async fn ask(&mut self, request: &Bytes, until: Instant) -> Result<Partial, Failure> {
        let kept = self.connection.take().filter(Connection::is_open);
        if let Some(kept) = kept {
            match self.ask_on(kept, request).await {
                // The receiver may have closed a connection that was idle just when it was used again.
                Err(failure) if failure.reason == Reason::Lost => {}
                answer => return answer,
            }
        }
        let current = self.credentials.current();
        let connection = self.connect(&current, until).await?;
        let answer = self.ask_on(connection, request).await;
        answer.map_err(|failure| match failure.reason {
            // Many servers close the connection without an answer if the protocol is not theirs.
            Reason::Lost if !self.has_answered => self.no_receiver(&failure.text),
            _ => failure,
        })
    }

    async fn connect(&self, current: &Current, until: Instant) -> Result<Connection, Failure> {
        let stream = TokioIo::new(connect(&self.target, current.tls.as_ref(), until).await?);
        Ok(match self.target.protocol() {
            Protocol::Grpc => {
                let opened = http2::handshake(TokioExecutor::new(), stream).await;
                let (sender, connection) = opened.map_err(|why| self.broken(&why))?;
                // The sender gets the errors too.
                tokio::spawn(async move { connection.await.ok() });
                Connection::Grpc(sender)
            }
            Protocol::Http => {
                let opened = http1::handshake(stream).await;
                let (sender, connection) = opened.map_err(|why| self.broken(&why))?;
                tokio::spawn(async move { connection.await.ok() });
                Connection::Http(sender)
            }
        })
    }

    /// Sends the request on this connection, and keeps the connection for the next one.
    async fn ask_on(&mut self, connection: Connection, request: &Bytes) -> Result<Partial, Failure> {
        let current = self.credentials.current();
        let (answer, connection) = match connection {
            Connection::Grpc(sender) => {
                let answer = self.ask_grpc(sender.clone(), request, &current).await;
                (answer, Connection::Grpc(sender))
            }
            Connection::Http(mut sender) => {
                let answer = self.ask_http(&mut sender, request, &current).await;
                (answer, Connection::Http(sender))
            }
        };
        self.connection = Some(connection);
        answer
    }

    async fn ask_grpc(
        &self,
        sender: http2::SendRequest<Body>,
        bytes: &Bytes,
        current: &Arc<Current>,
    ) -> Result<Partial, Failure> {
        let origin = self.target.origin().parse().map_err(|why| self.unsendable(&why))?;
        let service = service_fn(move |request: Request<Body>| {
            let answer = sender.clone().send_request(request);
            async { answer.await.map(checked) }
        });
        let mut client = Grpc::with_origin(service, origin).max_decoding_message_size(MAX_ANSWER);
        let headers = current.headers.iter().cloned().collect();
        let mut request = tonic::Request::new(bytes.to_vec());
        *request.metadata_mut() = MetadataMap::from_headers(headers);
        request.metadata_mut().insert("user-agent", tonic::metadata::MetadataValue::from_static(USER_AGENT));
        let answer = client.unary(request, self.signal.method(), Raw).await;
        let answer = answer.map_err(|status| self.of_status(&status))?.into_inner();
        self.signal.answer(&answer).map_err(|why| self.no_receiver(&why.to_string()))
    }

    async fn ask_http(
        &self,
        sender: &mut http1::SendRequest<Body>,
        bytes: &Bytes,
        current: &Current,
    ) -> Result<Partial, Failure> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(self.target.path(self.signal))
            .header(header::HOST, self.target.authority())
            .header(header::CONTENT_TYPE, PROTOBUF)
            .header(header::ACCEPT, PROTOBUF)
            .header(header::USER_AGENT, USER_AGENT)
            .body(Body::new(Full::new(bytes.clone())))
            .map_err(|why| self.unsendable(&why))?;
        request.headers_mut().extend(current.headers.iter().cloned());
        let answer = sender.send_request(request).await.map_err(|why| self.broken(&why))?;
        let (head, body) = self.read(answer).await?;
        if !head.status.is_success() {
            return Err(Failure::of_http(self.signal, head.status, &head.headers, &body));
        }
        let kind = head.headers.get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
        if !body.is_empty() && !kind.starts_with(PROTOBUF) {
            return Err(self.no_receiver(&format!("it answers {} with {kind:?}", StatusCode::OK.as_u16())));
        }
        self.signal.answer(&body).map_err(|why| self.no_receiver(&why.to_string()))
    }

    async fn read(&self, answer: Response<Incoming>) -> Result<(http::response::Parts, Bytes), Failure> {
        let (head, body) = answer.into_parts();
        let read = Limited::new(body, MAX_ANSWER).collect().await;
        let body = read.map_err(|why| match why.downcast_ref::<hyper::Error>() {
            Some(why) => self.broken(why),
            None => self.no_receiver(&format!("its answer has more than {MAX_ANSWER} bytes")),
        })?;
        Ok((head, body.to_bytes()))
    }

    /// The failure for a status that the receiver returned, or that tonic made from a connection's error.
    fn of_status(&self, status: &Status) -> Failure {
        let mut source = status.source();
        while let Some(why) = source {
            if let Some(why) = why.downcast_ref::<hyper::Error>() {
                return self.broken(why);
            }
            source = why.source();
        }
        // A gRPC answer has its status in the trailers. For other answers tonic derives a status from the
        // HTTP one.
        let is_grpc = status.metadata().iter().all(|it| match it {
            KeyAndValueRef::Ascii(key, value) => {
                key != "content-type" || value.to_str().is_ok_and(|kind| kind.starts_with("application/grpc"))
            }
            KeyAndValueRef::Binary(..) => true,
        });
        // tonic's own message about an answer that violates gRPC, such as one without a status, begins like
        // this.
        let is_whole = !status.message().starts_with("protocol error:");
        match status.code() {
            // A proxy that has no backend at the moment answers with 502, 503 or 504.
            _ if is_grpc && is_whole => Failure::of_grpc(self.signal, status),
            Code::Unavailable => Failure::passing(
                Reason::Busy,
                format!("it answers {:?}{}", Code::Unavailable, said(status.message())),
            ),
            code => self.no_receiver(&format!("it answers {code:?}{}", said(status.message()))),
        }
    }

    fn broken(&self, why: &hyper::Error) -> Failure {
        let mut chain = why.to_string();
        let mut source = why.source();
        while let Some(inner) = source {
            chain = format!("{chain}: {inner}");
            source = inner.source();
        }
        let is_lost = why.is_canceled() || why.is_closed() || why.is_incomplete_message();
        let is_io = why.source().is_some_and(|inner| inner.is::<std::io::Error>());
        if is_lost || is_io || self.has_answered {
            return Failure::passing(Reason::Lost, format!("the connection ended{}", said(&chain)));
        }
        self.no_receiver(&chain)
    }

    /// The failure if the peer may be another kind of server, or this may be the other protocol's port.
    fn no_receiver(&self, why: &str) -> Failure {
        let other = self.target.other_protocol();
        let todo = format!("if it goes on and the address is right, try {other}");
        Failure::passing(Reason::Protocol, format!("no OTLP is spoken there{}; {todo}", said(why)))
    }

    fn unsendable(&self, why: &dyn Error) -> Failure {
        Failure::lasting(Reason::Refused, format!("no request can be made for it{}", said(&why.to_string())))
    }
}

/// Whether the next request needs a new connection.
fn breaks(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Timeout | Reason::Lost | Reason::Protocol | Reason::Tls | Reason::Connect | Reason::Resolve
    )
}
