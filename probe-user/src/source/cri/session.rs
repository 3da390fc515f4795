//! Follows one runtime: reads its list once a minute and when asked, and its events as they come. It connects
//! again when the runtime was restarted, and reports it when the runtime does not answer.
//!
//! **Invariant:** events are always read at once, even if the engine is slow: a runtime may send them to all
//! its clients in turn, and the kubelet is one of them. If the engine is so slow that there is no room, the
//! stream is closed and opened again, and the engine knows that it missed events.

use std::{path::PathBuf, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{self, Instant},
};
use tracing::{debug, info, warn};

use super::{
    client::{Call, Client, DEADLINE, ListError, MAX_MESSAGE_BYTES},
    message::{Containers, Empty, Sandboxes, StatusRequest, StatusResponse, Version},
    statuses::{Changed, Statuses, container, stated},
};
use crate::{
    model::{
        fact::{
            Answer, Believed, EventStream, Fact, Observation, Origin, RuntimeEvent, RuntimeEventKind,
            RuntimeLink, RuntimeStatus,
        },
        id::ContainerId,
        time::Timestamp,
    },
    source::{
        host::HostRoot,
        node::clock,
        task::channel::{BatchSender, Closed},
    },
};

/// How often the list is read if the engine does not ask.
const PERIOD: Duration = Duration::from_secs(60);
/// How often the runtime is asked for its version in between, which costs it nothing.
const VERSION_INTERVAL: Duration = Duration::from_secs(15);
/// A runtime that does not report its version within this time answers nothing. A slow runtime does answer
/// this.
const VERSION_DEADLINE: Duration = Duration::from_secs(10);
/// How long until a runtime that does not answer is asked again.
const HANG_RETRY: Duration = Duration::from_secs(3);
/// How long until a runtime that is gone is tried again. The time doubles with each try, up to [`MAX_RETRY`].
const RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_secs(30);
/// A runtime that is gone for this long is given up, until a listing of the node finds it again.
const GIVE_UP: Duration = Duration::from_secs(5 * 60);
/// How many containers are asked for their exit codes after a list.
const MAX_EXIT_CODES: usize = 64;
/// How many events may wait for the engine.
const MAX_EVENTS: usize = 4096;
/// A stream that ends this soon, before any event, shows that the runtime sends no events. CRI-O does this if
/// its events are not enabled.
const EMPTY_STREAM: Duration = Duration::from_secs(1);

/// One runtime.
pub(super) struct Session {
    pub(super) root: HostRoot,
    pub(super) socket: PathBuf,
    pub(super) feed: BatchSender,
    /// Changes when the list is asked for.
    pub(super) asked: watch::Receiver<u64>,
    reported: Option<RuntimeLink>,
    /// When the first question was asked that it has not answered.
    unanswered: Option<Timestamp>,
    has_events: bool,
    statuses: Statuses,
}

/// A stream of events that a task reads. Dropping it ends the task.
struct Events {
    receiver: mpsc::Receiver<StreamItem>,
    task: JoinHandle<()>,
    opened: Instant,
    is_first: bool,
}

/// An item of the stream.
enum StreamItem {
    Event(Timestamp, ContainerId, RuntimeEventKind),
    /// The stream has ended.
    End(ListError),
}

impl Session {
    pub(super) fn new(
        root: HostRoot,
        socket: PathBuf,
        feed: BatchSender,
        asked: watch::Receiver<u64>,
    ) -> Self {
        let statuses = Statuses::default();
        Self { root, socket, feed, asked, reported: None, unanswered: None, has_events: true, statuses }
    }

    /// Follows the runtime until it is given up, or the engine accepts no more facts.
    pub(super) async fn run(mut self) -> Result<(), Closed> {
        let mut wait = RETRY;
        let mut there_at = Instant::now();
        loop {
            let asked_at = clock::now();
            let link = match self.connect().await {
                Ok(client) => {
                    let began = Instant::now();
                    let link = self.follow(client).await?;
                    if began.elapsed() > MAX_RETRY {
                        wait = RETRY;
                    }
                    there_at = Instant::now();
                    link
                }
                Err(ListError::Nobody) => Answer::Gone,
                Err(ListError::Unreachable(_) | ListError::OtherService) => Answer::Unreachable,
                // It accepts no more connections: earlier ones still wait.
                Err(ListError::Unanswered) => {
                    self.unanswered.get_or_insert(asked_at);
                    there_at = Instant::now();
                    Answer::Hangs
                }
            };
            // After this, its whole list is reported again.
            self.statuses = Statuses::default();
            if there_at.elapsed() > GIVE_UP {
                if self.reported.is_none() {
                    return Ok(());
                }
                info!(socket = ?self.socket, "this runtime has been gone for too long: it is no longer followed");
                return self.link(Answer::GivenUp, EventStream::Closed).await;
            }
            self.link(link, EventStream::Closed).await?;
            time::sleep(wait).await;
            wait = (wait * 2).min(MAX_RETRY);
        }
    }

