//! Keeps the engine's state in a file of the state directory, so that the next agent of the same boot
//! continues with it: `engine.jsonl`, a recording that begins with the state at one moment, followed by each
//! call since then.
//!
//! One thread writes, since a disk may be slow, and another one syncs, since the stream of events waits for
//! the first. When many calls have been added, the file is replaced by one that begins with the present
//! state.
//!
//! **Invariant:** a directory that cannot be written is reported ([`StateWrites`]) and never stops the agent.
//! A file that is cut off anywhere loses only the calls after the cut.

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
    sink::state::{
        background::{BackgroundWriter, Failed},
        state_writes::{StateFile, StateWrites},
    },
};

/// The name of the file in the state directory.
const FILE: &str = "engine.jsonl";

/// The file is replaced when this many bytes of calls have been added, or more if the state is large.
const ADDED_BYTES: usize = 4 << 20;
/// Bytes of calls that may be added for each entry of the state. While pods come and go, an entry takes about
/// as much itself, so at most half of what is written is the state.
const ADDED_BYTES_PER_ENTRY: usize = 2 << 10;
/// A state with more entries is not kept. A node of 1,000 pods has some 20,000.
const MAX_ENTRIES: usize = 60_000;
/// Bytes of calls that may wait for a thread that has no room. If there are more, the file begins anew later.
const MAX_WAITING_BYTES: usize = 8 << 20;
/// How long to wait before the file begins anew after a failure.
const RETRY: Duration = Duration::from_secs(30);
/// How long calls are gathered before they are added, since each write wakes two threads.
const GATHER: Duration = Duration::from_millis(50);
/// This many bytes of calls are added at once.
const BATCH_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Checkpoint {
    writer: BackgroundWriter<Job>,
    /// The file that calls are added to.
    file: Option<Growing>,
    /// No file is begun before this time.
    retry_at: Timestamp,
    /// Calls are not added before this time.
    add_at: Timestamp,
    /// Whether calls wait for `add_at`.
    gathers: bool,
    /// The number of jobs that the thread was given.
    given: u64,
    /// The number of the last event that is reported without waiting for the file; 0 if hooks show which
    /// events were reported.
    told: Arc<AtomicU64>,
    /// The number up to which an earlier agent may have reported more than is in the file.
    told_before: Option<u64>,
}

/// Makes the engine settle everything until its own time, as the next agent's engine will. Returns whether
/// that reported nothing.
pub(crate) fn settles(session: &mut Session) -> bool {
    let at = session.engine().now();
    let before = session.output().len();
    // A recording that cannot continue reports that at the next call.
    session.call(Call::Advance(at)).ok();
    session.output().len() == before
}

#[derive(Debug)]
struct Growing {
    /// Bytes of calls that were added, and that may be added.
    added: usize,
    limit: usize,
}

#[derive(Debug)]
enum Job {
    /// Replaces the file by one that begins with this state, as of `at`. `boot_wall_ns` is the wall time of
    /// the boot in its events. `before` has the calls, as lines, that lead from the present file to this
    /// state; `None`: they are not known, or it is the last job.
    Begin { entries: Vec<CheckpointEntry>, at: Timestamp, boot_wall_ns: i64, before: Option<Vec<u8>> },
    /// Adds these calls, as lines.
    Add(Vec<u8>),
    /// Removes the file, which would be out of date: the state has this many entries, more than are kept.
    Remove(usize),
}

