//! The lowest rung: the end of network namespaces and the addresses in them, by rtnetlink, where the kernel has
//! neither kprobes nor fentry.
//!
//! The kernel tells of the end of those namespaces that have an id in ours, and, to a socket that asks for it, of
//! the addresses in them, with that id. So each namespace of which the engine asks that it be watched is given
//! one; that does not hold it. What has none ends silently, and what was set before it had one is listed, not seen.
//!
//! * A namespace's end is told when its teardown begins, which is when its last reference is gone; with many at
//!   once the later ones wait for the earlier ones' teardown.
//! * A namespace loses its id before its devices go, so its addresses go without a word: they end with it.
//!
//! To find a namespace means to look through the node's mounts and processes. Those that are asked about are looked for
//! together, and as seldom as it takes to keep the thread idle most of the time, whoever makes namespaces and how many.
//!
//! It works on a thread of its own, since requests wait for the kernel's rtnetlink lock, which the teardown of
//! many devices holds for long.
//!
//! **Invariant:** what is told with an id is told about the namespace that had the id then.

mod ask;
mod known;
mod life;
mod namespace;
mod socket;
mod waiting;
mod watch;
mod wire;

use std::{
    future, io, iter,
    os::fd::AsFd as _,
    path::PathBuf,
    thread::{self, JoinHandle},
};

use tokio::{runtime, time};
use tracing::warn;

use self::{ask::Asker, watch::Watch};
use crate::{
    model::{change::Question, fact::Loss},
    source::{
        channel::{Asks, BatchSender, CancellationToken, Closed},
        clock,
        lack::Lack,
        ready::Ready,
    },
};

/// For some ten thousand notifications: a node's worth of pods that end at once.
const ROOM: usize = 8 << 20;

/// Ready to listen; it listens from here on, though nothing is read before it runs.
#[derive(Debug)]
pub struct Netlink {
    listener: socket::Listener,
    asker: Asker,
    root: PathBuf,
}

/// Why there is no netlink source here.
#[derive(Debug, thiserror::Error)]
#[error("netlink is not available: cannot {what}")]
pub struct Unavailable {
    what: &'static str,
    #[source]
    source: io::Error,
}

impl Unavailable {
    fn new(what: &'static str, source: impl Into<io::Error>) -> Self {
        Self { what, source: source.into() }
    }

    /// What would make it available.
    #[must_use]
    pub(crate) fn lack(&self) -> Option<Lack> {
        (self.source.kind() == io::ErrorKind::PermissionDenied).then_some(Lack::Netlink)
    }
}

impl Netlink {
    /// `root` is where the node's file system is seen, for finding namespaces in its `/proc` and `/run`.
    pub fn open(root: PathBuf) -> Result<Self, Unavailable> {
        Self::with_room(root, ROOM)
    }

    /// With so many bytes of the kernel's memory for notifications that are still to be read.
    pub fn with_room(root: PathBuf, room: usize) -> Result<Self, Unavailable> {
        let (listener, asker) = (socket::Listener::open(room)?, socket::Asker::open()?);
        // Without the right to give a namespace an id, nothing would be told of any.
        let mut asker = Asker::new(asker);
        asker.may_name().map_err(|error| Unavailable::new("give other namespaces an id", error))?;
        Ok(Self { listener, asker, root })
    }

    /// Begins to answer `Question::Watch` and to tell what is notified, until `stop`.
    pub fn start(self, feed: BatchSender, asks: Asks, stop: CancellationToken) -> io::Result<JoinHandle<()>> {
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        thread::Builder::new().name("netlink".to_owned()).spawn(move || {
            if let Err(error) = runtime.block_on(self.run(&feed, asks, stop)) {
                warn!(%error, "netlink source ended");
            }
        })
    }

    async fn run(self, feed: &BatchSender, mut asks: Asks, mut stop: CancellationToken) -> io::Result<()> {
        let Self { mut listener, asker, root } = self;
        let ready = Ready::new(listener.as_fd())?;
        let mut watch = Watch::new(asker, root)?;
        loop {
            let mut heard = watch.read(&mut listener);
            // Only then does it sleep until something is notified, and knows when that was.
            let idle = matches!(heard, Ok(true)) && watch.has_nothing_to_say();
            let (resync, look) = (watch.resync_due(), watch.look_due());
            tokio::select! {
                () = stop.requested() => break,
                question = asks.next() => match question {
                    Some(question) => {
                        let others = iter::from_fn(|| asks.try_next());
                        for question in iter::once(question).chain(others) {
                            if let Question::Watch { netns, by } = question {
                                watch.ask(netns, by);
                            }
                        }
                        watch.refused(asks.refused());
                    }
                    None => break,
                },
                () = sleep_until(look) => watch.look(&mut listener),
                () = sleep_until(resync) => watch.resync(&mut listener),
                readable = ready.wait(), if idle => match readable {
                    Ok(mut readable) => {
                        watch.woke();
                        readable.clear_ready();
                    }
                    Err(error) => heard = Err(error),
                },
                () = future::ready(()), if !idle => {}
            };
            if heard.is_err() {
                watch.lost(clock::now(), Loss::NetlinkSocket);
            }
            if let Err(Closed) = feed.send(watch.take()).await {
                return Ok(());
            }
            heard?;
        }
        watch.read(&mut listener)?;
        // If the agent is gone, nobody is left to be told so.
        feed.send(watch.take()).await.ok();
        Ok(())
    }
}

async fn sleep_until(deadline: Option<time::Instant>) {
    match deadline {
        Some(deadline) => time::sleep_until(deadline).await,
        None => future::pending().await,
    }
}
