//! Follows one runtime: reads its list once a minute and when asked, and its events as they come. It connects again when the
//! runtime was restarted, and says so when the runtime does not answer.
//!
//! **Invariant:** events are always read at once, whoever else is slow: a runtime may send them to all its clients one after the
//! other, the kubelet among them. If the engine is so slow that there is no room, the stream is closed and opened
//! again, and what was missed is known to be missed.

use std::{path::PathBuf, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{self, Instant},
};
use tracing::{debug, info, warn};

use super::{
    client::{Call, Client, DEADLINE, ListError},
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
        channel::{BatchSender, Closed},
        clock,
        host::HostRoot,
    },
};

/// The list is read this often if nobody asks.
const PERIOD: Duration = Duration::from_secs(60);
/// And in between the runtime is asked for its version this often, which costs it nothing.
const ALIVE: Duration = Duration::from_secs(15);
/// A runtime that does not answer this for so long answers nothing. A slow one does.
const SILENT: Duration = Duration::from_secs(10);
/// A runtime that does not answer is asked again after this time.
const AGAIN: Duration = Duration::from_secs(3);
/// A runtime that is not there is tried again after this time at first, and after twice the time before that at last.
const RETRY: Duration = Duration::from_secs(1);
const SELDOM: Duration = Duration::from_secs(30);
/// A runtime that was not there for this long is given up, until a listing of the node finds it again.
const GIVE_UP: Duration = Duration::from_secs(5 * 60);
/// How many containers are asked for their exit codes after a list.
const CODES: usize = 64;
/// How many events may wait for the engine.
const EVENTS: usize = 4096;
/// A stream that ends this soon, before any event, is none: so does CRI-O if its events are not enabled.
const AT_ONCE: Duration = Duration::from_secs(1);

/// One runtime.
pub(super) struct Session {
    pub(super) root: HostRoot,
    pub(super) socket: PathBuf,
    pub(super) feed: BatchSender,
    /// Changes when the list is asked for.
    pub(super) asked: watch::Receiver<u64>,
    told: Option<RuntimeLink>,
    /// When it was asked what it has not answered since.
    unanswered: Option<Timestamp>,
    has_events: bool,
    statuses: Statuses,
}

/// A stream of events that is read. The task ends with it.
struct Events {
    come: mpsc::Receiver<Heard>,
    task: JoinHandle<()>,
    opened: Instant,
    is_first: bool,
}

