//! Reads the state that the last agent kept, and makes its calls again.

mod written;

use std::{
    fs::{self, File},
    io::{self, BufReader, Write as _},
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    thread,
    time::{Duration, Instant},
};

use tracing::warn;

use self::written::Written;
use super::{
    Checkpoint,
    place::{Place, TRIES},
};
use crate::{
    engine::{Call, Settings},
    model::{
        fact::{Fact, Observation, Origin, RingsRead},
        time::Timestamp,
    },
    recording::{Header, ReadError, Reader, WriteError},
    session::Session,
    sink::{
        escape::escaped,
        state::{
            file::is_absent,
            folder,
            state_writes::{StateFile, StateWrites},
        },
    },
    source::{
        live::{
            attach::Earlier,
            pin::{BETWEEN_TRIES, DYING},
            ring::RingReader,
        },
        node::clock,
    },
};

/// The longest time that one read of the file may take. After that the agent starts without the rest.
const MAX_READ_WAIT: Duration = Duration::from_secs(5);
/// How far ahead of the present an ending agent's state may be: it gives its engine the time up to which
/// changes are held back.
const AHEAD_OF_NOW: Duration = Duration::from_secs(120);
/// The number of agents that may try. A state that ends each agent would otherwise be read forever.
pub(super) const MAX_TRIES: usize = 3;
/// Calls that may wait between the thread that reads and the session.
const MAX_WAITING_CALLS: usize = 256;

/// What exists of the last agent's state.
pub(crate) enum Last {
    /// No agent of this boot has kept any, as far as the directory shows.
    None,
    Kept(Kept),
    /// It cannot be read, or the disk did not answer whether it exists. The value is when it was last
    /// written, as far as that is known.
    Lost(Option<Timestamp>),
}

/// How far the state of the last agent was resumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resumed {
    /// The time of the last call that was made again; `None`: there was none, and the session is unchanged.
    pub(crate) last: Option<Timestamp>,
    /// Since when what the last agent kept is lost, if it is.
    pub(crate) lost_since: Option<Timestamp>,
}

/// The state of the last agent, which a thread reads.
pub(crate) struct Kept {
    path: PathBuf,
    /// When it was last written, as far as that is known.
    written_at: Option<Timestamp>,
    settings: Settings,
    /// The last agent's value, which a later call may change. An event that is reported again has the same
    /// time.
    boot_wall_ns: i64,
    /// Judged by the version alone: two builds of one version count as equal.
    is_of_this_version: bool,
    calls: Receiver<Result<Option<Call>, ReadError>>,
}

/// What hooks show of agents that they outlived; without hooks, what such an agent noted when it could not
/// write the file.
pub(super) struct LeftHooks<'a> {
    /// Returns the number of the last event that agents had reported when they had read this far, or later;
    /// `None` where nothing shows it.
    pub(super) told: &'a dyn Fn(Option<RingsRead>) -> Option<u64>,
    /// The number of the last event that any of those agents reported.
    pub(super) last_told: Option<u64>,
    /// When one of them last read.
    pub(super) read_at: Option<Timestamp>,
    /// Whether the rings still have all that came after this position.
    pub(super) have_all_after: &'a dyn Fn(RingsRead) -> bool,
    /// The position from which this agent reads.
    pub(super) begins: RingsRead,
    /// Notes for the next agent the number of the last event that was reported.
    pub(super) note_told: &'a dyn Fn(u64),
}

/// The last agent has reported all events.
const ALL: u64 = u64::MAX;

/// Why there is no state to continue with.
enum Unread {
    /// No agent of this boot has kept any.
    Absent,
    /// The file cannot be read.
    Lost(Written),
    /// The file cannot be read, and for this reason it is of no use to any agent.
    Damaged(String, Written),
}

/// Takes over the state that the last agent kept, and reports what of it is lost. `noted` is the number of
/// the last event that the last agent may have reported, where no hooks show it.
pub(crate) fn take_over(
    session: &mut Session,
    last: Last,
    noted: Option<u64>,
    drain: &RingReader,
    earlier: &[Earlier],
) -> Result<Resumed, WriteError> {
    let told = drain.told(earlier);
    let left = LeftHooks {
        told: &|read| told.of(read).or(noted),
        last_told: told.last().max(noted),
        read_at: drain.read_before(earlier),
        have_all_after: &|read| drain.have_all_after(&read, earlier),
        begins: drain.begins(),
        note_told: &|seq| drain.page().tell(seq),
    };
    last.take_over(session, &left, clock::now())
}

