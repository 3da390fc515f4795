//! The file on the disk, owned by the thread that writes.

use std::{
    fs::{self, File},
    io::{self, Seek as _, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    FILE, Job, MAX_ENTRIES,
    syncer::{Syncer, Ticket},
};
use crate::{
    engine::{Call, world::CheckpointEntry},
    model::time::Timestamp,
    recording::{Header, Writer},
    sink::state::{
        file::{blame, named},
        folder,
    },
};

/// Locked while an agent lives. The file also has the number up to which events may have been reported that
/// no file of the state has. Its bytes are overwritten, which needs no room on a full disk.
const LOCK: &str = ".engine.lock";
/// Has a byte for each agent in a row that began to read the file, and ended before it began one of its own
/// or lived for [`SURVIVED`].
pub(super) const TRIES: &str = ".engine.tries";
/// An agent that lives for this long after it took over the state was not ended by it.
pub(super) const SURVIVED: Duration = Duration::from_secs(60);
/// Events that may still be reported before the agent tries to write the state again, at most 30 s later.
const EVENTS_AHEAD: u64 = 1 << 20;
/// Bytes that are gathered for one write.
const CHUNK_BYTES: usize = 64 << 10;
/// How often what was added is synced. The kernel takes every write, and only a sync shows that the disk lost
/// one.
const SYNC: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Place {
    dir: PathBuf,
    /// The first line of each file.
    header: Header,
    lock: Option<File>,
    /// The file to which calls are added; after a failure, why there is none until it begins anew.
    file: Result<Arc<File>, Failure>,
    /// A file that begins with a later state. It replaces the other one when it is on the disk; until then
    /// calls are added to both.
    next: Option<(Arc<File>, Ticket)>,
    syncer: Syncer,
    /// The sync of the present file, if one goes on.
    sync: Option<Ticket>,
    /// When a sync of the present file was last begun.
    synced_at: Instant,
    was_removed: bool,
    /// The number of the last event that is reported without waiting for the file; 0 if hooks show which
    /// events were reported.
    told: Arc<AtomicU64>,
    /// The number up to which an agent of this boot may have reported more than the file has.
    told_before: Option<u64>,
    /// Whether the lock's file has such a number, or may have one.
    is_marked: bool,
    /// The time of the state in the first file.
    begun_at: Option<Timestamp>,
}

/// An error that is reported again as long as it lasts.
#[derive(Debug)]
enum Failure {
    /// An error of the kernel with its number, which decides the advice to the user.
    Os(i32),
    Other(io::ErrorKind, String),
}

impl Failure {
    fn none_yet() -> Self {
        Self::Other(io::ErrorKind::Other, "no file was begun".to_owned())
    }

    fn of(error: &io::Error) -> Self {
        error.raw_os_error().map_or_else(|| Self::Other(error.kind(), error.to_string()), Self::Os)
    }

    fn again(&self) -> io::Error {
        match self {
            Self::Os(number) => io::Error::from_raw_os_error(*number),
            Self::Other(kind, text) => io::Error::new(*kind, text.clone()),
        }
    }
}

impl Place {
    /// `sync` is called on a thread of its own.
    pub(super) fn new(
        dir: &Path,
        header: &Header,
        sync: impl Fn(&File) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        Ok(Self {
            dir: dir.to_owned(),
            header: header.clone(),
            lock: None,
            file: Err(Failure::none_yet()),
            next: None,
            syncer: Syncer::spawn(sync)?,
            sync: None,
            synced_at: Instant::now(),
            was_removed: false,
            told: Arc::default(),
            told_before: None,
            is_marked: false,
            begun_at: None,
        })
    }

    /// Returns where the number of the last event is kept that is reported without waiting for the file.
    pub(super) fn told(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.told)
    }

    /// Returns the number up to which an agent of this boot may have reported more than the file has, if it
    /// may.
    pub(super) fn told_before(&self) -> Option<u64> {
        self.told_before
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn path(&self) -> PathBuf {
        self.dir.join(FILE)
    }

    /// Makes the directory if it does not exist, and locks it against a second agent.
    pub(super) fn lock(&mut self) -> io::Result<()> {
        let path = self.dir.join(LOCK);
        if self.lock.as_ref().is_some_and(|lock| !folder::is_there(lock, &path)) {
            self.lock = None;
            self.was_removed = true;
        }
        if self.lock.is_some() {
            return Ok(());
        }
        let locked = folder::make(&self.dir).and_then(|()| open_lock(&path)).and_then(folder::lock);
        let lock = locked.map_err(|error| if self.was_removed { folder::removed(&error) } else { error })?;
        if lock.metadata()?.len() == 0 {
            // Takes its room while the disk has some.
            Mark::NONE.write(&lock, &self.header.boot_id).ok();
        } else {
            let Mark(told) = Mark::read(&fs::read(&path).unwrap_or_default(), &self.header.boot_id);
            self.told_before = (told > 0).then_some(told);
            self.is_marked = told > 0;
        }
        self.lock = Some(lock);
        self.was_removed = false;
        Ok(())
    }

    /// Notes the number up to which events may have been reported that no file of the state has.
    fn mark(&mut self, mark: Mark) -> io::Result<()> {
        let Some(lock) = &self.lock else { return Ok(()) };
        self.is_marked = true;
        mark.write(lock, &self.header.boot_id)?;
        self.is_marked = mark != Mark::NONE;
        Ok(())
    }

    pub(super) fn write(&mut self, job: Job) -> io::Result<()> {
        // Beginning a file anew shows by itself whether the disk works.
        let is_new = matches!(&job, Job::Begin { before: None, .. });
        let synced = self.take_synced();
        let done = if is_new { Ok(()) } else { synced };
        let done = done.and_then(|()| match job {
            Job::Begin { entries, at, boot_wall_ns, before } => {
                self.header.boot_wall_ns = boot_wall_ns;
                self.begin(entries, at, before)
            }
            Job::Add(calls) => self.add(&calls),
            Job::Remove(entries) => self.remove(entries),
        });
        done.map_err(|error| {
            self.file = Err(Failure::of(&error));
            self.sync = None;
            self.forget_next();
            let told = self.told.load(Ordering::Acquire);
            if told > 0 {
                // The failure is reported in the same way if this fails as well.
                self.mark(Mark(told.saturating_add(EVENTS_AHEAD))).ok();
            }
            named(&self.path(), error)
        })
    }

    /// `before` has the calls that led from the present file to this state. Without them the present file has
    /// nothing of this state, and the new one must be on the disk before anything else is.
    fn begin(
        &mut self,
        entries: Vec<CheckpointEntry>,
        at: Timestamp,
        before: Option<Vec<u8>>,
    ) -> io::Result<()> {
        self.lock()?;
        let begun_at = *self.begun_at.get_or_insert(at);
        if at.since(begun_at) >= SURVIVED {
            fs::remove_file(self.dir.join(TRIES)).ok();
        }
        let goes_on = self.file.is_ok() && before.is_some();
        if goes_on {
            // If the disk hangs for this long, that blocks this thread, so that the files stay bounded.
            self.await_next()?;
            self.add(&before.unwrap_or_default())?;
        } else {
            self.forget_next();
        }
        let new = self.new_path();
        let written = write_state(&new, &self.header, entries, at).map(Arc::new);
        let file = written.map_err(|error| {
            let error = blame(&new, error);
            fs::remove_file(&new).ok();
            error
        })?;
        let ticket = self.syncer.begin(&file)?;
        self.next = Some((file, ticket));
        if goes_on { Ok(()) } else { self.await_next() }
    }

    /// After a failure nothing is added before the file begins anew: its last line may be a part of one.
    fn add(&mut self, calls: &[u8]) -> io::Result<()> {
        let path = self.path();
        let file = self.file.as_ref().map_err(|failure| failure.again())?;
        if !folder::is_there(file, &path) {
            self.was_removed = true;
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "it was removed or replaced while sandprobe ran",
            ));
        }
        (&**file).write_all(calls).map_err(|error| blame(&path, error))?;
        if let Some((next, _)) = &self.next {
            (&**next).write_all(calls).map_err(|error| blame(&self.new_path(), error))?;
        }
        if self.next.is_none() && self.sync.is_none() && self.synced_at.elapsed() >= SYNC {
            self.sync = Some(self.syncer.begin(file)?);
            self.synced_at = Instant::now();
        }
        Ok(())
    }

    /// Takes the results of the syncs that have ended.
    fn take_synced(&mut self) -> io::Result<()> {
        while let Some((ticket, result)) = self.syncer.poll() {
            self.synced(ticket, result)?;
        }
        Ok(())
    }

    /// Waits until the next file is on the disk, if there is one.
    fn await_next(&mut self) -> io::Result<()> {
        while self.next.is_some() {
            let (ticket, result) = self.syncer.wait()?;
            self.synced(ticket, result)?;
        }
        Ok(())
    }

    /// Takes the result of one sync. A sync of neither file was for a file that was given up.
    fn synced(&mut self, ticket: Ticket, result: io::Result<()>) -> io::Result<()> {
        if self.sync == Some(ticket) {
            self.sync = None;
            return result;
        }
        let Some((file, _)) = self.next.take_if(|(_, next)| *next == ticket) else { return Ok(()) };
        let path = self.path();
        let renamed =
            result.and_then(|()| fs::rename(self.new_path(), &path).map_err(|error| blame(&path, error)));
        if let Err(error) = renamed {
            fs::remove_file(self.new_path()).ok();
            return Err(error);
        }
        self.file = Ok(file);
        self.sync = None;
        self.synced_at = Instant::now();
        fs::remove_file(self.dir.join(TRIES)).ok();
        if self.is_marked { self.mark(Mark::NONE) } else { Ok(()) }
    }

    fn forget_next(&mut self) {
        if self.next.take().is_some() {
            fs::remove_file(self.new_path()).ok();
        }
    }

    fn new_path(&self) -> PathBuf {
        self.dir.join(format!(".{FILE}.new"))
    }

    fn remove(&mut self, entries: usize) -> io::Result<()> {
        self.lock()?;
        fs::remove_file(self.path()).ok();
        Err(io::Error::other(format!(
            "it has {entries} entries, and at most {MAX_ENTRIES} are kept; after a restart sandprobe knows only what it lists"
        )))
    }
}

