//! The fallback for kernels with neither kprobes nor fentry: rtnetlink reports the end of network namespaces,
//! and the addresses in them.
//!
//! The kernel reports the end of namespaces that have an id in ours. To a socket that asks for it, it also
//! reports the addresses in them, with that id. So every namespace that the engine wants watched gets an id;
//! an id does not keep a namespace alive. A namespace without an id ends silently, and addresses that it had
//! before are listed, not seen as events.
//!
//! * The end of a namespace is reported when its teardown begins, after its last reference is gone. If many
//!   end at once, the later ones wait for the teardown of the earlier ones.
//!
//! * A namespace loses its id before its devices go, so the removal of its addresses is not reported: they
//!   end with it.
//!
//! To find a namespace, the node's mounts and processes have to be searched. So the wanted namespaces are
//! searched for together, and rarely enough that the thread is idle most of the time, however many namespaces
//! are made.
//!
//! The source has a thread of its own, because requests wait for the kernel's rtnetlink lock, which the
//! teardown of many devices holds for a long time.
//!
//! If notifications cannot be read, the source keeps trying, and reports that its signals are not seen
//! meanwhile.
//!
//! **Invariant:** an event with an id is reported for the namespace that had the id at that time.

mod client;
mod namespace;
mod nsid_table;
mod outage;
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
    time::Duration,
};

use tokio::{runtime, time};

use self::{
    client::KernelClient,
    outage::Outage,
    socket::{Listener, RequestSocket},
    waiting::Asked,
    watch::Watch,
};
use crate::{
    model::{change::Question, fact::Attached},
    source::{
        node::{clock, missing_right::MissingRight},
        task::{
            channel::{BatchSender, CancellationToken, Closed, QuestionReceiver},
            ready::Ready,
            records_first::{RecordsFirst, Teller, records_first},
        },
    },
};

/// The size of the kernel's buffer, bytes. It holds some ten thousand notifications, when all pods of a node
/// end at once.
const ROOM: usize = 8 << 20;

/// An open source. It listens from now on, although nothing is read before it runs.
#[derive(Debug)]
pub struct Netlink {
    listener: Listener,
    client: KernelClient,
    root: PathBuf,
    /// The signals that it reports.
    signals: Vec<Attached>,
    /// Reports how far the notifications were read.
    teller: Teller,
    told: RecordsFirst,
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

    /// Returns the missing requirement, if one could be granted.
    #[must_use]
    pub(crate) fn lack(&self) -> Option<MissingRight> {
        (self.source.kind() == io::ErrorKind::PermissionDenied).then_some(MissingRight::Netlink)
    }
}

impl Netlink {
    /// Opens the sockets. `root` is where the node's root is mounted, to find namespaces in its `/proc` and
    /// `/run`.
    pub fn open(root: PathBuf) -> Result<Self, Unavailable> {
        Self::with_room(root, ROOM)
    }

    /// Opens the sockets. `room` is the size of the kernel's buffer for notifications, in bytes.
    pub fn with_room(root: PathBuf, room: usize) -> Result<Self, Unavailable> {
        let listener = Listener::open(room)?;
        let socket = RequestSocket::open()?;
        // Without the right to give a namespace an id, nothing would be reported.
        let mut client = KernelClient::new(socket);
        client.may_name().map_err(|error| Unavailable::new("give other namespaces an id", error))?;
        let (teller, told) = records_first(Duration::ZERO);
        Ok(Self { listener, client, root, signals: Vec::new(), teller, told })
    }

    /// Lets the agent wait for the notifications.
    #[must_use]
    pub(crate) fn told(&self) -> RecordsFirst {
        self.told.clone()
    }

    /// Sets the signals that netlink reports. If netlink can no longer be read, they are reported as not
    /// seen.
    #[must_use]
    pub(crate) fn seeing(self, signals: Vec<Attached>) -> Self {
        Self { signals, ..self }
    }

    /// Answers `Question::Watch` and reports the notifications, until `stop`.
    pub fn start(
        self,
        feed: BatchSender,
        questions: QuestionReceiver,
        stop: CancellationToken,
    ) -> io::Result<JoinHandle<()>> {
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let ready = {
            let _within = runtime.enter();
            Ready::new(self.listener.as_fd())?
        };
        thread::Builder::new().name("netlink".to_owned()).spawn(move || {
            // After a stop, or if the engine is gone, nothing is left to do.
            let _ended: Result<(), Closed> = runtime.block_on(self.run(&ready, &feed, questions, stop));
        })
    }

