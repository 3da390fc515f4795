//! The file on the disk, owned by the thread that writes.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{ENTRIES, FILE, Job};
use crate::{
    engine::{Call, world::CheckpointEntry},
    model::time::Timestamp,
    recording::{Header, Writer},
    sink::{file::blame, folder},
};

/// Locked while an agent lives.
const LOCK: &str = ".engine.lock";
/// How many agents in a row have begun to read the file, and not begun one of their own.
pub(super) const TRIES: &str = ".engine.tries";
/// As many agents may try. A state that ends them all would be read for ever.
const MOST_TRIES: usize = 10;
/// How many bytes are gathered for one write.
const PIECE: usize = 64 << 10;
/// How often what was added is synced. The kernel takes every write, and only a sync tells that the disk lost one.
const SYNC: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Place {
    dir: PathBuf,
    /// The first line of each file.
    header: Header,
    lock: Option<File>,
    /// The file to which calls are added. After a failure, why there is none until it begins anew.
    file: Result<Synced, Failure>,
    was_removed: bool,
}

/// A file whose bytes were on the disk at some time.
#[derive(Debug)]
struct Synced {
    file: File,
    at: Instant,
}

impl Synced {
    fn new(file: File) -> io::Result<Self> {
        file.sync_data()?;
        Ok(Self { file, at: Instant::now() })
    }

    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        if self.at.elapsed() >= SYNC {
            self.file.sync_data()?;
            self.at = Instant::now();
        }
        Ok(())
    }
}

/// An error that is told again as long as it lasts.
#[derive(Debug)]
enum Failure {
    /// The kernel's, with its number: what to do is said by that.
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
    pub(super) fn new(dir: &Path, header: &Header) -> Self {
        Self {
            dir: dir.to_owned(),
            header: header.clone(),
            lock: None,
            file: Err(Failure::none_yet()),
            was_removed: false,
        }
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
            (self.lock, self.was_removed) = (None, true);
        }
        if self.lock.is_some() {
            return Ok(());
        }
        // One that is there is enough on a disk that is read-only now: the state on it can be read.
        let open = || match folder::own(File::options().write(true)).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                File::open(&path).map_err(|_not_there| error)
            }
            opened => opened.map_err(|error| blame(&path, error)),
        };
        let locked = folder::make(&self.dir).and_then(|()| open()).and_then(folder::lock);
        self.lock =
            Some(locked.map_err(|error| if self.was_removed { folder::removed(&error) } else { error })?);
        self.was_removed = false;
        Ok(())
    }

    /// Counts an agent that reads the file. False if too many have tried in vain.
    pub(super) fn may_try(&self) -> bool {
        let path = self.dir.join(TRIES);
        let tries = fs::read(&path).map_or(0, |tries| tries.len());
        if tries >= MOST_TRIES {
            return false;
        }
        // Without room for it nothing is counted.
        let file = folder::own(File::options().append(true)).open(path);
        file.and_then(|mut file| file.write_all(b".")).ok();
        true
    }

    pub(super) fn write(&mut self, job: Job) -> io::Result<()> {
        let done = match job {
            Job::Begin { entries, at, boot_wall_ns } => {
                self.header.boot_wall_ns = boot_wall_ns;
                self.begin(entries, at)
            }
            Job::Add(calls) => self.add(&calls),
            Job::Remove(entries) => self.remove(entries),
        };
        done.inspect_err(|error| self.file = Err(Failure::of(error)))
    }

    fn begin(&mut self, entries: Vec<CheckpointEntry>, at: Timestamp) -> io::Result<()> {
        self.lock()?;
        let (new, path) = (self.dir.join(format!(".{FILE}.new")), self.path());
        let written = write_state(&new, &self.header, entries, at).map_err(|error| blame(&new, error));
        let replaced = written.and_then(|file| {
            let file = Synced::new(file)?;
            fs::rename(&new, &path).map_err(|error| blame(&path, error))?;
            Ok(file)
        });
        if replaced.is_err() {
            fs::remove_file(&new).ok();
        }
        self.file = Ok(replaced?);
        fs::remove_file(self.dir.join(TRIES)).ok();
        Ok(())
    }

    /// After a failure nothing is added before the file begins anew: its last line may be a part of one.
    fn add(&mut self, calls: &[u8]) -> io::Result<()> {
        let path = self.path();
        let file = self.file.as_mut().map_err(|failure| failure.again())?;
        if !folder::is_there(&file.file, &path) {
            self.was_removed = true;
            return Err(blame(&path, io::ErrorKind::NotFound.into()));
        }
        file.add(calls).map_err(|error| blame(&path, error))
    }

    fn remove(&mut self, entries: usize) -> io::Result<()> {
        self.lock()?;
        fs::remove_file(self.path()).ok();
        Err(io::Error::other(format!(
            "it has {entries} entries, and at most {ENTRIES} are kept; after a restart sandprobe knows only what it lists"
        )))
    }
}

/// Writes the state and the time of it: a file without that time is not whole.
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
        if lines.bytes().len() >= PIECE {
            file.write_all(lines.bytes())?;
            lines.bytes().clear();
        }
    }
    lines.write(&Call::Advance(at)).map_err(io::Error::other)?;
    file.write_all(lines.bytes())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::Failure;

    /// Else the log would name it twice, once without what to do.
    #[test]
    fn a_failure_is_the_same_when_it_is_told_again() {
        for error in
            [io::Error::from_raw_os_error(libc::EIO), io::ErrorKind::NotFound.into(), io::Error::other("no")]
        {
            let again = Failure::of(&error).again();
            assert_eq!((again.raw_os_error(), again.kind()), (error.raw_os_error(), error.kind()));
            assert_eq!(again.to_string(), error.to_string());
        }
    }
}