fn open_lock(path: &Path) -> io::Result<File> {
    match folder::own(File::options().write(true)).open(path) {
        // On a disk that is read-only now an existing lock is enough: the state on it can be read.
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            File::open(path).map_err(|_not_there| error)
        }
        opened => opened.map_err(|error| blame(path, error)),
    }
}

/// The number up to which events may have been reported that no file of the state has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark(u64);

impl Mark {
    const NONE: Self = Self(0);

    /// Writes the mark, always with the same length, so that one overwrites another.
    fn write(self, mut to: &File, boot_id: &str) -> io::Result<()> {
        to.seek(SeekFrom::Start(0))?;
        to.write_all(format!("{boot_id:<36} {:020}\n", self.0).as_bytes())
    }

    /// Reads the mark. A number from another boot does not count.
    fn read(line: &[u8], boot_id: &str) -> Self {
        let line = String::from_utf8_lossy(line);
        let mark = line.split_once(' ').filter(|(boot, _)| *boot == boot_id);
        mark.and_then(|(_, number)| number.trim().parse().ok()).map_or(Self::NONE, Self)
    }
}

/// Writes the state and its time: a file without that time is not whole.
fn write_state(
    path: &Path,
    header: &Header,
    entries: Vec<CheckpointEntry>,
    at: Timestamp,
) -> io::Result<File> {
    let mut file = folder::own(File::options().write(true).truncate(true)).open(path)?;
    let mut lines = Writer::start(header).map_err(io::Error::other)?;
    for entry in entries {
        lines.write(&Call::Restore(Box::new(entry))).map_err(io::Error::other)?;
        if lines.bytes().len() >= CHUNK_BYTES {
            file.write_all(lines.bytes())?;
            lines.bytes().clear();
        }
    }
    lines.write(&Call::Advance(at)).map_err(io::Error::other)?;
    file.write_all(lines.bytes())?;
    Ok(file)
}

#[cfg(test)]
mod tests;
