//! A runtime for tests: gRPC over HTTP/2 at a Unix socket, as far as the session uses it.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    path::Path,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderMap, HeaderValue, Request, Response};
use hyper::{
    body::{Body, Bytes, Frame, Incoming},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::{
    net::UnixListener,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinSet,
    time,
};

use crate::source::cri::message::{
    Container, Containers, Event, Sandboxes, Status, StatusRequest, StatusResponse, Version,
};

/// How `GetContainerEvents` behaves.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stream {
    Lasts,
    Unimplemented,
    EndsAtOnce,
}

/// A running server. It ends with its connections when it is dropped.
pub(super) struct Fake {
    state: Arc<State>,
    server: tokio::task::JoinHandle<()>,
}

struct State {
    version: Version,
    /// The state and the exit code of each container.
    containers: Mutex<BTreeMap<String, (i32, i32)>>,
    streams: Mutex<(Stream, Vec<UnboundedSender<Frame<Bytes>>>)>,
    hangs: AtomicBool,
    connections: AtomicUsize,
    /// Events that no client has taken yet.
    waiting: Arc<AtomicUsize>,
    calls: Mutex<BTreeSet<String>>,
}

/// A body whose frames come from a channel.
struct Frames(UnboundedReceiver<Frame<Bytes>>, Arc<AtomicUsize>);

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = self.0.poll_recv(context);
        if let Poll::Ready(Some(_)) = &frame {
            self.1.fetch_sub(1, Ordering::Relaxed);
        }
        frame.map(|frame| frame.map(Ok))
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.1.store(0, Ordering::Relaxed);
    }
}

impl Fake {
    pub(super) fn start(socket: &Path, name: &str, version: &str) -> Self {
        std::fs::remove_file(socket).ok();
        let listener = UnixListener::bind(socket).expect("a socket");
        let state = Arc::new(State {
            version: Version { name: name.to_owned(), version: version.to_owned() },
            containers: Mutex::default(),
            streams: Mutex::new((Stream::Lasts, Vec::new())),
            hangs: AtomicBool::default(),
            connections: AtomicUsize::default(),
            waiting: Arc::default(),
            calls: Mutex::default(),
        });
        let server = tokio::spawn(serve(listener, Arc::clone(&state)));
        Self { state, server }
    }

    pub(super) fn contains(&self, id: &str, state: i32, code: i32) {
        self.state.containers.lock().expect("no panic").insert(id.to_owned(), (state, code));
    }

    pub(super) fn hangs(&self, hangs: bool) {
        self.state.hangs.store(hangs, Ordering::Relaxed);
    }

    pub(super) fn streams(&self, stream: Stream) {
        self.state.streams.lock().expect("no panic").0 = stream;
    }

    /// Sends an event to all streams.
    pub(super) fn tells(&self, id: &str, kind: i32) {
        let frame = || Frame::data(framed(&Event { id: id.to_owned(), kind }));
        for stream in self.state.streams.lock().expect("no panic").1.iter().filter(|it| !it.is_closed()) {
            self.state.waiting.fetch_add(1, Ordering::Relaxed);
            stream.send(frame()).ok();
        }
    }

    /// Waits for a stream.
    pub(super) async fn opened(&self) {
        self.wait(|state| !state.streams.lock().expect("no panic").1.is_empty()).await;
    }

    /// Waits until every event was taken.
    pub(super) async fn taken(&self) {
        self.wait(|state| state.waiting.load(Ordering::Relaxed) == 0).await;
    }

    async fn wait(&self, is_so: impl Fn(&State) -> bool) {
        let wait = async {
            while !is_so(&self.state) {
                time::sleep(Duration::from_millis(5)).await;
            }
        };
        time::timeout(super::LIMIT, wait).await.expect("in time");
    }

    pub(super) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }

    pub(super) fn calls(&self) -> BTreeSet<String> {
        self.state.calls.lock().expect("no panic").clone()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: UnixListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        state.connections.fetch_add(1, Ordering::Relaxed);
        let state = Arc::clone(&state);
        let service = service_fn(move |request| answer(Arc::clone(&state), request));
        let connection =
            http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
        connections.spawn(async move { connection.await.ok() });
    }
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Frames>, Infallible> {
    let call = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    let question = read(request.into_body()).await;
    state.calls.lock().expect("no panic").insert(call.clone());
    while state.hangs.load(Ordering::Relaxed) && call != "GetContainerEvents" {
        time::sleep(Duration::from_millis(5)).await;
    }
    let (sends, frames) = unbounded_channel();
    let containers = state.containers.lock().expect("no panic").clone();
    let mut status = 0;
    let message = match call.as_str() {
        "Version" => Some(framed(&state.version)),
        "ListPodSandbox" => Some(framed(&Sandboxes::default())),
        "ListContainers" => {
            let items = containers.iter().map(|(id, (state, _))| Container {
                id: id.clone(),
                state: *state,
                ..Container::default()
            });
            Some(framed(&Containers { items: items.collect() }))
        }
        "ContainerStatus" => {
            let asked = StatusRequest::decode(question.get(5..).unwrap_or_default()).expect("a question");
            let found = containers.get(&asked.id);
            let status = found.map(|(state, code)| Status { state: *state, exit_code: *code });
            Some(framed(&StatusResponse { status }))
        }
        "GetContainerEvents" => {
            let mut streams = state.streams.lock().expect("no panic");
            match streams.0 {
                Stream::Lasts => {
                    streams.1.push(sends);
                    return Ok(response(Frames(frames, Arc::clone(&state.waiting))));
                }
                Stream::Unimplemented => status = 12,
                Stream::EndsAtOnce => {}
            }
            None
        }
        _ => {
            status = 12;
            None
        }
    };
    message.into_iter().for_each(|message| drop(sends.send(Frame::data(message))));
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", status.into());
    if status != 0 {
        // It is not base64.
        trailers.insert("grpc-status-details-bin", HeaderValue::from_static("!"));
    }
    sends.send(Frame::trailers(trailers)).ok();
    Ok(response(Frames(frames, Arc::new(AtomicUsize::new(usize::MAX)))))
}

fn response(body: Frames) -> Response<Frames> {
    Response::builder().header("content-type", "application/grpc").body(body).expect("a response")
}

async fn read(mut body: Incoming) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(Ok(frame)) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
    {
        all.extend(frame.data_ref().into_iter().flatten());
    }
    all
}

/// A message with gRPC's prefix: not compressed, and its length.
fn framed(message: &impl Message) -> Bytes {
    let length = u32::try_from(message.encoded_len()).expect("a short message");
    let mut bytes = vec![0];
    bytes.extend(length.to_be_bytes());
    bytes.extend(message.encode_to_vec());
    bytes.into()
}