impl Checkpoint {
    /// Starts the thread, which owns `place`.
    fn start(mut place: Place, writes: StateWrites) -> io::Result<Self> {
        let dir = place.dir().to_owned();
        let told = place.told();
        let told_before = place.told_before();
        let writer =
            BackgroundWriter::spawn(StateFile::Checkpoint, &dir, writes, move |job, failed: &Failed| {
                let done = place.write(job);
                if done.is_err() {
                    failed.set(true);
                }
                done
            })?;
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

    /// Notes that events up to this number are reported now, whatever becomes of the file, and that no hooks
    /// will show it. If the file lacks them because it cannot be written, the next agent is informed.
    pub(crate) fn will_tell(&self, seq: u64) {
        self.told.store(seq, Ordering::Release);
    }

    /// Returns the number up to which an agent of this boot may have reported more than is in the file, if it
    /// may.
    pub(crate) fn told_before(&self) -> Option<u64> {
        self.told_before
    }

    /// Gives the thread what the session did since the last call. Returns the number of the write that has
    /// all of it; `None` if the state is not kept.
    ///
    /// `is_all_reported`: every event was reported, so a file that begins with the present state leaves none
    /// out. Otherwise the file is replaced later, if possible.
    pub(crate) fn update(
        &mut self,
        now: Timestamp,
        session: &mut Session,
        is_all_reported: bool,
    ) -> Option<u64> {
        // A call that cannot be written as a line ends the journal. A thread that has room takes whatever
        // waits: a full ring can give many calls, and nothing is written before all of it was read.
        let is_kept = session
            .journal()
            .is_some_and(|calls| calls.len() <= MAX_WAITING_BYTES || self.writer.reserve().is_some());
        if self.writer.failed().take() || self.file.is_some() && !is_kept {
            self.give_up(now, session);
        }
        self.gathers = false;
        match &mut self.file {
            Some(file) if file.added < file.limit || !is_all_reported && file.added < 2 * file.limit => {
                if let Some(calls) = session.journal().filter(|calls| !calls.is_empty()) {
                    // A file that is full waits for a moment in which nothing waits.
                    if now < self.add_at && calls.len() < BATCH_BYTES && file.added < file.limit {
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
                if !is_all_reported || settles(session) {
                    self.begin(now, session);
                } else {
                    // What that reported goes with the calls that led to it, at once.
                    self.gathers = true;
                }
            }
            Some(_) | None => {}
        }
        self.file.as_ref()?;
        // What is gathered, or found no room, goes with the next write.
        let waits = session.journal().is_some_and(|calls| !calls.is_empty());
        Some(self.given + u64::from(waits))
    }

    /// Returns when calls that are gathered are to be added.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        self.gathers.then_some(self.add_at)
    }

    /// Makes the next update add its calls at once.
    pub(crate) fn flush_soon(&mut self) {
        self.add_at = Timestamp::ZERO;
    }

    /// Whether the state is in the file, as far as is known.
    pub(crate) fn is_kept(&self) -> bool {
        self.file.is_some()
    }

    /// Returns how many writes the thread was given.
    pub(crate) fn given(&self) -> u64 {
        self.given
    }

    /// Returns how many writes are done.
    pub(crate) fn written(&self) -> u64 {
        self.writer.done().count()
    }

    /// Returns when another write is done.
    pub(crate) async fn writes(&self) {
        self.writer.done().changed().await;
    }

    /// Begins a file with the present state. The file's time is the engine's, which must have settled
    /// everything until then: the next agent makes the same calls with the same results. `now` is the time of
    /// an engine that was given none.
    pub(crate) fn begin(&mut self, now: Timestamp, session: &mut Session) {
        let Some(room) = self.writer.reserve() else { return };
        self.given += 1;
        let size = session.engine().size();
        if size > MAX_ENTRIES {
            self.give_up(now, session);
            room.send(Job::Remove(size));
            return;
        }
        let entries = session.engine().dump();
        let before = if self.file.is_some() { session.journal().map(mem::take) } else { None };
        self.file = Some(Growing { added: 0, limit: ADDED_BYTES.max(entries.len() * ADDED_BYTES_PER_ENTRY) });
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

    /// Writes the state for the last time; returns when that is done or has failed. The agent read nothing
    /// after `read_until`: its end can take many seconds, in which nobody sees what happens.
    pub(crate) async fn finish(self, read_until: Timestamp, session: &Session) {
        let size = session.engine().size();
        let last = if size <= MAX_ENTRIES {
            Job::Begin {
                entries: session.engine().dump(),
                at: seen_until(session, read_until),
                boot_wall_ns: session.boot_wall_ns(),
                before: None,
            }
        } else {
            Job::Remove(size)
        };
        self.writer.finish(Some(last)).await;
    }
}

/// Returns the time up to which the engine has seen. At its end it is given a time in the future, so that it
/// reports what it holds back.
fn seen_until(session: &Session, now: Timestamp) -> Timestamp {
    let at = session.engine().now();
    if at > Timestamp::ZERO { at.min(now) } else { now }
}