/// Opens the state directory and starts the thread that writes. Also returns what the last agent kept of this
/// boot.
///
/// Must be called on a thread that may write to the directory. A disk that hangs blocks only a thread that
/// this function starts.
pub(crate) fn open(dir: &Path, header: &Header, writes: StateWrites) -> io::Result<(Checkpoint, Last)> {
    let mut place = Place::new(dir, header, reported_sync(dir, writes.clone()))?;
    let path = place.path();
    let own_header = header.clone();
    let (give, given) = mpsc::sync_channel(1);
    let (tell, found) = mpsc::sync_channel(1);
    thread::Builder::new().name("resume".to_owned()).spawn(move || {
        let path = place.path();
        let locked = await_lock(&mut place);
        // A lock that nobody waits for any more is released.
        if give.send(place).is_ok() {
            read(&path, &own_header, locked, &tell);
        }
    })?;
    let place = given.recv_timeout(DYING + MAX_READ_WAIT).ok();
    let found = if place.is_some() { found.recv_timeout(MAX_READ_WAIT).ok() } else { None };
    let last = match found {
        Some(Ok(kept)) => Last::Kept(kept),
        Some(Err(Unread::Absent)) => Last::None,
        Some(Err(Unread::Lost(written))) => Last::lost(written),
        Some(Err(Unread::Damaged(why, written))) => {
            set_aside(&path, &why, "going on without it");
            Last::lost(written)
        }
        None => {
            warn!(?path, "reading the engine's state hangs: going on without it");
            // The disk is not used further here: that may hang too.
            Last::Lost(None)
        }
    };
    let place = match place {
        Some(place) => place,
        None => Place::new(dir, header, reported_sync(dir, writes.clone()))?,
    };
    Ok((Checkpoint::start(place, writes)?, last))
}

/// Returns a function that syncs a file, and informs `writes` meanwhile in case that hangs.
fn reported_sync(dir: &Path, writes: StateWrites) -> impl Fn(&File) -> io::Result<()> + Send + use<> {
    let dir = dir.to_owned();
    move |file| {
        let _writing = writes.begin(StateFile::Checkpoint, &dir);
        file.sync_data()
    }
}

/// Locks the directory. Waits for an agent that is ending: a supervisor starts the next one at once.
fn await_lock(place: &mut Place) -> io::Result<()> {
    let deadline = Instant::now() + DYING;
    loop {
        match place.lock() {
            // Another agent has it.
            Err(error) if error.kind() == io::ErrorKind::Other && Instant::now() < deadline => {
                thread::sleep(BETWEEN_TRIES);
            }
            other => return other,
        }
    }
}

/// Reports what there is, and sends the calls of a readable state as they are taken.
fn read(path: &Path, header: &Header, locked: io::Result<()>, tell: &SyncSender<Result<Kept, Unread>>) {
    let mut reader = match find(path, header, locked) {
        Ok(reader) => reader,
        Err(unread) => return drop(tell.send(Err(unread))),
    };
    let Header { settings, boot_wall_ns, made_by, .. } = reader.header().clone();
    let is_of_this_version = made_by == header.made_by;
    let (calls, given) = mpsc::sync_channel(MAX_WAITING_CALLS);
    let written_at = written::last_write(path, [boot_wall_ns, header.boot_wall_ns]);
    let path = path.to_owned();
    if tell
        .send(Ok(Kept { path, written_at, settings, boot_wall_ns, is_of_this_version, calls: given }))
        .is_err()
    {
        return;
    }
    loop {
        let next = reader.next_call();
        let is_last = !matches!(next, Ok(Some(_)));
        if calls.send(next).is_err() || is_last {
            return;
        }
    }
}

