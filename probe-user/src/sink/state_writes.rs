//! The results of writes to the state directory. The threads that write report here; the log, `/readyz`, the metrics
//! and the banner read it.

use std::{collections::BTreeMap, io, path::Path};

use tokio::sync::watch;
use tracing::warn;

use super::{escape::escaped, file::number};

/// A file of the state directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StateFile {
    Findings,
    Checkpoint,
    History,
    /// Which Events the API server was told.
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

/// The results of a file so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Writes that failed.
    pub(crate) failures: u64,
    /// Why the last write failed, if it did: what, where, what to do.
    pub(crate) trouble: Option<String>,
}

/// The result for each file that was written or tried. A clone shares it.
#[derive(Clone, Debug, Default)]
pub(crate) struct StateWrites(watch::Sender<BTreeMap<StateFile, Outcome>>);

impl StateWrites {
    /// Records a result. A failure is logged once for each reason, and so is its end.
    pub(crate) fn note(&self, file: StateFile, dir: &Path, done: io::Result<()>) {
        let dir = dir.display().to_string();
        let (contents, dir) = (file.contents(), escaped(&dir));
        let now = done.err().map(|error| {
            let todo = todo(&error);
            format!("{contents} cannot be kept in {dir} (--state-dir): {error}{todo}")
        });
        let mut before = None;
        self.0.send_modify(|outcomes| {
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

    #[must_use]
    pub(crate) fn outcomes(&self) -> BTreeMap<StateFile, Outcome> {
        self.0.borrow().clone()
    }

    /// The failures of the last writes.
    #[must_use]
    pub(crate) fn troubles(&self) -> Vec<String> {
        self.0.borrow().values().filter_map(|outcome| outcome.trouble.clone()).collect()
    }

    /// Whether the first write of the file succeeded; waits for it.
    pub(crate) async fn has_begun(&self, file: StateFile) -> bool {
        let mut outcomes = self.0.subscribe();
        let tried = outcomes.wait_for(|outcomes| outcomes.contains_key(&file)).await;
        tried.is_ok_and(|outcomes| outcomes.get(&file).is_some_and(|outcome| outcome.trouble.is_none()))
    }
}

/// What to do about the error, where the error alone does not say it.
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
    use std::{io, path::Path};

    use super::{StateFile, StateWrites};
    use crate::sink::file::named;

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
