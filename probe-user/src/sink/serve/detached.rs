//! A server without listeners and without a node: it answers bytes with bytes, for a recording that was replayed. Fuzzing
//! needs no more of the outside.

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
        doctor::Report,
        loop_queue::{AgentView, queue},
        metrics::Metrics,
        state_writes::StateWrites,
        stream::StreamTrouble,
    },
};

/// The most bytes of a client that are taken, and of a response that wait for it.
const BUFFER: usize = 256 << 10;
/// How often everything that can go on does. A response takes a few of these turns, and a stream may never end.
const TURNS: usize = 64;

pub struct DetachedServer {
    runtime: Runtime,
    app: Arc<AppState>,
    guard: Arc<Guard>,
    _end: watch::Sender<bool>,
}

impl DetachedServer {
    /// A server as it is after this recording. Clients of the network need the token.
    pub fn start(mut recording: Reader<impl BufRead>, token: &str) -> io::Result<Self> {
        let header = recording.header().clone();
        let label = Label {
            node: header.node.clone(),
            boot_id: header.boot_id.clone(),
            boot_wall_ns: header.boot_wall_ns,
        };
        let (mut engine, mut ring, mut now) =
            (Engine::new(header.settings.clone()), Arc::new(Ring::default()), Timestamp::ZERO);
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

    /// What a client of the network gets for these bytes.
    pub fn over_network(&self, bytes: &[u8]) -> Vec<u8> {
        self.answer(Peer::Network { has_certificate: false, is_loopback: false }, bytes)
    }

    /// What a client of the Unix socket gets for these bytes.
    pub fn over_socket(&self, bytes: &[u8]) -> Vec<u8> {
        self.answer(Peer::Socket, bytes)
    }

    /// The client leaves when nothing more seems to come.
    fn answer(&self, peer: Peer, bytes: &[u8]) -> Vec<u8> {
        self.runtime.block_on(async {
            let (mut client, server) = duplex(BUFFER);
            let Some((seat, _left)) = Seats::new(seats::Limits::ONE).take(seats::Origin::SOCKET) else {
                return Vec::new();
            };
            let (app, guard) = (Arc::clone(&self.app), Arc::clone(&self.guard));
            let served = tokio::spawn(connection::serve(server, app, guard, (peer, seat), Limits::default()));
            // The server may be gone before all of it is written.
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
            // A stream behind which more requests wait sees that its client left when it next says that it lives.
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

/// Reads what is there, and waits for nothing.
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
