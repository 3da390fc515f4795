//! The HTTP server: metrics for Prometheus, the page for browsers, the API for sandprobe's own commands.
//!
//! The server has its own thread and tokio runtime. The agent's loop copies the parts of the engine's state
//! that the server needs; events come from a ring. So no number of clients delays the loop.
//!
//! **Invariant:** everything that clients can use up has a bound: connections, time, bytes, requests to the
//! loop.

mod api;
pub(crate) mod app_state;
mod connection;
pub mod detached;
mod docs;
pub(crate) mod guard;
mod handler;
mod health;
pub(crate) mod listen;
mod openapi;
mod page;
mod query;
pub(crate) mod reload;
mod reply;
mod response_budget;
pub(crate) mod ring;
mod route;
mod seats;
pub(crate) mod shut;
mod stream;
pub(crate) mod tls;

use std::{io, net::TcpListener, pin::Pin, sync::Arc, thread, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net,
    runtime::{self, Runtime},
    sync::{oneshot, watch},
    time,
};
use tracing::{debug, warn};

use self::{
    app_state::{AppState, ServerConfig},
    connection::Limits,
    guard::{Guard, Peer},
    listen::Socket,
    reload::Reload,
    seats::{Origin, Seat, Seats},
    shut::{RETRY_INTERVAL, Shut, ShutPort, ShutSocket},
    tls::Tls,
};
use crate::sink::{net::loop_queue::Client, verdict::Judge};

/// The maximum number of connections at one time, over the network and over the socket. The two limits are
/// separate, so that neither can use up the other.
const NETWORK: seats::Limits =
    seats::Limits { total: 256, reserved: 32, per_address: 64, followers: 32, followers_per_client: 8 };
const SOCKET: seats::Limits =
    seats::Limits { total: 64, reserved: 0, per_address: 64, followers: 32, followers_per_client: 32 };
/// How long to wait if the process cannot accept another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long connections may take to end when the agent ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Where the server listens, and which clients it answers.
#[derive(Default)]
pub(crate) struct Listeners {
    pub(crate) network: Option<TcpListener>,
    /// TLS for the network, if it is configured.
    pub(crate) tls: Option<Tls>,
    pub(crate) socket: Option<Socket>,
    /// The listeners that another process held, which are tried again.
    pub(crate) shut: Shut,
    pub(crate) guard: Guard,
    /// Reads the certificate, the key and the token again when their files change.
    pub(crate) reload: Reload,
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    end: watch::Sender<bool>,
    ended: oneshot::Receiver<()>,
}

impl Server {
    /// Starts the server's thread. Also returns the judge that gives the verdict.
    pub(crate) fn start(
        listeners: Listeners,
        config: ServerConfig,
        client: &Client,
    ) -> io::Result<(Self, Arc<Judge>)> {
        let (end, ending) = watch::channel(false);
        let (done, ended) = oneshot::channel();
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let app = Arc::new(AppState::new(config, client, ending.clone()));
        let judge = Arc::clone(&app.judge);
        thread::Builder::new().name("serve".to_owned()).spawn(move || {
            run(&runtime, listeners, app, ending);
            runtime.shutdown_background();
            done.send(()).ok();
        })?;
        Ok((Self { end, ended }, judge))
    }

    /// Ends streams and connections, and returns when that is done.
    pub(crate) async fn finish(self) {
        self.end.send_replace(true);
        self.ended.await.ok();
    }
}

fn run(runtime: &Runtime, listeners: Listeners, app: Arc<AppState>, mut end: watch::Receiver<bool>) {
    let Listeners { network, tls, mut socket, mut shut, guard, reload: _ } = listeners;
    let guard = Arc::new(guard);
    let (busy, mut idle) = watch::channel(());
    runtime.block_on(async {
        let context = ConnectionContext { app, guard, busy };
        if let Some(listener) = network {
            context.clone().serve_port(listener, tls.clone());
        }
        if let Some(socket) = &mut socket {
            context.clone().serve_socket(socket);
        }
        while !shut.is_empty() && time::timeout(RETRY_INTERVAL, over(&mut end)).await.is_err() {
            match shut.port.take().map(ShutPort::open) {
                Some(Ok(listener)) => {
                    warn!("listening on the port now, which another process had");
                    context.clone().serve_port(listener, tls.clone());
                }
                Some(Err(taken)) => shut.port = Some(taken),
                None => {}
            }
            match shut.socket.take().map(ShutSocket::open) {
                Some(Ok(opened)) => {
                    warn!("listening on the socket now, which another process had");
                    context.clone().serve_socket(socket.insert(opened));
                }
                Some(Err(taken)) => shut.socket = Some(taken),
                None => {}
            }
        }
        drop(context);
        over(&mut end).await;
        // Each open connection holds the other end of this channel.
        time::timeout(SHUTDOWN_TIMEOUT, async { while idle.changed().await.is_ok() {} }).await.ok();
    });
}

