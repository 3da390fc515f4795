//! A receiver of OTLP over gRPC and HTTP. It checks requests by the protocol's specification, and misbehaves
//! on request. The agent's unit tests use this file too.

#[path = "receiver/check.rs"]
mod check;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    convert::Infallible,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Full, combinators::BoxBody};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::{
    collector::{
        logs::v1::{ExportLogsPartialSuccess, ExportLogsServiceRequest, ExportLogsServiceResponse},
        trace::v1::{ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse},
    },
    logs::v1::LogRecord,
    resource::v1::Resource,
    trace::v1::Span,
};
use prost::Message as _;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    runtime,
    sync::oneshot,
    time,
};
use tokio_rustls::TlsAcceptor;

use self::check::{
    check, check_attributes, check_record, check_scope, check_span, grpc_message, http_message,
};

type Body = BoxBody<Bytes, Infallible>;

/// The protocol of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Grpc,
    Http,
}

/// The receiver's answer to a request.
#[derive(Clone, Debug)]
pub enum Answer {
    Take,
    /// Accepts the request and rejects this number of items.
    Reject(i64),
    /// A status of HTTP or of gRPC, with these headers.
    Status(u16, Vec<(&'static str, String)>),
    /// A status of gRPC after the headers, with these trailers.
    Trailers(u16, Vec<(&'static str, String)>),
    /// A page with this status of HTTP, from a proxy.
    Page(u16),
    /// An answer of gRPC without a status at its end.
    Cut,
    /// Does not answer, and keeps the connection.
    Hang,
    /// Ends the connection without an answer.
    Close,
}

/// The received requests.
#[derive(Debug, Default)]
pub struct Received {
    pub spans: Vec<Span>,
    pub records: Vec<LogRecord>,
    pub resources: Vec<Resource>,
    /// Headers of the requests.
    pub headers: Vec<HeaderMap>,
    /// The number of requests, including refused ones.
    pub requests: usize,
    /// Violations of the protocol.
    pub problems: Vec<String>,
    /// The answers to the next requests. Later requests are accepted.
    pub answers: VecDeque<Answer>,
}

/// A running receiver. It ends with its connections when it is dropped.
#[derive(Debug)]
pub struct Receiver {
    address: SocketAddr,
    received: Arc<Mutex<Received>>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Receiver {
    /// Listens on this machine, at any port.
    pub fn start(protocol: Protocol, tls: Option<TlsAcceptor>) -> io::Result<Self> {
        Self::start_at(protocol, tls, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    pub fn start_at(protocol: Protocol, tls: Option<TlsAcceptor>, at: SocketAddr) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind(at))?;
        let address = listener.local_addr()?;
        let received = Arc::new(Mutex::new(Received::default()));
        let (end, ended) = oneshot::channel();
        let shared = Arc::clone(&received);
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = ended => {}
                    () = accept(listener, protocol, tls, shared) => {}
                }
            });
        });
        Ok(Self { address, received, end: Some(end), thread: Some(thread) })
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns what was received until now.
    pub fn received(&self) -> MutexGuard<'_, Received> {
        lock(&self.received)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.end.take().map(|end| end.send(()).ok());
        self.thread.take().map(|thread| thread.join().ok());
    }
}

fn lock(received: &Mutex<Received>) -> MutexGuard<'_, Received> {
    received.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(
    listener: TcpListener,
    protocol: Protocol,
    tls: Option<TlsAcceptor>,
    received: Arc<Mutex<Received>>,
) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, received) = (tls.clone(), Arc::clone(&received));
        tokio::spawn(async move {
            match tls {
                None => serve(stream, protocol, received).await,
                // A client that does not trust the certificate ends the connection.
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(stream, protocol, received).await;
                    }
                }
            }
        });
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    protocol: Protocol,
    received: Arc<Mutex<Received>>,
) {
    let service = service_fn(move |request| answer(request, protocol, Arc::clone(&received)));
    let stream = TokioIo::new(stream);
    // A client with another protocol, or one that disconnects, ends the connection.
    match protocol {
        Protocol::Http => drop(http1::Builder::new().serve_connection(stream, service).await),
        Protocol::Grpc => {
            drop(http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await);
        }
    }
}

async fn answer(
    request: Request<Incoming>,
    protocol: Protocol,
    received: Arc<Mutex<Received>>,
) -> Result<Response<Body>, io::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let how = {
        let mut received = lock(&received);
        received.requests += 1;
        received.headers.push(head.headers.clone());
        received.answers.pop_front().unwrap_or(Answer::Take)
    };
    let is_logs = head.uri.path().to_ascii_lowercase().contains("logs");
    let rejected = match how {
        Answer::Take => 0,
        Answer::Reject(count) => count,
        Answer::Status(code, headers) => return Ok(refuse(protocol, code, &headers)),
        Answer::Trailers(code, trailers) => return Ok(refuse_late(code, &trailers)),
        Answer::Page(code) => return Ok(page(code, "text/html")),
        Answer::Cut => return Ok(page(200, "application/grpc")),
        Answer::Hang => loop {
            time::sleep(Duration::from_secs(60)).await;
        },
        Answer::Close => return Err(io::ErrorKind::ConnectionAborted.into()),
    };
    let mut received = lock(&received);
    if let Err(problem) = received.take(protocol, &head, &body, is_logs) {
        received.problems.push(problem);
    }
    Ok(accepted(protocol, is_logs, rejected))
}