/// What the stream says.
enum Heard {
    Event(Timestamp, ContainerId, RuntimeEventKind),
    /// It has ended.
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
        Self { root, socket, feed, asked, told: None, unanswered: None, has_events: true, statuses }
    }

    /// Follows the runtime until it is given up, or nobody listens.
    pub(super) async fn run(mut self) -> Result<(), Closed> {
        let mut wait = RETRY;
        let mut there_at = Instant::now();
        loop {
            let asked_at = clock::now();
            let link = match self.connect().await {
                Ok(client) => {
                    let began = Instant::now();
                    let link = self.follow(client).await?;
                    if began.elapsed() > SELDOM {
                        wait = RETRY;
                    }
                    there_at = Instant::now();
                    link
                }
                Err(ListError::Nobody) => Answer::Gone,
                Err(ListError::Unreachable(_) | ListError::OtherService) => Answer::Unreachable,
                // It takes no more connections: those before this one wait for it.
                Err(ListError::Unanswered) => {
                    self.unanswered.get_or_insert(asked_at);
                    there_at = Instant::now();
                    Answer::Hangs
                }
            };
            // What it says after this is told whole.
            self.statuses = Statuses::default();
            if there_at.elapsed() > GIVE_UP {
                if self.told.is_none() {
                    return Ok(());
                }
                info!(socket = ?self.socket, "this runtime was not there for long: it is not followed any more");
                return self.link(Answer::GivenUp, EventStream::Closed).await;
            }
            self.link(link, EventStream::Closed).await?;
            time::sleep(wait).await;
            wait = (wait * 2).min(SELDOM);
        }
    }

    async fn connect(&self) -> Result<Client, ListError> {
        let name = self.socket.file_name().and_then(|name| name.to_str()).ok_or(ListError::Nobody)?;
        let parent = self.socket.parent().ok_or(ListError::Nobody)?;
        let folder = self.root.folder(parent).map_err(|_absent| ListError::Nobody)?;
        let path = folder.socket(name).map_err(|_absent| ListError::Nobody)?;
        Client::connect(&path).await
    }

    /// Follows it until the connection breaks. Returns how it was left.
    async fn follow(&mut self, mut client: Client) -> Result<Answer, Closed> {
        let version = match self.version(&mut client, SILENT).await {
            Ok(version) => version,
            Err(answer) => return Ok(answer),
        };
        // It may be another version than the last time, or have been on its way out.
        self.has_events = has_own_events(&version);
        if !self.has_events {
            let Version { name, version } = &version;
            info!(
                name,
                version, "this runtime has no events that several clients can read: its list alone is read"
            );
        }
        let mut events = self.has_events.then(|| Events::open(client.clone()));
        self.link(Answer::Answers, self.stream(events.as_ref())).await?;
        let mut due = Instant::now();
        let mut alive_due = due + ALIVE;
        let mut asked = self.asked.clone();
        asked.mark_unchanged();
        loop {
            tokio::select! {
                biased;
                heard = next(&mut events) => match heard {
                    Heard::Event(at, id, what) => {
                        let fact = Fact::RuntimeEvent(RuntimeEvent { socket: self.name(), id, what });
                        self.tell(at, fact).await?;
                    }
                    Heard::End(why) => {
                        let was = events.take();
                        let is_none = why == ListError::OtherService
                            || was.is_some_and(|it| it.is_first && it.opened.elapsed() < AT_ONCE && why == ListError::Nobody);
                        if !is_none {
                            return Ok(Answer::Answers);
                        }
                        info!(socket = ?self.socket, "this runtime tells no events: its list alone is read");
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
                            // The connection stays, since each new one takes room that the kubelet's may need.
                            let answer = match self.version(&mut client, SILENT).await {
                                Ok(_) => Answer::Slow,
                                Err(Answer::Hangs) => Answer::Hangs,
                                Err(answer) => return Ok(answer),
                            };
                            self.link(answer, self.stream(events.as_ref())).await?;
                            due = Instant::now() + AGAIN;
                        }
                        Err(ListError::Nobody) => return Ok(Answer::Gone),
                        Err(ListError::Unreachable(_) | ListError::OtherService) => {
                            return Ok(Answer::Unreachable);
                        }
                    }
                    alive_due = Instant::now() + ALIVE;
                }
                () = time::sleep_until(alive_due) => {
                    if self.version(&mut client, DEADLINE).await.is_err() {
                        due = Instant::now();
                    }
                    alive_due = Instant::now() + ALIVE;
                }
            }
        }
    }

    /// Asks for its version. An error is how it is, if it does not say.
    async fn version(&mut self, client: &mut Client, deadline: Duration) -> Result<Version, Answer> {
        let (asked_at, began) = (clock::now(), Instant::now());
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

    /// Reads the list and tells what changed.
    async fn list(&mut self, client: &mut Client) -> Result<Result<(), ListError>, Closed> {
        let at = clock::now();
        let answer = async {
            let Sandboxes { items: sandboxes } = client.ask(Call::ListPodSandbox, Empty {}).await?;
            let Containers { items: containers } = client.ask(Call::ListContainers, Empty {}).await?;
            let mut all =
                stated(sandboxes, containers, clock::boot_wall_ns()).ok_or(ListError::OtherService)?;
            let ended: Vec<ContainerId> =
                self.statuses.ended(&all).into_iter().take(CODES).cloned().collect();
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
        let Changed { whole, came, gone } = self.statuses.tell(all);
        let fact = Fact::RuntimeStatus(RuntimeStatus { socket: self.name(), whole, came, gone });
        self.tell(at, fact).await.map(Ok)
    }

    /// Tells how the runtime can be asked, if that changed.
    async fn link(&mut self, answer: Answer, events: EventStream) -> Result<(), Closed> {
        let hangs = answer == Answer::Hangs;
        let since = self.unanswered.filter(|_| hangs);
        let link = RuntimeLink { socket: self.name(), answer, events, since };
        // One that was found as another process sees the node, and is not there for this one, is none of this node's.
        // The listing tells of one that may not be asked.
        let was_never_there = self.told.is_none() && matches!(answer, Answer::Gone | Answer::Unreachable);
        let is_same = self.told.as_ref() == Some(&link);
        // Repeated, because the finding needs a second unanswered question.
        if is_same && !hangs || was_never_there {
            return Ok(());
        }
        if hangs && !is_same {
            warn!(socket = ?self.socket, "this runtime does not answer");
        }
        self.told = Some(link.clone());
        self.tell(clock::now(), Fact::RuntimeLink(link)).await
    }

    async fn tell(&self, at: Timestamp, fact: Fact) -> Result<(), Closed> {
        self.feed.send(vec![Observation { at, origin: Origin::Cri, fact }]).await
    }

    fn name(&self) -> String {
        self.socket.display().to_string()
    }
}

impl Events {
    fn open(client: Client) -> Self {
        let (hears, come) = mpsc::channel(EVENTS);
        let task = tokio::spawn(async move {
            let end = read(client, &hears).await;
            // Where there is no room, the end of the channel says as much.
            hears.try_send(Heard::End(end)).ok();
        });
        Self { come, task, opened: Instant::now(), is_first: true }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads events until the stream ends or nobody has room for them.
async fn read(client: Client, hears: &mpsc::Sender<Heard>) -> ListError {
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
        if hears.try_send(Heard::Event(clock::now(), id, what)).is_err() {
            warn!("events of a runtime found no room: the stream is opened again");
            return ListError::Unanswered;
        }
    }
}

/// The next word of the stream; never, if there is no stream.
async fn next(events: &mut Option<Events>) -> Heard {
    let Some(stream) = events else { return std::future::pending().await };
    let heard = stream.come.recv().await;
    if let Some(Heard::Event(..)) = &heard {
        stream.is_first = false;
    }
    heard.unwrap_or(Heard::End(ListError::Unanswered))
}

/// `ContainerEventType`.
fn kind(kind: i32) -> Option<RuntimeEventKind> {
    match kind {
        0 => Some(RuntimeEventKind::Created),
        1 => Some(RuntimeEventKind::Started),
        2 => Some(RuntimeEventKind::Stopped),
        3 => Some(RuntimeEventKind::Deleted),
        _ => None,
    }
}

/// Whether a runtime sends its events to every client. Before these versions all clients share them, so that a second one
/// takes the kubelet's away (containerd#7318, cri-o#6466).
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