    async fn connect(&self) -> Result<Client, ListError> {
        let name = self.socket.file_name().and_then(|name| name.to_str()).ok_or(ListError::Nobody)?;
        let parent = self.socket.parent().ok_or(ListError::Nobody)?;
        let folder = self.root.folder(parent).map_err(|_absent| ListError::Nobody)?;
        let path = folder.socket(name).map_err(|_absent| ListError::Nobody)?;
        Client::connect(&path, MAX_MESSAGE_BYTES).await
    }

    /// Follows the runtime until the connection breaks. Returns how it answered last.
    async fn follow(&mut self, mut client: Client) -> Result<Answer, Closed> {
        let version = match self.version(&mut client, VERSION_DEADLINE).await {
            Ok(version) => version,
            Err(answer) => return Ok(answer),
        };
        // Its version may have changed since the last time, or it may have been stopping then.
        self.has_events = has_own_events(&version);
        if !self.has_events {
            let Version { name, version } = &version;
            info!(
                name,
                version, "this runtime has no events that several clients can read: only its list is read"
            );
        }
        let mut events = self.has_events.then(|| Events::open(client.clone()));
        self.link(Answer::Answers, self.stream(events.as_ref())).await?;
        let mut due = Instant::now();
        let mut alive_due = due + VERSION_INTERVAL;
        let mut asked = self.asked.clone();
        asked.mark_unchanged();
        loop {
            tokio::select! {
                biased;
                item = next(&mut events) => match item {
                    StreamItem::Event(at, id, what) => {
                        let fact = Fact::RuntimeEvent(RuntimeEvent { socket: self.name(), id, what });
                        self.send_fact(at, fact).await?;
                    }
                    StreamItem::End(why) => {
                        let was = events.take();
                        let is_none = why == ListError::OtherService
                            || was.is_some_and(|it| it.is_first && it.opened.elapsed() < EMPTY_STREAM && why == ListError::Nobody);
                        if !is_none {
                            return Ok(Answer::Answers);
                        }
                        info!(socket = ?self.socket, "this runtime sends no events: only its list is read");
                        self.has_events = false;
                        self.link(Answer::Answers, EventStream::None).await?;
                    }
                },
                changed = asked.changed() => {
                    if changed.is_err() {
                        return Err(Closed);
                    }
                    due = Instant::now();
                }
                () = time::sleep_until(due) => {
                    let asked_at = clock::now();
                    match self.list(&mut client).await? {
                        Ok(()) => {
                            self.unanswered = None;
                            self.link(Answer::Answers, self.stream(events.as_ref())).await?;
                            due = Instant::now() + PERIOD;
                        }
                        Err(ListError::Unanswered) => {
                            self.unanswered.get_or_insert(asked_at);
                            // The connection is kept: a new one would take room that the kubelet may need.
                            let answer = match self.version(&mut client, VERSION_DEADLINE).await {
                                Ok(_) => Answer::Slow,
                                Err(Answer::Hangs) => Answer::Hangs,
                                Err(answer) => return Ok(answer),
                            };
                            self.link(answer, self.stream(events.as_ref())).await?;
                            due = Instant::now() + HANG_RETRY;
                        }
                        Err(ListError::Nobody) => return Ok(Answer::Gone),
                        Err(ListError::Unreachable(_) | ListError::OtherService) => {
                            return Ok(Answer::Unreachable);
                        }
                    }
                    alive_due = Instant::now() + VERSION_INTERVAL;
                }
                () = time::sleep_until(alive_due) => {
                    if self.version(&mut client, DEADLINE).await.is_err() {
                        due = Instant::now();
                    }
                    alive_due = Instant::now() + VERSION_INTERVAL;
                }
            }
        }
    }

    /// Asks the runtime for its version. The error is how it (does not) answer.
    async fn version(&mut self, client: &mut Client, deadline: Duration) -> Result<Version, Answer> {
        let asked_at = clock::now();
        let began = Instant::now();
        match client.ask_for(deadline, Call::Version, Empty {}).await {
            Ok(version) => {
                self.unanswered = None;
                Ok(version)
            }
            Err(ListError::Nobody) => Err(Answer::Gone),
            Err(ListError::Unreachable(_) | ListError::OtherService) => Err(Answer::Unreachable),
            // The connection is broken.
            Err(ListError::Unanswered) if began.elapsed() < deadline / 2 => Err(Answer::Gone),
            Err(ListError::Unanswered) => {
                self.unanswered.get_or_insert(asked_at);
                Err(Answer::Hangs)
            }
        }
    }

    fn stream(&self, events: Option<&Events>) -> EventStream {
        match events {
            Some(_) => EventStream::Open,
            None if self.has_events => EventStream::Closed,
            None => EventStream::None,
        }
    }

