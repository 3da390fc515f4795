//! The results of writes to the state directory. The threads that write report here; the log, `/readyz`, the
//! metrics and the banner read the results.

use std::{
    collections::BTreeMap,
    io,
    path::Path,
    time::{Duration, Instant},
};

use tokio::sync::watch;
use tracing::warn;

use super::{file::number, folder};
use crate::sink::escape::escaped;

/// A file of the state directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StateFile {
    Findings,
    Checkpoint,
    History,
    /// The Events that were reported to the API server.
    Events,
}

impl StateFile {
    /// The value of a metric's label.
    #[must_use]
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Findings => "findings",
            Self::Checkpoint => "checkpoint",
            Self::History => "history",
            Self::Events => "events",
        }
    }

    const fn contents(self) -> &'static str {
        match self {
            Self::Findings => "findings",
            Self::Checkpoint => "the engine's state",
            Self::History => "the history of boots",
            Self::Events => "which Events were written",
        }
    }
}

/// The results of one file so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Writes that failed.
    pub(crate) failures: u64,
    /// Why the last write failed, if it did: what, where, what to do.
    pub(crate) trouble: Option<String>,
}

/// A write that takes longer is reported as hanging.
const HANGS: Duration = Duration::from_secs(10);

/// The result for each file that was written or tried, and the writes under way. A clone shares them.
#[derive(Clone, Debug, Default)]
pub(crate) struct StateWrites {
    outcomes: watch::Sender<BTreeMap<StateFile, Outcome>>,
    /// The writes under way, by number.
    writing: watch::Sender<BTreeMap<u64, Write>>,
    /// Why the directory could not be made at the start, until a write succeeds.
    unmade: watch::Sender<Option<String>>,
}

#[derive(Clone, Debug)]
struct Write {
    file: StateFile,
    dir: String,
    since: Instant,
}

/// A write under way, until this is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Writing {
    all: watch::Sender<BTreeMap<u64, Write>>,
    number: u64,
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.all.send_modify(|all| drop(all.remove(&self.number)));
    }
}

impl StateWrites {
    /// Records that a write or a sync of this file begins.
    pub(crate) fn begin(&self, file: StateFile, dir: &Path) -> Writing {
        let write = Write { file, dir: dir.display().to_string(), since: Instant::now() };
        let mut number = 0;
        self.writing.send_modify(|all| {
            number = all.last_key_value().map_or(0, |(last, _)| last + 1);
            all.insert(number, write);
        });
        Writing { all: self.writing.clone(), number }
    }

    /// Makes the directory, if there is one, before the agent is confined: afterwards it may make none, and
    /// an error would be that of the confinement. If it cannot be made, the agent runs on, and this is the
    /// trouble of each file.
    pub(crate) fn of(dir: Option<&Path>) -> Self {
        let writes = Self::default();
        if let Some(dir) = dir {
            writes.make(dir);
        }
        writes
    }

    pub(in crate::sink) fn make(&self, dir: &Path) {
        if let Err(error) = folder::make(dir) {
            let why = unmade(dir, &error);
            warn!("{why}");
            self.unmade.send_replace(Some(why));
        }
    }

    /// Whether the directory could be made at the start, or was there.
    pub(crate) fn is_made(&self) -> bool {
        self.unmade.borrow().is_none()
    }

    /// Records a result. A failure is logged once for each reason, and so is its end.
    pub(crate) fn note(&self, file: StateFile, dir: &Path, done: io::Result<()>) {
        let dir = dir.display().to_string();
        let contents = file.contents();
        let dir = escaped(&dir);
        let unmade = self.unmade.borrow().clone();
        let is_reported = unmade.is_some();
        let now = match (done, unmade) {
            (Ok(()), _) => {
                self.unmade.send_replace(None);
                None
            }
            (Err(_), Some(unmade)) => Some(unmade),
            (Err(error), None) => {
                let todo = todo(&error);
                Some(format!("{contents} cannot be kept in {dir} (--state-dir): {error}{todo}"))
            }
        };
        let mut before = None;
        self.outcomes.send_modify(|outcomes| {
            if now.is_none() && is_reported {
                // The directory is there now, so no file lacks it.
                outcomes.values_mut().for_each(|outcome| outcome.trouble = None);
            }
            let outcome = outcomes.entry(file).or_default();
            outcome.failures += u64::from(now.is_some());
            before = std::mem::replace(&mut outcome.trouble, now.clone());
        });
        match (before, now) {
            (before, Some(now)) if !is_reported && before.as_ref() != Some(&now) => warn!("{now}"),
            (Some(_), None) => warn!("{contents} can be kept in {dir} again"),
            _ => {}
        }
    }

