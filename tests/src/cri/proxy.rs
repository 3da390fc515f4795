//! A proxy at the socket of a runtime. It passes everything on except one event that a test chooses, in one
//! stream or in several. So an agent misses an event of the runtime.

use std::{
    convert::Infallible,
    fs,
    os::unix::net::UnixListener as StdListener,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    thread::{self, JoinHandle},
};

use anyhow::{Context as _, Result, anyhow};
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Empty, combinators::BoxBody};
use hyper::{
    body::{Body, Bytes, Frame, Incoming},
    client::conn::http2 as client,
    server::conn::http2 as server,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::oneshot,
    task::JoinSet,
};

use super::message::event::{ContainerEvent, ContainerEventType};

/// The bytes before each message of gRPC: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// A running proxy. When it is dropped, the runtime has its socket back.
pub struct Proxy {
    socket: PathBuf,
    /// The runtime's own socket, under another name meanwhile.
    real: PathBuf,
    sieve: Arc<Sieve>,
    ends: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The event to withhold.
#[derive(Default)]
struct Sieve {
    wanted: Mutex<Option<ContainerEvent>>,
    withheld: Mutex<Vec<ContainerEvent>>,
    /// The number of requests for the events.
    streams: AtomicUsize,
}

impl Sieve {
    fn holds(&self, event: &ContainerEvent) -> bool {
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = wanted.as_ref() == Some(event);
        if is_it {
            self.withheld.lock().unwrap_or_else(PoisonError::into_inner).push(event.clone());
        }
        is_it
    }
}

impl Proxy {
    /// Takes the place of the runtime at this socket.
    pub fn start(socket: &Path) -> Result<Self> {
        let real = socket.with_extension("real");
        fs::rename(socket, &real).with_context(|| format!("move {}", socket.display()))?;
        let sieve = Arc::<Sieve>::default();
        let (ends, ended) = oneshot::channel();
        let mut proxy = Self {
            socket: socket.to_owned(),
            real: real.clone(),
            sieve: Arc::clone(&sieve),
            ends: Some(ends),
            thread: None,
        };
        // From here on the guard moves it back.
        let listener = StdListener::bind(socket).with_context(|| format!("bind {}", socket.display()))?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let serve = move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = ended => {}
                    served = serve(listener, real, sieve) => drop(served),
                }
            });
        };
        proxy.thread = Some(thread::Builder::new().name("proxy".to_owned()).spawn(serve)?);
        Ok(proxy)
    }

    /// Withholds this event of a container from all clients from now on.
    pub fn withhold(&self, container: &str, kind: ContainerEventType) {
        let event = ContainerEvent { container_id: container.to_owned(), kind: kind.into() };
        *self.sieve.wanted.lock().unwrap_or_else(PoisonError::into_inner) = Some(event);
    }

    /// Returns the events that were withheld, one for each stream.
    #[must_use]
    pub fn withheld(&self) -> Vec<ContainerEvent> {
        self.sieve.withheld.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often somebody asked for the events.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.sieve.streams.load(Ordering::Relaxed)
    }

    /// Ends all connections and gives the runtime its socket back.
    pub fn stop(mut self) -> Result<()> {
        self.withdraw()
    }

    fn withdraw(&mut self) -> Result<()> {
        if let Some(ends) = self.ends.take() {
            // The thread may have ended by itself.
            ends.send(()).ok();
            let ended = self.thread.take().map_or(Ok(()), JoinHandle::join);
            fs::rename(&self.real, &self.socket).with_context(|| format!("move {}", self.real.display()))?;
            ended.map_err(|_panic| anyhow!("the proxy panicked"))?;
        }
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // An error in drop cannot be reported. `stop` reports errors.
        self.withdraw().ok();
    }
}

async fn serve(listener: StdListener, real: PathBuf, sieve: Arc<Sieve>) -> Result<()> {
    let listener = UnixListener::from_std(listener)?;
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        let (real, sieve) = (real.clone(), Arc::clone(&sieve));
        connections.spawn(async move { connection(stream, &real, &sieve).await.ok() });
    }
}

/// Serves a client through its own connection to the runtime. Each connection ends with the other.
async fn connection(stream: UnixStream, real: &Path, sieve: &Arc<Sieve>) -> Result<()> {
    let onward = TokioIo::new(UnixStream::connect(real).await?);
    let (runtime, driver) = client::handshake(TokioExecutor::new(), onward).await?;
    let service = service_fn(|request| {
        let (mut runtime, sieve) = (runtime.clone(), Arc::clone(sieve));
        async move {
            let answer = pass_on(&mut runtime, request, sieve).await;
            Ok::<_, Infallible>(answer.unwrap_or_else(|_lost| unavailable()))
        }
    });
    let clients = server::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        ended = driver => ended?,
        ended = clients => ended?,
    }
    Ok(())
}

async fn pass_on(
    runtime: &mut client::SendRequest<Incoming>,
    request: Request<Incoming>,
    sieve: Arc<Sieve>,
) -> hyper::Result<Response<BoxBody<Bytes, hyper::Error>>> {
    let is_of_events = request.uri().path().ends_with("/GetContainerEvents");
    if is_of_events {
        sieve.streams.fetch_add(1, Ordering::Relaxed);
    }
    let answer = runtime.send_request(request).await?;
    Ok(answer.map(|body| {
        if is_of_events { Sieved { body, begun: Vec::new(), sieve }.boxed() } else { body.boxed() }
    }))
}

/// Returns the answer of gRPC if nobody answers.
fn unavailable() -> Response<BoxBody<Bytes, hyper::Error>> {
    const UNAVAILABLE: HeaderValue = HeaderValue::from_static("14");
    let mut answer = Response::new(Empty::new().map_err(|never| match never {}).boxed());
    answer.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    answer.headers_mut().insert("grpc-status", UNAVAILABLE);
    answer
}

/// A stream of events without the one that is withheld.
struct Sieved {
    body: Incoming,
    /// The begin of an incomplete message.
    begun: Vec<u8>,
    sieve: Arc<Sieve>,
}

impl Sieved {
    /// Returns the complete messages received so far, without the withheld one.
    fn pass(&mut self, data: &[u8]) -> Vec<u8> {
        self.begun.extend_from_slice(data);
        let mut passed = Vec::new();
        while let Some(prefix) = self.begun.first_chunk::<PREFIX>() {
            let [_, length @ ..] = *prefix;
            let end = PREFIX + u32::from_be_bytes(length) as usize;
            if self.begun.len() < end {
                break;
            }
            let rest = self.begun.split_off(end);
            let message = std::mem::replace(&mut self.begun, rest);
            let event = ContainerEvent::decode(&message[PREFIX..]);
            if !event.is_ok_and(|event| self.sieve.holds(&event)) {
                passed.extend(message);
            }
        }
        passed
    }
}

impl Body for Sieved {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        loop {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other),
            };
            match frame.into_data() {
                Ok(data) => {
                    let passed = self.pass(&data);
                    if !passed.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(passed.into()))));
                    }
                }
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
    }
}
