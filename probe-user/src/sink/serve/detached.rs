//! A server without listeners and without a node. It answers bytes with bytes, from the state after a
//! replayed recording. Fuzzing needs nothing else.

use std::{
    future::poll_fn,
    io::{self, BufRead},
    pin::Pin,
    sync::Arc,
    task::Poll,
};

use tokio::{
    io::{AsyncRead as _, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex},
    runtime::{self, Runtime},
    sync::watch,
    task::yield_now,
};

use super::{
    app_state::{AppState, ServerConfig},
    connection::{self, Limits},
    guard::{Guard, Peer, Token},
    ring::Ring,
    seats::{self, Seats},
};
use crate::{
    engine::Engine,
    model::{change::Output, time::Timestamp},
    recording::{Reader, history::History},
    sink::{
        Label, Sink as _,
        metrics::Metrics,
        net::loop_queue::{AgentView, queue},
        render::doctor::Report,
        state::state_writes::StateWrites,
        stream::StreamTrouble,
    },
};

/// The maximum number of bytes that are read from a client, and of a response that wait for it.
const BUFFER: usize = 256 << 10;
/// How often every task gets a turn. A response takes a few turns; a stream may never end.
const TURNS: usize = 64;

pub struct DetachedServer {
    runtime: Runtime,
    app: Arc<AppState>,
    guard: Arc<Guard>,
    _end: watch::Sender<bool>,
}

impl DetachedServer {
    /// Starts a server with the state after this recording. Network clients need the token.
    pub fn start(mut recording: Reader<impl BufRead>, token: &str) -> io::Result<Self> {
        let header = recording.header().clone();
        let label = Label {
            node: header.node.clone(),
            boot_id: header.boot_id.clone(),
            boot_wall_ns: header.boot_wall_ns,
        };
        let mut engine = Engine::new(header.settings.clone());
        let mut ring = Arc::new(Ring::default());
        let mut now = Timestamp::ZERO;
        while let Some(call) = recording.next_call().map_err(io::Error::other)? {
            now = call.at().map_or(now, |at| now.max(at));
            engine.call(call);
            while let Some(output) = engine.poll() {
                if let Output::Change(change) = output {
                    ring.on_change(&change, &label);
                }
            }
        }
        let config = ServerConfig {
            header,
            since: Timestamp::ZERO,
            report: Report::default(),
            past: History::default(),
            ring,
            metrics: Metrics::new(&[]),
            state_writes: StateWrites::default(),
            stream_trouble: StreamTrouble::default(),
        };
        let (client, mut requests) = queue();
        let (end, ending) = watch::channel(false);
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.spawn(async move {
            loop {
                requests.next().await(&AgentView {
                    engine: &engine,
                    label: &label,
                    now,
                    has_listed: true,
                    measure: &|| {},
                    process: &|| None,
                    netns_limit: None,
                });
            }
        });
        let token = Token::new(token).map_err(io::Error::other)?;
        let guard = Guard { token: Some(token), by_certificate: false, own_names_only: true };
        let app = Arc::new(AppState::new(config, &client, ending));
        Ok(Self { runtime, app, guard: Arc::new(guard), _end: end })
    }

    /// The answer to a network client that sends these bytes.
    pub fn over_network(&self, bytes: &[u8]) -> Vec<u8> {
        self.answer(Peer::Network { has_certificate: false, is_loopback: false }, bytes)
    }

    /// The answer to a client of the Unix socket that sends these bytes.
    pub fn over_socket(&self, bytes: &[u8]) -> Vec<u8> {
        self.answer(Peer::Socket, bytes)
    }

    /// Answers a client, which leaves when nothing more seems to come.
    fn answer(&self, peer: Peer, bytes: &[u8]) -> Vec<u8> {
        self.runtime.block_on(async {
            let (mut client, server) = duplex(BUFFER);
            let Some((seat, _left)) = Seats::new(seats::Limits::ONE).take(seats::Origin::SOCKET) else {
                return Vec::new();
            };
            let app = Arc::clone(&self.app);
            let guard = Arc::clone(&self.guard);
            let served = tokio::spawn(connection::serve(server, app, guard, (peer, seat), Limits::default()));
            // The server may be gone before all bytes are written.
            client.write_all(&bytes[..bytes.len().min(BUFFER)]).await.ok();
            let mut answer = Vec::new();
            for _ in 0..TURNS {
                yield_now().await;
                take(&mut client, &mut answer).await;
            }
            drop(client);
            for _ in 0..TURNS {
                yield_now().await;
            }
            // If more requests wait, a stream notices only at its next keep-alive that its client left.
            served.abort();
            if let Err(error) = served.await
                && let Ok(panicked) = error.try_into_panic()
            {
                std::panic::resume_unwind(panicked);
            }
            answer
        })
    }
}

/// Reads what is available without waiting.
async fn take(client: &mut DuplexStream, answer: &mut Vec<u8>) {
    poll_fn(|context| {
        loop {
            let mut bytes = [0; 4096];
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *client).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    answer.extend_from_slice(buffer.filled());
                }
                Poll::Ready(_) | Poll::Pending => return Poll::Ready(()),
            }
        }
    })
    .await;
}
