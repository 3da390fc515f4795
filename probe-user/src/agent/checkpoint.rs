//! Keeps the engine's state in a file of the state directory, so that the next agent of the same boot goes on with it:
//! `engine.jsonl`, a recording that begins with the state at one moment, followed by each call since then.
//!
//! A thread of its own writes, since a disk may be slow, and another one syncs, since the stream of events waits for the first. When many calls have been added, the file is replaced by one that
//! begins with the present state.
//!
//! **Invariant:** a directory that cannot be written is reported ([`StateWrites`]) and never stops the agent. A file that
//! is cut off anywhere loses only the calls behind the cut.

mod place;
pub(crate) mod resume;
mod syncer;
#[cfg(test)]
pub(crate) mod tests;

use std::{
    io, mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use self::place::Place;
use crate::{
    engine::{Call, world::CheckpointEntry},
    model::time::Timestamp,
    recording::Writer,
    session::Session,
    sink::{
        background::{BackgroundWriter, Failed},
        state_writes::{StateFile, StateWrites},
    },
};

/// The name of the file in the state directory.
const FILE: &str = "engine.jsonl";

/// The file is replaced when this many bytes of calls have been added, and more if the state is large.
const ADDED: usize = 4 << 20;
/// How many bytes of calls may be added for each entry of the state, which takes about as many itself while pods come and go: so
/// at most half of what is written is the state.
const ADDED_FOR_ENTRY: usize = 2 << 10;
/// A state with more entries is not kept. A node of 1,000 pods has some 20,000.
const ENTRIES: usize = 60_000;
/// How many bytes of calls may wait for a thread that has no room. If there are more, the file begins anew later.
const WAITING: usize = 8 << 20;
/// How long to wait before the file begins anew after a failure.
const RETRY: Duration = Duration::from_secs(30);
/// How long calls are gathered before they are added, since each write wakes two threads.
const GATHER: Duration = Duration::from_millis(50);
/// This many bytes of calls are added at once.
const ENOUGH: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Checkpoint {
    writer: BackgroundWriter<Job>,
    /// The file that calls are added to.
    file: Option<Growing>,
    /// No file is begun before.
    retry_at: Timestamp,
    /// Calls are not added before.
    add_at: Timestamp,
    /// Whether calls wait for that time.
    gathers: bool,
    /// How many jobs the thread was given.
    given: u64,
    /// The number of the last event that is told without waiting for the file; 0 if hooks show which was told.
    told: Arc<AtomicU64>,
    /// Up to which number an agent before may have told more than is in the file.
    told_before: Option<u64>,
}

/// Has the engine settle all until its own time, as the next agent's engine will. Returns whether that told nothing.
pub(crate) fn settles(session: &mut Session) -> bool {
    let (at, before) = (session.engine().now(), session.output().len());
    // A recording that cannot go on says so at the next call.
    session.call(Call::Advance(at)).ok();
    session.output().len() == before
}

#[derive(Debug)]
struct Growing {
    /// Bytes of calls that were added, and how many may be.
    added: usize,
    limit: usize,
}

#[derive(Debug)]
enum Job {
    /// Replace the file by one that begins with this state, of this time. Events have this wall time of the boot. `before`: the
    /// calls that led here from what is in the present file, as lines; `None`: they are not known, or it is the last job.
    Begin { entries: Vec<CheckpointEntry>, at: Timestamp, boot_wall_ns: i64, before: Option<Vec<u8>> },
    /// Add these calls, as lines.
    Add(Vec<u8>),
    /// The state has more entries than are kept: remove the file, which would be out of date.
    Remove(usize),
}

impl Checkpoint {
    /// Starts the thread, which owns `place`.
    fn start(mut place: Place, writes: StateWrites) -> io::Result<Self> {
        let (dir, told, told_before) = (place.dir().to_owned(), place.told(), place.told_before());
        let write = move |job, failed: &Failed| {
            let done = place.write(job);
            if done.is_err() {
                failed.set(true);
            }
            done
        };
        let writer = BackgroundWriter::spawn(StateFile::Checkpoint, &dir, writes, write)?;
        Ok(Self {
            writer,
            file: None,
            retry_at: Timestamp::ZERO,
            add_at: Timestamp::ZERO,
            gathers: false,
            given: 0,
            told,
            told_before,
        })
    }

    /// Events up to this number are told now, whatever becomes of the file, and no hooks will show that. Should the file be behind
    /// them because it cannot be written, the next agent is told so.
    pub(crate) fn will_tell(&self, seq: u64) {
        self.told.store(seq, Ordering::Release);
    }

    /// Up to which number an agent of this boot may have told more than is in the file, if it may.
    pub(crate) fn told_before(&self) -> Option<u64> {
        self.told_before
    }

    /// Gives the thread what the session did since the last call. Returns the number of the write that has all of it;
    /// `None` if the state is not kept.
    ///
    /// `all_is_told`: every event was told, so a file that begins with the present state leaves none out. Else the file is
    /// replaced later, if that is possible.
    pub(crate) fn update(&mut self, now: Timestamp, session: &mut Session, all_is_told: bool) -> Option<u64> {
        // A call that has no form as a line ends the journal. A thread that has room takes whatever waits: much can come of a full
        // ring, of which nothing is written before all of it was read.
        let fits = |calls: &mut Vec<u8>| calls.len() <= WAITING || self.writer.reserve().is_some();
        let is_kept = session.journal().is_some_and(fits);
        if self.writer.failed().take() || self.file.is_some() && !is_kept {
            self.give_up(now, session);
        }
        self.gathers = false;
        match &mut self.file {
            Some(file) if file.added < file.limit || !all_is_told && file.added < 2 * file.limit => {
                if let Some(calls) = session.journal().filter(|calls| !calls.is_empty()) {
                    // A file that is full waits for a moment in which nothing waits.
                    if now < self.add_at && calls.len() < ENOUGH && file.added < file.limit {
                        self.gathers = true;
                    } else if let Some(room) = self.writer.reserve() {
                        file.added += calls.len();
                        self.given += 1;
                        self.add_at = now + GATHER;
                        room.send(Job::Add(mem::take(calls)));
                    }
                }
            }
            Some(_) | None if now >= self.retry_at => {
                if !all_is_told || settles(session) {
                    self.begin(now, session);
                } else {
                    // What that told goes with the calls that led to it, at once.
                    self.gathers = true;
                }
            }
            Some(_) | None => {}
        }
        self.file.as_ref()?;
        // What is gathered or found no room goes with the next write.
        let waits = session.journal().is_some_and(|calls| !calls.is_empty());
        Some(self.given + u64::from(waits))
    }

    /// When calls that are gathered are to be added.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        self.gathers.then_some(self.add_at)
    }

    /// Calls are added at once next time.
    pub(crate) fn hurry(&mut self) {
        self.add_at = Timestamp::ZERO;
    }

    /// Whether the state is in the file, as far as is known.
    pub(crate) fn is_kept(&self) -> bool {
        self.file.is_some()
    }

    /// How many writes the thread was given.
    pub(crate) fn given(&self) -> u64 {
        self.given
    }

    /// How many writes are done.
    pub(crate) fn written(&self) -> u64 {
        self.writer.done().count()
    }

    /// Returns when another write is done.
    pub(crate) async fn writes(&self) {
        self.writer.done().changed().await;
    }

    /// Begins a file with the present state. Its time is that of the engine, which must have settled all until then: the next
    /// agent makes the same calls with the same results. `now` is the time of an engine that was told none.
    pub(crate) fn begin(&mut self, now: Timestamp, session: &mut Session) {
        let Some(room) = self.writer.reserve() else { return };
        self.given += 1;
        let size = session.engine().size();
        if size > ENTRIES {
            self.give_up(now, session);
            room.send(Job::Remove(size));
            return;
        }
        let entries = session.engine().dump();
        let before = self.file.as_ref().and_then(|_| session.journal().map(mem::take));
        self.file = Some(Growing { added: 0, limit: ADDED.max(entries.len() * ADDED_FOR_ENTRY) });
        session.keep_journal(Some(Writer::without_header()));
        room.send(Job::Begin {
            entries,
            at: seen_until(session, now),
            boot_wall_ns: session.boot_wall_ns(),
            before,
        });
    }

    fn give_up(&mut self, now: Timestamp, session: &mut Session) {
        self.file = None;
        self.retry_at = now + RETRY;
        session.keep_journal(None);
    }

    /// Writes the state for the last time; returns when that is done or has failed. `read_until` is when the agent read no
    /// more: all that it does at its end can take many seconds, in which nobody sees what happens.
    pub(crate) async fn finish(self, read_until: Timestamp, session: &Session) {
        let size = session.engine().size();
        let (entries, boot_wall_ns) = (|| session.engine().dump(), session.boot_wall_ns());
        let last = (size <= ENTRIES).then(|| Job::Begin {
            entries: entries(),
            at: seen_until(session, read_until),
            boot_wall_ns,
            before: None,
        });
        self.writer.finish(Some(last.unwrap_or(Job::Remove(size)))).await;
    }
}

/// The time up to which the engine has seen. At its end it is given a time in the future, so that it tells what it holds back.
fn seen_until(session: &Session, now: Timestamp) -> Timestamp {
    Some(session.engine().now()).filter(|at| *at > Timestamp::ZERO).unwrap_or(now).min(now)
}