fn accepted(protocol: Protocol, is_logs: bool, rejected: i64) -> Response<Body> {
    let error_message = if rejected > 0 { "no room".to_owned() } else { String::new() };
    let answer = if is_logs {
        let partial = ExportLogsPartialSuccess { rejected_log_records: rejected, error_message };
        ExportLogsServiceResponse { partial_success: (rejected > 0).then_some(partial) }.encode_to_vec()
    } else {
        let partial = ExportTracePartialSuccess { rejected_spans: rejected, error_message };
        ExportTraceServiceResponse { partial_success: (rejected > 0).then_some(partial) }.encode_to_vec()
    };
    match protocol {
        Protocol::Http => {
            let mut response = Response::new(Full::new(Bytes::from(answer)).boxed());
            let kind = HeaderValue::from_static("application/x-protobuf");
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            response
        }
        Protocol::Grpc => {
            let mut framed = vec![0];
            framed.extend(u32::try_from(answer.len()).unwrap_or(u32::MAX).to_be_bytes());
            framed.extend(answer);
            let trailers = HeaderMap::from_iter(
                [("grpc-status".parse(), "0")]
                    .map(|(name, value)| (name.unwrap_or(header::TRAILER), HeaderValue::from_static(value))),
            );
            let body = Full::new(Bytes::from(framed)).with_trailers(async { Some(Ok(trailers)) });
            let mut response = Response::new(body.boxed());
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            response
        }
    }
}

fn refuse(protocol: Protocol, code: u16, headers: &[(&'static str, String)]) -> Response<Body> {
    let mut response = Response::new(Empty::new().boxed());
    *response.headers_mut() = map(headers);
    match protocol {
        Protocol::Http => *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::OK),
        // A trailers-only answer has them as headers.
        Protocol::Grpc => {
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            response.headers_mut().insert("grpc-status", HeaderValue::from(code));
        }
    }
    response
}

fn page(code: u16, kind: &'static str) -> Response<Body> {
    let mut response = Response::new(Empty::new().boxed());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::OK);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn refuse_late(code: u16, trailers: &[(&'static str, String)]) -> Response<Body> {
    let mut trailers = map(trailers);
    trailers.insert("grpc-status", HeaderValue::from(code));
    let mut response = Response::new(Empty::new().with_trailers(async { Some(Ok(trailers)) }).boxed());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

fn map(headers: &[(&'static str, String)]) -> HeaderMap {
    let value = |text: &str| HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""));
    headers.iter().map(|(name, text)| (HeaderName::from_static(name), value(text))).collect()
}

impl Received {
    fn take(
        &mut self,
        protocol: Protocol,
        head: &http::request::Parts,
        body: &[u8],
        is_logs: bool,
    ) -> Result<(), String> {
        let message = match protocol {
            Protocol::Http => http_message(head, body)?,
            Protocol::Grpc => grpc_message(head, body)?,
        };
        let wrong = |why: prost::DecodeError| format!("no message: {why}");
        if is_logs {
            for of in ExportLogsServiceRequest::decode(message).map_err(wrong)?.resource_logs {
                self.take_resource(of.resource, &of.schema_url)?;
                for scope in of.scope_logs {
                    check_scope(scope.scope.as_ref())?;
                    scope.log_records.iter().try_for_each(check_record)?;
                    self.records.extend(scope.log_records);
                }
            }
            return Ok(());
        }
        for of in ExportTraceServiceRequest::decode(message).map_err(wrong)?.resource_spans {
            self.take_resource(of.resource, &of.schema_url)?;
            for scope in of.scope_spans {
                check_scope(scope.scope.as_ref())?;
                scope.spans.iter().try_for_each(check_span)?;
                self.spans.extend(scope.spans);
            }
        }
        self.check_parents()
    }

    fn take_resource(&mut self, resource: Option<Resource>, schema: &str) -> Result<(), String> {
        let resource = resource.ok_or("no resource")?;
        check_attributes(&resource.attributes)?;
        check(schema.starts_with("https://opentelemetry.io/schemas/"), || format!("schema {schema:?}"))?;
        let has = |key: &str| resource.attributes.iter().any(|it| it.key == key);
        check(has("service.name"), || "a resource without service.name".to_owned())?;
        self.resources.push(resource);
        Ok(())
    }

    /// Checks that each parent exists. All spans of a trace come in one request, so a missing parent never
    /// comes later. A trace that is sent again has the same ids. A caller's trace is left out: its root is
    /// the caller's, and each of our spans in it comes by itself. Only such spans have flags.
    fn check_parents(&self) -> Result<(), String> {
        for (trace, spans) in self.traces() {
            if spans.iter().all(|span| span.flags != 0) {
                continue;
            }
            let ids: BTreeSet<&[u8]> = spans.iter().map(|span| &*span.span_id).collect();
            let roots: BTreeSet<&[u8]> = spans
                .iter()
                .filter(|span| span.parent_span_id.is_empty())
                .map(|span| &*span.span_id)
                .collect();
            check(roots.len() == 1, || format!("trace {trace:02x?} has {} roots", roots.len()))?;
            let orphan = spans
                .iter()
                .find(|span| !span.parent_span_id.is_empty() && !ids.contains(&*span.parent_span_id));
            check(orphan.is_none(), || format!("no parent: {orphan:?}"))?;
        }
        Ok(())
    }

    /// Returns the spans by their trace.
    #[must_use]
    pub fn traces(&self) -> BTreeMap<Vec<u8>, Vec<&Span>> {
        let mut traces: BTreeMap<Vec<u8>, Vec<&Span>> = BTreeMap::new();
        for span in &self.spans {
            traces.entry(span.trace_id.clone()).or_default().push(span);
        }
        traces
    }
}