/// Returns when the agent ends.
async fn over(end: &mut watch::Receiver<bool>) {
    end.wait_for(|end| *end).await.ok();
}

fn taken<T>(listener: io::Result<T>) -> Option<T> {
    listener.map_err(|error| warn!(%error, "cannot listen")).ok()
}

async fn over_tcp(
    listener: net::TcpListener,
    tls: Option<Tls>,
    seats: Arc<Seats>,
    context: ConnectionContext,
) {
    let accept = async move || {
        let (stream, peer) = listener.accept().await?;
        let origin = Origin::new(peer.ip(), stream.local_addr()?.ip());
        Ok((stream, origin))
    };
    context
        .serve(accept, seats, move |stream, seat, context| {
            Box::pin(over_network(stream, tls.clone(), seat, context))
        })
        .await;
}

async fn over_socket(listener: net::UnixListener, seats: Arc<Seats>, context: ConnectionContext) {
    let accept = async move || listener.accept().await.map(|(stream, _)| (stream, Origin::SOCKET));
    context
        .serve(accept, seats, |stream, seat, context| {
            Box::pin(context.connection(stream, seat, Peer::Socket))
        })
        .await;
}

/// Serves one network connection. Each connection has its own task, so that a slow handshake delays no other.
async fn over_network(stream: net::TcpStream, tls: Option<Tls>, seat: Seat, context: ConnectionContext) {
    let is_loopback = stream.peer_addr().is_ok_and(|peer| peer.ip().to_canonical().is_loopback());
    let Some(tls) = tls else {
        return context.connection(stream, seat, Peer::Network { has_certificate: false, is_loopback }).await;
    };
    // A client that fails the handshake gets no response.
    let Ok(Ok(stream)) = time::timeout(HANDSHAKE, tls.current().accept(stream)).await else { return };
    let has_certificate = stream.get_ref().1.peer_certificates().is_some_and(|chain| !chain.is_empty());
    context.connection(stream, seat, Peer::Network { has_certificate, is_loopback }).await;
}

/// The state that all connections share.
#[derive(Clone)]
struct ConnectionContext {
    app: Arc<AppState>,
    guard: Arc<Guard>,
    busy: watch::Sender<()>,
}

impl ConnectionContext {
    fn serve_port(self, listener: TcpListener, tls: Option<Tls>) {
        if let Some(listener) = taken(net::TcpListener::from_std(listener)) {
            tokio::spawn(over_tcp(listener, tls, Seats::new(NETWORK), self));
        }
    }

    fn serve_socket(self, socket: &mut Socket) {
        if let Some(listener) = socket.take().and_then(|it| taken(net::UnixListener::from_std(it))) {
            tokio::spawn(over_socket(listener, Seats::new(SOCKET), self));
        }
    }

    /// Accepts connections until the agent ends. When no seat is left, another connection is closed for the
    /// new one.
    async fn serve<S: Send + 'static>(
        self,
        accept: impl AsyncFn() -> io::Result<(S, Origin)>,
        seats: Arc<Seats>,
        serve: impl Fn(S, Seat, Self) -> Serving,
    ) {
        let mut end = self.app.end.clone();
        loop {
            let accepted = tokio::select! {
                accepted = accept() => accepted,
                () = over(&mut end) => return,
            };
            match accepted {
                Ok((stream, origin)) => {
                    let Some((seat, left)) = seats.take(origin) else { continue };
                    let served = serve(stream, seat, self.clone());
                    tokio::spawn(async move {
                        tokio::select! {
                            () = served => {}
                            _ = left => debug!("a connection was closed to make room for another"),
                        }
                    });
                }
                Err(error) => {
                    debug!(%error, "cannot accept");
                    time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn connection(self, stream: impl AsyncRead + AsyncWrite + Unpin, seat: Seat, peer: Peer) {
        let Self { app, guard, busy } = self;
        connection::serve(stream, app, guard, (peer, seat), Limits::default()).await;
        drop(busy);
    }
}

/// The future that serves a connection.
type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

#[cfg(test)]
mod tests;
