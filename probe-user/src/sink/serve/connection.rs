//! One connection: its limits of time and size, and the response to each request.
//!
//! The write deadline is implemented here, because hyper limits only the time for the head of a request, and
//! not the time in which a client reads its response.

use std::{
    convert::Infallible,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response};
use hyper::{
    body::{Body, Bytes, Frame, Incoming, SizeHint},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{self, Instant, Sleep},
};

use super::{
    app_state::AppState,
    guard::{Guard, Peer},
    handler, over,
    reply::{ApiError, Reply},
    route,
    seats::{Answering, Seat},
};

/// The longest head of a request, bytes. Also the size of the buffer for a response that the client does not
/// read.
const MAX_HEAD: usize = 16 << 10;
/// The maximum number of headers of a request.
const MAX_HEADERS: usize = 64;
/// How long making a response may take.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// How many bytes the client must read (or all that wait) before the deadline starts again. A byte now and
/// then is not enough.
const MIN_READ: usize = 16 << 10;
/// How long a response may still take when the agent ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// The time limits of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The time for the head of a request, from the connection or from the previous response.
    pub(super) head: Duration,
    /// The time without reading enough of a response.
    pub(super) stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { head: Duration::from_secs(10), stall: Duration::from_secs(60) }
    }
}

/// Serves a connection until the client is done, a limit is exceeded, or the agent ends.
pub(super) async fn serve(
    io: impl AsyncRead + AsyncWrite + Unpin,
    app: Arc<AppState>,
    guard: Arc<Guard>,
    (peer, seat): (Peer, Seat),
    limits: Limits,
) {
    let mut end = app.end.clone();
    let seat = Arc::new(seat);
    let service = service_fn(|request: Request<Incoming>| {
        let app = Arc::clone(&app);
        let guard = Arc::clone(&guard);
        let seat = Arc::clone(&seat);
        async move {
            let answering = seat.answers();
            let response = respond(&app, &guard, (peer, &seat), &request).await;
            Ok::<_, Infallible>(response.map(|reply| Held { reply, _answering: answering }))
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(WriteDeadline::new(io, Arc::clone(&seat), limits.stall)), service);
    let mut served = std::pin::pin!(served);
    tokio::select! {
        // An error on the connection concerns its client alone.
        _ = &mut served => {}
        () = over(&mut end) => {
            served.as_mut().graceful_shutdown();
            time::timeout(SHUTDOWN_TIMEOUT, served).await.ok();
        }
    }
}

async fn respond(
    app: &Arc<AppState>,
    guard: &Guard,
    (peer, seat): (Peer, &Arc<Seat>),
    request: &Request<Incoming>,
) -> Response<Reply> {
    let answered = async {
        let path = request.uri().path();
        let route = route::check(request.method(), request.headers(), path)?;
        guard.admits(peer, route, request.uri(), request.headers())?;
        let answer = time::timeout(ANSWER_TIME, handler::answer(app, seat, route, request)).await;
        let answer = answer.unwrap_or(Err(ApiError::Timeout))?;
        // A response that is built into the program needs no further memory.
        if route.is_fixed() { Ok(answer) } else { app.budget(peer).hold(answer) }
    };
    answered.await.unwrap_or_else(|error| error.response())
}

/// A response. Its connection counts as busy until the client has read all of it.
struct Held {
    reply: Reply,
    _answering: Answering,
}

impl Body for Held {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Pin::new(&mut self.reply).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.reply.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.reply.size_hint()
    }
}

/// A stream whose writes fail once its client has read too little for too long.
struct WriteDeadline<S> {
    stream: S,
    /// Learns when the client reads.
    seat: Arc<Seat>,
    /// When a waiting write fails.
    due: Pin<Box<Sleep>>,
    waits: bool,
    /// Bytes read since the write began to wait.
    taken: usize,
    longest: Duration,
}

impl<S> WriteDeadline<S> {
    fn new(stream: S, seat: Arc<Seat>, longest: Duration) -> Self {
        Self { stream, seat, due: Box::pin(time::sleep(longest)), waits: false, taken: 0, longest }
    }

    fn bounded<T>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.waits = false;
            return polled;
        }
        if !self.waits {
            self.waits = true;
            self.taken = 0;
            self.due.as_mut().reset(Instant::now() + self.longest);
        }
        self.due.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteDeadline<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteDeadline<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(n)) = &polled {
            self.taken = self.taken.saturating_add(*n);
            self.seat.has_taken();
            if self.waits && self.taken < MIN_READ {
                return polled;
            }
        }
        self.bounded(context, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.bounded(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.bounded(context, polled)
    }
}