/// Opens the state of this boot, if there is one that can be read.
fn find(path: &Path, header: &Header, locked: io::Result<()>) -> Result<Reader<BufReader<File>>, Unread> {
    // The first write reports an error. Without the lock another agent may be writing the file.
    match locked.and_then(|()| path.try_exists()) {
        Ok(true) => {}
        Ok(false) => return Err(Unread::Absent),
        Err(error) => {
            if fs::metadata(path).is_err_and(|error| is_absent(&error)) {
                return Err(Unread::Absent);
            }
            warn!("the engine's state in {} cannot be read: {error}; going on without it", shown(path));
            return Err(Unread::Lost(Written::of(path, header)));
        }
    }
    if !may_try(path) {
        let why = "each of three agents ended within a minute after it took it over".to_owned();
        return Err(Unread::Damaged(why, Written::of(path, header)));
    }
    let opened = match File::open(path) {
        Ok(file) => Reader::open(BufReader::new(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Unread::Absent),
        Err(error) => Err(ReadError::Io { line: 1, error }),
    };
    match opened {
        Ok(reader) if reader.header().boot_id == header.boot_id => Ok(reader),
        // What an agent knew of an earlier boot no longer holds.
        Ok(_) => Err(Unread::Absent),
        Err(error) => Err(Unread::Damaged(error.to_string(), Written::of(path, header))),
    }
}

/// Counts an agent that reads the file. Returns false if too many have tried in vain.
fn may_try(path: &Path) -> bool {
    let path = path.with_file_name(TRIES);
    let tries = fs::read(&path).map_or(0, |tries| tries.len());
    if tries >= MAX_TRIES {
        return false;
    }
    // On a full disk nothing is counted.
    let file = folder::own(File::options().append(true)).open(path);
    file.and_then(|mut file| file.write_all(b".")).ok();
    true
}

impl Last {
    /// Takes over the state if there is one. Returns since when what the last agent knew is lost, if it is.
    /// That loss is in the first file that this agent begins: whoever reads that file finds it whole, and
    /// would otherwise not know of the loss.
    pub(super) fn take_over(
        self,
        session: &mut Session,
        left: &LeftHooks<'_>,
        now: Timestamp,
    ) -> Result<Resumed, WriteError> {
        let mut resumed = match self {
            Self::Kept(kept) => kept.resume(session, left, now)?,
            Self::Lost(since) => {
                let since = since.or(left.read_at).unwrap_or(now);
                Resumed { last: None, lost_since: Some(since.min(now)) }
            }
            Self::None => Resumed::default(),
        };
        if let Some(last) = left.last_told
            && last > 0
            && resumed.last.is_none()
        {
            session.begin_after(last)?;
            // An agent has reported something, and nothing is there of what it knew.
            if resumed.lost_since.is_none() {
                warn!("an earlier agent reported events, but left no state: continuing without it");
            }
            resumed.lost_since.get_or_insert(left.read_at.map_or(now, |at| at.min(now)));
        }
        let told = if resumed.last.is_some() { (left.told)(session.engine().rings_read()) } else { None };
        (left.note_told)(told.unwrap_or(session.last_seq()));
        // A state without the position is one that began from nothing.
        let begins = resumed.last.is_none().then_some(Fact::RingsRead(left.begins));
        let lost = resumed.lost_since.map(|since| Fact::StateLost { since });
        for fact in begins.into_iter().chain(lost) {
            session.call(Call::Observe(Observation { at: now, origin: Origin::Agent, fact }))?;
        }
        Ok(resumed)
    }

    /// Returns what a file that cannot be read means. A file of an earlier boot has nothing of this one.
    fn lost(written: Written) -> Self {
        match written {
            Written::InThisBoot(at) => Self::Lost(at),
            Written::InEarlierBoot => Self::None,
        }
    }
}

impl Kept {
    /// Makes the calls of the last agent again. It is silent about events that the last agent has reported;
    /// where no hooks show which those are, about all. A state is lost if it is not whole or is in the
    /// future. It is also lost if calls are missing that led to events which were reported: nobody knows
    /// those events, and this agent would report them again with other numbers. The calls of another version
    /// may lead to fewer events by themselves, so its state is kept if the rings have everything that came
    /// after these calls. No number is given twice.
    pub(super) fn resume(
        self,
        session: &mut Session,
        left: &LeftHooks<'_>,
        now: Timestamp,
    ) -> Result<Resumed, WriteError> {
        let settings = session.engine().settings().clone();
        let boot_wall_ns = session.boot_wall_ns();
        session.renew(self.settings.clone());
        session.set_boot_wall_ns(self.boot_wall_ns);
        let mut reading = Reading::default();
        let mut hangs = false;
        let mut end = loop {
            match self.calls.recv_timeout(MAX_READ_WAIT) {
                Ok(Ok(Some(call))) => {
                    reading.see(&call);
                    let told = (left.told)(session.engine().rings_read());
                    session.resume(call, told.unwrap_or(ALL));
                }
                // An agent that was killed leaves a file without an end, and perhaps a part of a line.
                Ok(Ok(None) | Err(ReadError::CutOff { .. })) => break None,
                Ok(Err(error)) => break Some(error.to_string()),
                Err(RecvTimeoutError::Timeout) => {
                    hangs = true;
                    break Some("reading it hangs".to_owned());
                }
                Err(RecvTimeoutError::Disconnected) => break Some("its reader ended".to_owned()),
            }
        };
        session.set_boot_wall_ns(boot_wall_ns);
        let mut last = reading.whole();
        if last.is_none() {
            end.get_or_insert_with(|| "it is cut off before the end of the state".to_owned());
        }
        if last.is_some_and(|last| last > now + AHEAD_OF_NOW) {
            last = None;
            end = Some("its time is in the future".to_owned());
        }
        let is_lost = end.is_some();
        // Nothing was lost with the state before one of those agents last read.
        let mut behind = None;
        if let Some(at) = last
            && is_behind(session, left)
            && (self.is_of_this_version || !is_followed(session, left))
        {
            last = None;
            behind = Some(left.read_at.unwrap_or(at).max(at));
        }
        if let Some(why) = end {
            let what = if last.is_some() { "going on with what was before" } else { "going on without it" };
            if hangs {
                // Nothing shows that the file is damaged, and setting it aside may hang too.
                warn!("the engine's state in {} cannot be read: {why}; {what}", shown(&self.path));
            } else {
                set_aside(&self.path, &why, what);
            }
        }
        if behind.is_some() && !is_lost {
            warn!(
                "the engine's state in {} is older than the events that were reported: going on without it",
                shown(&self.path)
            );
        }
        let lost_since = behind.or(is_lost.then(|| last.or(self.written_at).unwrap_or(now)));
        match last {
            Some(_) => {
                if let Some(told) = (left.told)(session.engine().rings_read()) {
                    session.number_after(told);
                }
                session.adopt(settings)?;
            }
            None => session.renew(settings),
        }
        Ok(Resumed { last, lost_since: lost_since.map(|since| since.min(now)) })
    }
}

/// Returns whether an event was reported that no call in the file led to. The session settles, as any agent's
/// session does that continues with a state, and its agent reports what that gives before it begins a file of
/// its own.
fn is_behind(session: &mut Session, left: &LeftHooks<'_>) -> bool {
    let Some(told) = (left.told)(session.engine().rings_read()) else { return false };
    session.resume(Call::Advance(session.engine().now()), told);
    told > session.engine().last_seq()
}

/// Returns whether this agent continues reading where the calls in the file end.
fn is_followed(session: &Session, left: &LeftHooks<'_>) -> bool {
    session.engine().rings_read().is_some_and(left.have_all_after)
}

/// How far the calls were read.
#[derive(Debug, Default)]
struct Reading {
    last: Timestamp,
    /// Whether the state is followed by its time.
    is_whole: bool,
}

impl Reading {
    fn see(&mut self, call: &Call) {
        match call {
            Call::Observe(seen) => self.last = self.last.max(seen.at),
            Call::Advance(at) => {
                self.last = self.last.max(*at);
                self.is_whole = true;
            }
            Call::Restore(_) => {}
        }
    }

    fn whole(&self) -> Option<Timestamp> {
        self.is_whole.then_some(self.last)
    }
}

/// Also keeps an unusable file under another name, for whoever looks for the reason. The original stays until
/// the first file of this agent replaces it, so that the next agent finds it again if this one is killed
/// before. The tries stay too.
fn set_aside(path: &Path, why: &str, what: &str) {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".damaged");
    // Renaming one of two names of a file to the other does nothing.
    fs::remove_file(&aside).ok();
    let kept = match fs::hard_link(path, &aside).or_else(|_no_links_here| rename(path, Path::new(&aside))) {
        Ok(()) => format!("it is kept as {}", shown(Path::new(&aside))),
        Err(error) => format!("it cannot be renamed ({error})"),
    };
    warn!("the engine's state in {} cannot be read: {why}; {kept}; {what}", shown(path));
}

/// Renames the file, for file systems on which a file has only one name.
fn rename(path: &Path, aside: &Path) -> io::Result<()> {
    fs::rename(path, aside)?;
    // The tries belonged to this file.
    fs::remove_file(path.with_file_name(TRIES)).ok();
    Ok(())
}

fn shown(path: &Path) -> String {
    escaped(&path.to_string_lossy()).into_owned()
}
