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

use super::file::number;
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
            Self::Events => "which Events were told",
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

    /// Records a result. A failure is logged once for each reason, and so is its end.
    pub(crate) fn note(&self, file: StateFile, dir: &Path, done: io::Result<()>) {
        let dir = dir.display().to_string();
        let contents = file.contents();
        let dir = escaped(&dir);
        let now = done.err().map(|error| {
            let todo = todo(&error);
            format!("{contents} cannot be kept in {dir} (--state-dir): {error}{todo}")
        });
        let mut before = None;
        self.outcomes.send_modify(|outcomes| {
            let outcome = outcomes.entry(file).or_default();
            outcome.failures += u64::from(now.is_some());
            before = std::mem::replace(&mut outcome.trouble, now.clone());
        });
        match (before, now) {
            (before, Some(now)) if before.as_ref() != Some(&now) => warn!("{now}"),
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
        self.outcomes().into_values().filter_map(|outcome| outcome.trouble).collect()
    }

    /// Waits for the first write of the file, and returns whether it succeeded.
    pub(crate) async fn has_begun(&self, file: StateFile) -> bool {
        let mut outcomes = self.outcomes.subscribe();
        let tried = outcomes.wait_for(|outcomes| outcomes.contains_key(&file)).await;
        tried.is_ok_and(|outcomes| outcomes.get(&file).is_some_and(|outcome| outcome.trouble.is_none()))
    }
}

/// Returns what to do about the error, if the error alone does not say it.
fn todo(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; make room there",
        io::ErrorKind::ReadOnlyFilesystem => "; mount it writable or name another directory",
        io::ErrorKind::PermissionDenied => "; let sandprobe's user write there or name another directory",
        io::ErrorKind::NotADirectory => "; name a directory",
        _ if number(error) == Some(libc::EIO) => {
            "; the disk fails, and the kernel's log (dmesg) has the reason"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::{io, path::Path, time::Instant};

    use super::{HANGS, StateFile, StateWrites};
    use crate::sink::state::file::named;

    #[test]
    fn a_failure_is_told_with_what_to_do_until_a_write_succeeds() {
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

    #[test]
    fn a_write_that_hangs_is_told_until_it_ends() {
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