    /// The last results, and the writes that hang.
    #[must_use]
    pub(crate) fn outcomes(&self) -> BTreeMap<StateFile, Outcome> {
        self.outcomes_at(Instant::now())
    }

    fn outcomes_at(&self, now: Instant) -> BTreeMap<StateFile, Outcome> {
        let mut outcomes = self.outcomes.borrow().clone();
        for Write { file, dir, since } in self.writing.borrow().values() {
            let took = now.saturating_duration_since(*since);
            if took >= HANGS {
                let trouble = format!(
                    "writing {} in {} (--state-dir) hangs for {} s",
                    file.contents(),
                    escaped(dir),
                    took.as_secs()
                );
                outcomes.entry(*file).or_default().trouble.get_or_insert(trouble);
            }
        }
        outcomes
    }

    /// Why the last writes failed, and which writes hang.
    #[must_use]
    pub(crate) fn troubles(&self) -> Vec<String> {
        let unmade = self.unmade.borrow().clone();
        let each = self.outcomes().into_values().filter_map(|outcome| outcome.trouble);
        let mut troubles: Vec<String> = unmade.into_iter().chain(each).collect();
        troubles.dedup();
        troubles
    }

    /// Waits for the first write of the file, and returns whether it succeeded.
    pub(crate) async fn has_begun(&self, file: StateFile) -> bool {
        let mut outcomes = self.outcomes.subscribe();
        let tried = outcomes.wait_for(|outcomes| outcomes.contains_key(&file)).await;
        tried.is_ok_and(|outcomes| outcomes.get(&file).is_some_and(|outcome| outcome.trouble.is_none()))
    }
}

/// Returns the message that the directory cannot be made: what, where, why, what to do.
fn unmade(dir: &Path, error: &io::Error) -> String {
    let todo = match todo(error) {
        "" => "; name another directory",
        todo => todo,
    };
    let dir = dir.display().to_string();
    let dir = escaped(&dir);
    format!(
        "nothing can be kept in {dir} (--state-dir), which cannot be made: {error}{todo}, and start sandprobe again"
    )
}

