//! The fallback for kernels with neither kprobes nor fentry: rtnetlink reports the end of network namespaces, and the
//! addresses in them.
//!
//! The kernel reports the end of namespaces that have an id in ours. To a socket that asks for it, it also reports
//! the addresses in them, with that id. So every namespace that the engine wants watched gets an id; an id does not
//! keep a namespace alive. A namespace without an id ends silently, and addresses that it had before are listed, not
//! seen as events.
//!
//! * The end of a namespace is reported when its teardown begins, after its last reference is gone. If many end at
//!   once, the later ones wait for the teardown of the earlier ones.
//!
//! * A namespace loses its id before its devices go, so the removal of its addresses is not reported: they end with
//!   it.
//!
//! To find a namespace, the node's mounts and processes have to be searched. So the wanted namespaces are searched
//! for together, and seldom enough that the thread is idle most of the time, however many namespaces are made.
//!
//! The source has a thread of its own, because requests wait for the kernel's rtnetlink lock, which the teardown of
//! many devices holds for long.
//!
//! **Invariant:** an event with an id is told of the namespace that had the id at that time.

mod client;
mod namespace;
mod nsid_table;
mod reported;
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

use self::{client::KernelClient, watch::Watch};
use crate::{
    model::{change::Question, fact::Loss},
    source::{
        channel::{BatchSender, CancellationToken, Closed, QuestionReceiver},
        clock,
        lack::Lack,
        ready::Ready,
    },
};

/// Bytes for some ten thousand notifications, when all pods of a node end at once.
const ROOM: usize = 8 << 20;

/// An open source. It listens from now on, although nothing is read before it runs.
#[derive(Debug)]
pub struct Netlink {
    listener: socket::Listener,
    client: KernelClient,
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

    /// How to make it available.
    #[must_use]
    pub(crate) fn lack(&self) -> Option<Lack> {
        (self.source.kind() == io::ErrorKind::PermissionDenied).then_some(Lack::Netlink)
    }
}

impl Netlink {
    /// `root` is where the node's root is mounted, to find namespaces in its `/proc` and `/run`.
    pub fn open(root: PathBuf) -> Result<Self, Unavailable> {
        Self::with_room(root, ROOM)
    }

    /// `room` is the size of the kernel's buffer for notifications, in bytes.
    pub fn with_room(root: PathBuf, room: usize) -> Result<Self, Unavailable> {
        let (listener, socket) = (socket::Listener::open(room)?, socket::RequestSocket::open()?);
        // Without the right to give a namespace an id, nothing would be reported.
        let mut client = KernelClient::new(socket);
        client.may_name().map_err(|error| Unavailable::new("give other namespaces an id", error))?;
        Ok(Self { listener, client, root })
    }

    /// Answers `Question::Watch` and tells what is notified, until `stop`.
    pub fn start(
        self,
        feed: BatchSender,
        questions: QuestionReceiver,
        stop: CancellationToken,
    ) -> io::Result<JoinHandle<()>> {
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        thread::Builder::new().name("netlink".to_owned()).spawn(move || {
            if let Err(error) = runtime.block_on(self.run(&feed, questions, stop)) {
                warn!(%error, "netlink source ended");
            }
        })
    }

    async fn run(
        self,
        feed: &BatchSender,
        mut questions: QuestionReceiver,
        mut stop: CancellationToken,
    ) -> io::Result<()> {
        let Self { mut listener, client, root } = self;
        let ready = Ready::new(listener.as_fd())?;
        let mut watch = Watch::new(client, root)?;
        loop {
            let mut heard = watch.read(&mut listener);
            // Only then does it wait for the next notification, and so knows its time.
            let idle = matches!(heard, Ok(true)) && watch.has_nothing_to_say();
            let (resync, look) = (watch.resync_due(), watch.look_due());
            tokio::select! {
                () = stop.requested() => break,
                question = questions.next() => match question {
                    Some(question) => {
                        let others = iter::from_fn(|| questions.try_next());
                        for question in iter::once(question).chain(others) {
                            if let Question::Watch { netns, by } = question {
                                watch.ask(netns, by);
                            }
                        }
                        watch.refused(questions.refused());
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
        // If the agent is gone, nobody needs it.
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