    async fn run(
        self,
        ready: &Ready,
        feed: &BatchSender,
        mut questions: QuestionReceiver,
        mut stop: CancellationToken,
    ) -> Result<(), Closed> {
        let Self { mut listener, client, root, signals, teller, told: _ } = self;
        let mut watch = Watch::new(client, root);
        let mut outage = Outage::new(signals);
        loop {
            let before = clock::now();
            // The remaining notifications are read in the next turn.
            let is_all_read = outage.may_read() && read(&mut watch, &mut listener, &mut outage);
            // The source waits for the next notification only if it is idle, so that it knows the
            // notification's time.
            let is_idle = is_all_read && watch.is_empty();
            let is_in_outage = outage.retry_at().is_some();
            if is_idle || is_in_outage {
                teller.told(before);
            }
            let resync = watch.resync_due();
            let search = watch.search_due();
            tokio::select! {
                () = stop.requested() => break,
                question = questions.next() => match question {
                    Some(question) => {
                        let others = iter::from_fn(|| questions.try_next());
                        for question in iter::once(question).chain(others) {
                            if let Question::Watch { netns, by, unheard_since } = question {
                                watch.ask(Asked { netns, by, unheard_since, is_over: false });
                            }
                        }
                        watch.refused(questions.refused());
                    }
                    None => break,
                },
                () = sleep_until(search), if !is_in_outage => watch.search(&mut listener),
                () = sleep_until(resync), if !is_in_outage => {
                    if let Err(error) = watch.resync(&mut listener) {
                        fails(&mut watch, &mut outage, &error);
                    }
                }
                () = sleep_until(outage.retry_at()) => {}
                () = teller.wanted() => {}
                readable = ready.wait(), if is_idle => match readable {
                    Ok(mut readable) => {
                        watch.woke();
                        readable.clear_ready();
                    }
                    Err(error) => fails(&mut watch, &mut outage, &error),
                },
                () = future::ready(()), if !is_idle && (!is_in_outage || !watch.is_empty()) => {}
            };
            feed.send(watch.take()).await?;
        }
        read(&mut watch, &mut listener, &mut outage);
        feed.send(watch.take()).await
    }
}

/// Reads notifications; false if more are left, or none can be read.
fn read(watch: &mut Watch, listener: &mut Listener, outage: &mut Outage) -> bool {
    match watch.read(listener) {
        Ok(is_all) => {
            if let Some(seen) = outage.over() {
                // Report what was missed while the socket was down.
                watch.missed();
                watch.report(seen);
            }
            is_all
        }
        Err(error) => {
            fails(watch, outage, &error);
            false
        }
    }
}

fn fails(watch: &mut Watch, outage: &mut Outage, error: &io::Error) {
    if outage.retry_at().is_none() {
        watch.missed();
    }
    let unseen = outage.failed(error);
    watch.report(unseen);
}

async fn sleep_until(deadline: Option<time::Instant>) {
    match deadline {
        Some(deadline) => time::sleep_until(deadline).await,
        None => future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use tokio::{sync::mpsc, time};

    use super::{
        Attached, Duration, KernelClient, Listener, Netlink, Question, RequestSocket, records_first,
    };
    use crate::{
        model::{
            fact::{Fact, Loss, Mechanism, Signal, Task},
            id::NetnsKey,
        },
        source::task::channel::{self, Batch},
    };

    const SIGNAL: Signal = Signal::AddressV4;

    fn attached() -> Attached {
        let mechanism = Some(Mechanism::Netlink);
        Attached { signal: SIGNAL, mechanism, note: String::new(), missed: Vec::new() }
    }

    /// Waits for a fact.
    fn until(batches: &mut mpsc::Receiver<Batch>, what: &str, is_it: impl Fn(&Fact) -> bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let told = async {
            while !batches.recv().await.expect("the source goes on").iter().any(|seen| is_it(&seen.fact)) {}
        };
        let told = runtime.block_on(async { time::timeout(Duration::from_secs(30), told).await });
        assert!(told.is_ok(), "{what} is not told");
    }

    fn is_seen_by(mechanism: Option<Mechanism>) -> impl Fn(&Fact) -> bool {
        move |fact| matches!(fact, Fact::Attached(it) if (it.signal, it.mechanism) == (SIGNAL, mechanism))
    }

    /// A UDP socket fails as a netlink socket may: once for each datagram that no process receives.
    #[test]
    fn what_cannot_be_read_is_told_and_tried_again() {
        let nobody = UdpSocket::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("an address");
        let failing = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        failing.connect(nobody).expect("an address alone");
        failing.set_nonblocking(true).expect("a socket");
        let sender = failing.try_clone().expect("a descriptor");
        // It is connected to nothing, so every request fails.
        let mute = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let (teller, told) = records_first(Duration::ZERO);
        let netlink = Netlink {
            listener: Listener::of(failing.into()),
            client: KernelClient::new(RequestSocket::of(mute.into())),
            root: "/proc/self/fdinfo".into(),
            signals: vec![attached()],
            teller,
            told,
        };
        let (feed, mut batches) = channel::feed();
        let (asker, questions) = channel::questions();
        let (stopper, stop) = channel::stop();
        let source = netlink.start(feed, questions, stop).expect("a thread");
        let fail = || sender.send(b"x").map(drop);
        fail().expect("a datagram");
        until(&mut batches, "the loss", |fact| {
            *fact == Fact::Lost { what: Loss::NetlinkSocket, count: 1, since: None }
        });
        fail().expect("another one");
        until(&mut batches, "that nothing is seen", is_seen_by(None));
        until(&mut batches, "that it is seen again", is_seen_by(Some(Mechanism::Netlink)));
        // It answers as before. No namespace can be found here.
        let netns = NetnsKey::new(1, 0);
        assert_eq!(asker.ask(Question::Watch { netns, by: Task::default(), unheard_since: None }), None);
        let unwatched = Fact::NetnsUnwatched { netns, unheard_since: None };
        until(&mut batches, "what is not watched", |fact| *fact == unwatched);
        stopper.stop();
        source.join().expect("no panic");
    }
}
