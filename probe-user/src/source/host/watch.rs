//! Records which file a reader of the node's files is at, for its supervisor. A read can hang for ever:
//! `/proc/PID/cmdline` hangs while a thread of the process holds its memory map and waits for a disk or file
//! server that is gone.
//!
//! **Invariant:** a path at which a reader hangs is not tried again until that reader is back.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use super::ReadError;

/// Files that the kernel reads from a process's memory.
const OF_MEMORY: [&str; 2] = ["cmdline", "environ"];

/// The paths at which readers hang.
#[derive(Debug, Default)]
pub(crate) struct Avoided(Mutex<Paths>);

#[derive(Debug, Default)]
struct Paths {
    paths: BTreeSet<PathBuf>,
    /// No more readers can be abandoned, so the files that hang most often are not read.
    memory: bool,
}

impl Avoided {
    pub(crate) fn add(&self, path: PathBuf) {
        hold(&self.0).paths.insert(path);
    }

    pub(crate) fn remove(&self, path: &Path) {
        hold(&self.0).paths.remove(path);
    }

    /// Sets whether files of process memory are avoided too.
    pub(crate) fn spare_memory(&self, spare: bool) {
        hold(&self.0).memory = spare;
    }

    fn has(&self, path: &Path) -> bool {
        let Paths { paths, memory } = &*hold(&self.0);
        paths.contains(path) || (*memory && is_of_memory(path))
    }
}

fn is_of_memory(path: &Path) -> bool {
    path.starts_with("/proc") && OF_MEMORY.iter().any(|it| path.file_name() == Some((*it).as_ref()))
}

/// A reader, which has a thread of its own.
#[derive(Debug)]
pub(crate) struct Reader {
    avoided: Arc<Avoided>,
    at: Mutex<Option<(PathBuf, Instant)>>,
}

impl Reader {
    #[must_use]
    pub(crate) fn new(avoided: Arc<Avoided>) -> Self {
        Self { avoided, at: Mutex::new(None) }
    }

    /// Records that the reader is about to open or read the path; refuses a path at which another reader
    /// hangs.
    pub(in crate::source) fn enter(&self, path: PathBuf) -> Result<(), ReadError> {
        if self.avoided.has(&path) {
            return Err(ReadError::Unanswered);
        }
        *hold(&self.at) = Some((path, Instant::now()));
        Ok(())
    }

    /// Records that the reader is at no file.
    pub(crate) fn leave(&self) {
        *hold(&self.at) = None;
    }

    /// Returns the file that the reader is at, and since when.
    #[must_use]
    pub(crate) fn at(&self) -> Option<(PathBuf, Instant)> {
        hold(&self.at).clone()
    }
}

fn hold<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds the lock.
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, sync::Arc};

    use super::{Avoided, ReadError, Reader};
    use crate::source::host::HostRoot;

    #[test]
    fn a_path_at_which_somebody_hangs_is_not_tried() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(dir.path().join("proc/7")).expect("directories");
        for name in ["cmdline", "stat"] {
            fs::write(dir.path().join("proc/7").join(name), name).expect("a file");
        }
        let avoided = Arc::new(Avoided::default());
        let reader = Arc::new(Reader::new(Arc::clone(&avoided)));
        let root =
            HostRoot::open(dir.path()).expect("the root").watched(Arc::clone(&reader)).expect("a handle");
        let read = |name: &str| root.folder("/proc/7").and_then(|folder| folder.read(name, 9));
        assert_eq!(read("cmdline").as_deref(), Ok(&b"cmdline"[..]));
        let at = reader.at().map(|(path, _)| path);
        assert_eq!(at.as_deref(), Some(Path::new("/proc/7/cmdline")));
        reader.leave();
        assert_eq!(reader.at(), None);
        avoided.add("/proc/7/cmdline".into());
        assert_eq!(read("cmdline"), Err(ReadError::Unanswered));
        assert_eq!(read("stat").as_deref(), Ok(&b"stat"[..]));
        avoided.remove(Path::new("/proc/7/cmdline"));
        avoided.spare_memory(true);
        assert_eq!(read("cmdline"), Err(ReadError::Unanswered));
        assert_eq!(read("stat").as_deref(), Ok(&b"stat"[..]));
        avoided.spare_memory(false);
        assert_eq!(read("cmdline").as_deref(), Ok(&b"cmdline"[..]));
    }
}
