//! Remembers the parsed contents of files, so that a file that has not changed is not opened again.
//!
//! A file has not changed if its device, inode, size, modification time and change time are the same. This
//! does not work for a file that was written just before it was read: a second write within the resolution of
//! the file's times changes none of them. So a file is remembered only if it had not changed for some time
//! when it was read. git has the same problem with its index (`Documentation/technical/racy-git`).
//!
//! **Invariant:** the remembered content is the file's content now, as long as the wall clock is not set
//! back. The owner of a memo begins with an empty one if the clock was set.

use std::{collections::HashMap, os::fd::AsFd as _, path::PathBuf};

use nix::{
    fcntl::AtFlags,
    sys::stat::{self, FileStat},
};

use super::{Folder, ReadError, nanoseconds, single};

/// A file that changed less than this ago is not remembered. The coarsest file times have a resolution of two
/// seconds (FAT), and the wall clock may be set back by a second before that is noticed.
const QUIET_NS: i64 = 4_000_000_000;
/// The most files that are remembered. Further files are read each time.
const MAX_FILES: usize = 1 << 15;

/// The state of a file. Two editions may have different contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edition {
    device: u64,
    inode: u64,
    size: i64,
    /// Wall clock, ns since the epoch, as is `changed`.
    written: i64,
    changed: i64,
}

impl Edition {
    fn of(about: &FileStat) -> Self {
        Self {
            device: about.st_dev,
            inode: about.st_ino,
            size: about.st_size,
            written: nanoseconds(about.st_mtime, about.st_mtime_nsec),
            changed: nanoseconds(about.st_ctime, about.st_ctime_nsec),
        }
    }

    /// Returns when the content was last written: wall clock, ns since the epoch.
    pub(crate) fn written_wall_ns(&self) -> i64 {
        self.written
    }

    /// Returns when the file was last changed: wall clock, ns since the epoch.
    pub(crate) fn changed_wall_ns(&self) -> i64 {
        self.changed
    }

    /// Returns whether any later change shows in the edition. `wall_ns` is a time before the file was read.
    fn is_settled(&self, wall_ns: i64) -> bool {
        self.written.max(self.changed) <= wall_ns.saturating_sub(QUIET_NS)
    }
}

impl Folder {
    /// Returns the edition of a file in the folder.
    pub(crate) fn edition(&self, name: &str) -> Result<Edition, ReadError> {
        self.enter(name)?;
        Ok(Edition::of(&stat::fstatat(&self.fd, single(name)?, AtFlags::AT_SYMLINK_NOFOLLOW)?))
    }

    /// Reads a whole plain file of at most `limit` bytes, and its edition after that.
    fn read_edition(&self, name: &str, limit: usize) -> Result<(Vec<u8>, Edition), ReadError> {
        let (bytes, file) = self.start(name, limit.saturating_add(1))?;
        if bytes.len() > limit {
            return Err(ReadError::TooLarge(limit));
        }
        Ok((bytes, Edition::of(&stat::fstat(file.as_fd())?)))
    }
}

/// The parsed contents of the files in some folders.
#[derive(Debug)]
pub(crate) struct Memo<T> {
    folders: HashMap<PathBuf, HashMap<String, Remembered<T>>>,
    count: usize,
    reading: u64,
    /// The wall clock's time when the reading began.
    wall_ns: i64,
}

#[derive(Debug)]
struct Remembered<T> {
    edition: Edition,
    /// `None` if the file could not be parsed.
    parsed: Option<T>,
    /// The last reading that saw the file.
    reading: u64,
}

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Self { folders: HashMap::new(), count: 0, reading: 0, wall_ns: i64::MIN }
    }
}

impl<T: Clone> Memo<T> {
    /// Begins a reading. Files that the last reading did not see are forgotten.
    pub(crate) fn begin(&mut self, wall_ns: i64) {
        let seen = self.reading;
        self.count = 0;
        self.folders.retain(|_, files| {
            files.retain(|_, file| file.reading == seen);
            self.count += files.len();
            !files.is_empty()
        });
        self.reading += 1;
        self.wall_ns = wall_ns;
    }

    /// Returns the files of one folder.
    pub(crate) fn of<'a>(&'a mut self, folder: &'a Folder) -> Files<'a, T> {
        let Self { folders, count, reading, wall_ns } = self;
        let files = folders.entry(folder.path().to_owned()).or_default();
        Files { folder, files, count, reading: *reading, wall_ns: *wall_ns }
    }
}

/// The files of a folder, and their remembered contents.
pub(crate) struct Files<'a, T> {
    folder: &'a Folder,
    files: &'a mut HashMap<String, Remembered<T>>,
    count: &'a mut usize,
    reading: u64,
    wall_ns: i64,
}

impl<T: Clone> Files<'_, T> {
    /// Reads and parses a plain file of at most `limit` bytes, unless it is remembered. `parse` gets the
    /// content, and when the file was last written: wall clock, ns since the epoch.
    pub(crate) fn read(
        &mut self,
        name: &str,
        limit: usize,
        parse: impl FnOnce(&[u8], i64) -> Option<T>,
    ) -> Result<T, ReadError> {
        let before = self.folder.edition(name)?;
        if let Some(file) = self.files.get_mut(name).filter(|file| file.edition == before) {
            file.reading = self.reading;
            return file.parsed.clone().ok_or(ReadError::Malformed);
        }
        let (bytes, edition) = self.folder.read_edition(name, limit)?;
        let parsed = parse(&bytes, edition.written);
        if before == edition && edition.is_settled(self.wall_ns) && *self.count < MAX_FILES {
            let file = Remembered { edition, parsed: parsed.clone(), reading: self.reading };
            *self.count += usize::from(self.files.insert(name.to_owned(), file).is_none());
        }
        parsed.ok_or(ReadError::Malformed)
    }
}

#[cfg(test)]
mod tests;