    /// Reads the list and reports what changed.
    async fn list(&mut self, client: &mut Client) -> Result<Result<(), ListError>, Closed> {
        let at = clock::now();
        let answer = async {
            let Sandboxes { items: sandboxes } = client.ask(Call::ListPodSandbox, Empty {}).await?;
            let Containers { items: containers } = client.ask(Call::ListContainers, Empty {}).await?;
            let mut all =
                stated(sandboxes, containers, clock::boot_wall_ns()).ok_or(ListError::OtherService)?;
            let ended: Vec<ContainerId> =
                self.statuses.ended(&all).into_iter().take(MAX_EXIT_CODES).cloned().collect();
            for id in ended {
                let question = StatusRequest { id: id.as_str().to_owned() };
                match client.ask::<StatusResponse>(Call::ContainerStatus, question).await {
                    Ok(StatusResponse { status: Some(it) }) if container(it.state) == Believed::Exited => {
                        if let Some(row) = all.get_mut(&id) {
                            row.exit_code = Some(it.exit_code);
                        }
                    }
                    Ok(_) => {}
                    // It may have been removed since.
                    Err(error) => {
                        debug!(%id, ?error, "the runtime does not say how a container ended");
                        if error == ListError::Unanswered {
                            break;
                        }
                    }
                }
            }
            Ok(all)
        };
        let all = match answer.await {
            Ok(all) => all,
            Err(error) => return Ok(Err(error)),
        };
        let Changed { whole, came, gone } = self.statuses.update(all);
        let fact = Fact::RuntimeStatus(RuntimeStatus { socket: self.name(), whole, came, gone });
        self.send_fact(at, fact).await.map(Ok)
    }

    /// Reports how the runtime answers, if that changed.
    async fn link(&mut self, answer: Answer, events: EventStream) -> Result<(), Closed> {
        let hangs = answer == Answer::Hangs;
        let since = if hangs { self.unanswered } else { None };
        let link = RuntimeLink { socket: self.name(), answer, events, since };
        // A runtime that another process sees, but that was never there for this one, is not this node's. The
        // listing reports a runtime that may not be asked.
        let was_never_there = self.reported.is_none() && matches!(answer, Answer::Gone | Answer::Unreachable);
        let is_same = self.reported.as_ref() == Some(&link);
        // A hang is reported each time, because the finding needs a second unanswered question.
        if is_same && !hangs || was_never_there {
            return Ok(());
        }
        if hangs && !is_same {
            warn!(socket = ?self.socket, "this runtime does not answer");
        }
        self.reported = Some(link.clone());
        self.send_fact(clock::now(), Fact::RuntimeLink(link)).await
    }

    async fn send_fact(&self, at: Timestamp, fact: Fact) -> Result<(), Closed> {
        self.feed.send(vec![Observation { at, origin: Origin::Cri, fact }]).await
    }

    fn name(&self) -> String {
        self.socket.display().to_string()
    }
}

impl Events {
    fn open(client: Client) -> Self {
        let (sender, receiver) = mpsc::channel(MAX_EVENTS);
        let task = tokio::spawn(async move {
            let end = read(client, &sender).await;
            // If there is no room, the end of the channel has the same effect.
            sender.try_send(StreamItem::End(end)).ok();
        });
        Self { receiver, task, opened: Instant::now(), is_first: true }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads events until the stream ends or the channel is full.
async fn read(client: Client, sender: &mpsc::Sender<StreamItem>) -> ListError {
    let mut events = match client.events().await {
        Ok(events) => events,
        Err(why) => return why,
    };
    loop {
        let event = match events.next().await {
            Ok(event) => event,
            Err(why) => return why,
        };
        let Some((id, what)) = ContainerId::parse(&event.id).zip(kind(event.kind)) else { continue };
        if sender.try_send(StreamItem::Event(clock::now(), id, what)).is_err() {
            warn!("no room for a runtime's events: opening the stream again");
            return ListError::Unanswered;
        }
    }
}

/// Returns the next item of the stream; never, if there is no stream.
async fn next(events: &mut Option<Events>) -> StreamItem {
    let Some(stream) = events else { return std::future::pending().await };
    let item = stream.receiver.recv().await;
    if let Some(StreamItem::Event(..)) = &item {
        stream.is_first = false;
    }
    item.unwrap_or(StreamItem::End(ListError::Unanswered))
}

/// Converts a `ContainerEventType`.
fn kind(kind: i32) -> Option<RuntimeEventKind> {
    match kind {
        0 => Some(RuntimeEventKind::Created),
        1 => Some(RuntimeEventKind::Started),
        2 => Some(RuntimeEventKind::Stopped),
        3 => Some(RuntimeEventKind::Deleted),
        _ => None,
    }
}

/// Returns whether a runtime sends its events to every client. Before these versions all clients share them,
/// so that a second client would take events from the kubelet (containerd#7318, cri-o#6466).
fn has_own_events(it: &Version) -> bool {
    let mut numbers =
        it.version.trim_start_matches('v').split(['.', '-', '+']).map(|part| part.parse::<u32>().ok());
    let version = (numbers.next().flatten().unwrap_or(0), numbers.next().flatten().unwrap_or(0));
    match it.name.as_str() {
        "containerd" => version >= (2, 0),
        "cri-o" => version >= (1, 30),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
