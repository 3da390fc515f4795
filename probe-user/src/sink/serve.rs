//! What the agent knows, over HTTP: for Prometheus, for people with a browser, and for sandprobe's own commands.
//!
//! The server has a thread and a runtime of its own. What it needs of the engine it asks of the agent's loop, which looks
//! and copies; the events it takes from a ring. So no client, and no number of them, holds up the loop.
//!
//! **Invariant:** everything that clients can take is bounded: connections, time, bytes, questions.

mod api;
pub mod ask;
mod connection;
pub mod door;
pub mod guard;
mod health;
pub mod house;
mod page;
mod query;
mod reply;
pub mod ring;
mod route;
mod stream;

use std::{io, net::TcpListener, sync::Arc, thread, time::Duration};

use tokio::{
    net,
    runtime::{self, Runtime},
    sync::{Semaphore, oneshot, watch},
    time,
};
use tracing::{debug, warn};

use self::{
    ask::{Asker, Asks},
    door::Socket,
    guard::{Guard, Peer},
    house::{Given, House},
};

/// So many connections over the network at one time, and over the socket: neither can take the other's.
const NETWORK: usize = 256;
const SOCKET: usize = 64;
/// How long to wait where the process has no room for another connection.
const BREATH: Duration = Duration::from_millis(100);
/// How long connections may take to end.
const LAST: Duration = Duration::from_secs(1);

/// Where to listen, and to whom.
#[derive(Default)]
pub struct Doors {
    pub network: Option<TcpListener>,
    pub socket: Option<Socket>,
    pub guard: Guard,
}

/// A server at work.
#[derive(Debug)]
pub struct Server {
    end: watch::Sender<bool>,
    ended: oneshot::Receiver<()>,
}

impl Server {
    /// Serves on a thread of its own. Gives what the agent's loop is to answer, too.
    pub fn start(doors: Doors, given: Given) -> io::Result<(Self, Asks)> {
        let (asker, asks) = ask::asks();
        let (end, ending) = watch::channel(false);
        let (done, ended) = oneshot::channel();
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("serve".to_owned()).spawn(move || {
            run(&runtime, doors, given, &asker, ending);
            runtime.shutdown_background();
            done.send(()).ok();
        })?;
        Ok((Self { end, ended }, asks))
    }

    /// Ends streams and connections; returns when that is done.
    pub async fn finish(self) {
        self.end.send_replace(true);
        self.ended.await.ok();
    }
}

fn run(runtime: &Runtime, doors: Doors, given: Given, asker: &Asker, mut end: watch::Receiver<bool>) {
    let Doors { network, mut socket, guard } = doors;
    let house = Arc::new(House::new(given, asker, end.clone()));
    let guard = Arc::new(guard);
    let (busy, mut idle) = watch::channel(());
    runtime.block_on(async {
        if let Some(listener) = network.and_then(|it| taken(net::TcpListener::from_std(it))) {
            let accept = async move || listener.accept().await.map(|(stream, _)| stream);
            let each = Each { house: Arc::clone(&house), guard: Arc::clone(&guard), busy: busy.clone() };
            tokio::spawn(each.serve(accept, NETWORK, Peer::Network { has_certificate: false }));
        }
        if let Some(listener) =
            socket.as_mut().and_then(Socket::take).and_then(|it| taken(net::UnixListener::from_std(it)))
        {
            let accept = async move || listener.accept().await.map(|(stream, _)| stream);
            let each = Each { house, guard, busy: busy.clone() };
            tokio::spawn(each.serve(accept, SOCKET, Peer::Socket));
        }
        drop(busy);
        over(&mut end).await;
        // Whoever still has a connection holds the other end of this.
        time::timeout(LAST, async { while idle.changed().await.is_ok() {} }).await.ok();
    });
}

/// Returns when the agent ends, or nobody is left to say so.
async fn over(end: &mut watch::Receiver<bool>) {
    end.wait_for(|end| *end).await.ok();
}

fn taken<T>(listener: io::Result<T>) -> Option<T> {
    listener.map_err(|error| warn!(%error, "cannot listen")).ok()
}

/// What each connection is given.
struct Each {
    house: Arc<House>,
    guard: Arc<Guard>,
    busy: watch::Sender<()>,
}

impl Each {
    /// Accepts until the agent ends. What is one too many is closed at once.
    async fn serve<S>(self, accept: impl AsyncFn() -> io::Result<S>, most: usize, peer: Peer)
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let room = Arc::new(Semaphore::new(most));
        let mut end = self.house.end.clone();
        loop {
            let accepted = tokio::select! {
                accepted = accept() => accepted,
                () = over(&mut end) => return,
            };
            match accepted {
                Ok(stream) => {
                    let Ok(place) = Arc::clone(&room).try_acquire_owned() else { continue };
                    let (house, guard) = (Arc::clone(&self.house), Arc::clone(&self.guard));
                    let busy = self.busy.clone();
                    tokio::spawn(async move {
                        connection::serve(stream, house, guard, peer).await;
                        drop((place, busy));
                    });
                }
                Err(error) => {
                    debug!(%error, "cannot accept");
                    time::sleep(BREATH).await;
                }
            }
        }
    }
}