/// Returns what to do about the error, if the error alone does not say it.
fn todo(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; make room there",
        io::ErrorKind::ReadOnlyFilesystem => "; mount it writable or name another directory",
        io::ErrorKind::PermissionDenied => "; let sandprobe's user write there or name another directory",
        io::ErrorKind::AlreadyExists => "; remove what is in its place or name another directory",
        io::ErrorKind::NotADirectory => "; name a directory",
        _ if number(error) == Some(libc::EIO) => {
            "; the disk fails, and the kernel's log (dmesg) has the reason"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io, path::Path, time::Instant};

    use super::{HANGS, StateFile, StateWrites, unmade};
    use crate::sink::state::file::named;

    #[test]
    fn a_failure_is_reported_with_what_to_do_until_a_write_succeeds() {
        let (writes, dir) = (StateWrites::default(), Path::new("/st\nate"));
        assert!(writes.outcomes().is_empty() && writes.troubles().is_empty());
        let full = || Err(io::ErrorKind::StorageFull.into());
        writes.note(StateFile::Findings, dir, full());
        writes.note(StateFile::Findings, dir, full());
        writes.note(StateFile::History, dir, Ok(()));
        let troubles = writes.troubles();
        let said = "findings cannot be kept in /st\\nate (--state-dir): no storage space; make room there";
        assert_eq!(troubles, [said]);
        writes.note(StateFile::Findings, dir, Ok(()));
        assert_eq!(writes.troubles(), [""; 0]);
        let failures: Vec<_> = writes.outcomes().into_iter().map(|(file, it)| (file, it.failures)).collect();
        assert_eq!(failures, [(StateFile::Findings, 2), (StateFile::History, 0)]);
        let fails = || io::Error::from_raw_os_error(libc::EIO);
        for error in [fails(), named(Path::new("/state/engine.jsonl"), fails())] {
            let said = format!(": {error}; the disk fails, and the kernel's log (dmesg) has the reason");
            writes.note(StateFile::Findings, dir, Err(error));
            let trouble = writes.troubles().pop().expect("a trouble");
            assert!(trouble.ends_with(&said), "{trouble}");
        }
    }

    /// A confined agent may make no directory, so a write fails for another reason than the first try did.
    #[test]
    fn a_directory_that_cannot_be_made_is_one_trouble_with_its_own_reason() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("file");
        fs::write(&file, "").expect("a file");
        let below = file.join("below");
        for (path, reason) in [
            (&*file, "File exists (os error 17); remove what is in its place or name another directory"),
            (&*below, "Not a directory (os error 20); name a directory"),
            (Path::new("/proc/x"), "No such file or directory (os error 2); name another directory"),
        ] {
            let writes = StateWrites::default();
            writes.make(path);
            let path_name = path.display();
            let said = format!(
                "nothing can be kept in {path_name} (--state-dir), which cannot be made: {reason}, and start sandprobe again"
            );
            assert_eq!(writes.troubles(), [&*said]);
            for file in [StateFile::Findings, StateFile::Checkpoint, StateFile::History] {
                writes.note(file, path, Err(io::ErrorKind::PermissionDenied.into()));
                assert_eq!(writes.outcomes()[&file].trouble.as_ref(), Some(&said));
            }
            assert_eq!((writes.troubles(), writes.is_made()), (vec![said], false));
        }
        let said = unmade(Path::new("/s"), &io::ErrorKind::ReadOnlyFilesystem.into());
        assert!(
            said.ends_with("; mount it writable or name another directory, and start sandprobe again"),
            "{said}"
        );
    }

    #[test]
    fn a_directory_that_is_made_or_was_there_is_no_trouble() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path().join("deep/er");
        let writes = StateWrites::default();
        for _ in 0..2 {
            writes.make(&dir);
            assert!(dir.is_dir() && writes.is_made() && writes.troubles().is_empty());
        }
        writes.note(StateFile::Findings, Path::new("/s"), Err(io::ErrorKind::PermissionDenied.into()));
        let said = "findings cannot be kept in /s (--state-dir): permission denied; let sandprobe's user write there or \
                    name another directory";
        assert_eq!(writes.troubles(), [said]);

        // An agent that is not confined makes the directory later.
        let writes = StateWrites::default();
        writes.make(Path::new("/proc/x"));
        writes.note(StateFile::Findings, Path::new("/s"), Ok(()));
        assert!(writes.is_made() && writes.troubles().is_empty());
    }

    #[test]
    fn a_write_that_hangs_is_reported_until_it_ends() {
        let (writes, dir) = (StateWrites::default(), Path::new("/st\nate"));
        let troubles = |after| {
            let outcomes = writes.outcomes_at(Instant::now() + after).into_values();
            outcomes.filter_map(|outcome| outcome.trouble).collect::<Vec<_>>()
        };
        let [first, second] =
            [StateFile::Checkpoint, StateFile::Checkpoint].map(|file| writes.begin(file, dir));
        drop(first);
        let third = writes.begin(StateFile::Findings, dir);
        assert_eq!(troubles(HANGS / 2), [""; 0]);
        let said = troubles(HANGS * 3);
        assert_eq!(said.len(), 2, "{said:?}");
        assert_eq!(said[0], "writing findings in /st\\nate (--state-dir) hangs for 30 s");
        drop((second, third));
        assert_eq!(troubles(HANGS * 3), [""; 0]);
    }

    #[tokio::test]
    async fn it_has_begun_only_if_the_first_write_succeeds() {
        for is_kept in [true, false] {
            let writes = StateWrites::default();
            let begun = writes.clone();
            let begun = tokio::spawn(async move { begun.has_begun(StateFile::Findings).await });
            // A success of the other file is not enough.
            writes.note(StateFile::History, Path::new("/s"), Ok(()));
            tokio::task::yield_now().await;
            assert!(!begun.is_finished());
            let done = if is_kept { Ok(()) } else { Err(io::ErrorKind::ReadOnlyFilesystem.into()) };
            writes.note(StateFile::Findings, Path::new("/s"), done);
            assert_eq!(begun.await.expect("no panic"), is_kept);
        }
    }
}
