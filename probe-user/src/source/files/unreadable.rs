//! Logs which files of the node could not be read. Passes come every few seconds, and a broken file stays
//! broken, so only changes are logged.

use std::{
    collections::BTreeMap,
    mem,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tracing::warn;

use crate::source::host::{ReadError, skipped::Skipped};

/// The unreadable files of the last pass over one part of the node.
#[derive(Debug)]
pub(super) struct UnreadableFiles {
    named: BTreeMap<PathBuf, ReadError>,
    count: u64,
    /// The sum over all parts. One thread reads them, one after the other.
    total: Arc<AtomicU64>,
}

/// The changes since the last pass.
#[derive(Debug, Default, PartialEq, Eq)]
struct Changes {
    /// Files that have become unreadable, or are unreadable for a new reason.
    begun: Vec<(PathBuf, ReadError)>,
    /// Files that can be read again, or are gone.
    over: Vec<PathBuf>,
}

impl UnreadableFiles {
    pub(super) fn new(total: Arc<AtomicU64>) -> Self {
        Self { named: BTreeMap::new(), count: 0, total }
    }

    /// Logs the changes after a pass.
    pub(super) fn log(&mut self, skipped: Skipped) {
        let Changes { begun, over } = self.changes(skipped);
        let all = self.count;
        if let Some((path, why)) = begun.first() {
            // A container may choose the name. It is quoted, so that it cannot control the terminal.
            warn!(count = begun.len(), all, ?path, %why, "files of the node could not be read");
        }
        if let Some(path) = over.first() {
            warn!(count = over.len(), all, ?path, "files of the node can be read again, or are gone");
        }
    }

    fn changes(&mut self, skipped: Skipped) -> Changes {
        let Skipped { count, named, .. } = skipped;
        let others = self.total.load(Ordering::Relaxed).saturating_sub(self.count);
        self.total.store(others.saturating_add(count), Ordering::Relaxed);
        self.count = count;
        let before = mem::replace(&mut self.named, named);
        let begun = self.named.iter().filter(|(path, why)| before.get(*path) != Some(*why));
        Changes {
            begun: begun.map(|(path, why)| (path.clone(), *why)).collect(),
            over: before.into_keys().filter(|path| !self.named.contains_key(path)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{AtomicU64, Changes, Ordering, ReadError, Skipped, UnreadableFiles};

    fn skipped(all: &[(&str, ReadError)]) -> Skipped {
        let mut skipped = Skipped::default();
        all.iter().for_each(|(path, why)| skipped.add(*path, *why));
        skipped
    }

    #[test]
    fn a_torn_file_is_told_of_once_and_when_it_is_over() {
        let total = Arc::new(AtomicU64::new(0));
        let (mut unread, mut other) =
            (UnreadableFiles::new(Arc::clone(&total)), UnreadableFiles::new(Arc::clone(&total)));
        let torn = [("/a", ReadError::Malformed), ("/b", ReadError::Malformed)];
        let begun = torn.map(|(path, why)| (path.into(), why)).to_vec();
        assert_eq!(unread.changes(skipped(&torn)), Changes { begun, over: Vec::new() });
        other.changes(skipped(&[("/c", ReadError::NotPlain)]));
        for _ in 0..3 {
            assert_eq!(unread.changes(skipped(&torn)), Changes::default());
        }
        assert_eq!(total.load(Ordering::Relaxed), 3);
        // Another reason is a change, and so is a file that can be read again.
        let changes = unread.changes(skipped(&[("/b", ReadError::TooLarge(9))]));
        assert_eq!(
            changes,
            Changes { begun: vec![("/b".into(), ReadError::TooLarge(9))], over: vec!["/a".into()] }
        );
        assert_eq!(total.load(Ordering::Relaxed), 2);
        let changes = unread.changes(Skipped::default());
        assert_eq!(changes, Changes { begun: Vec::new(), over: vec!["/b".into()] });
        assert_eq!(total.load(Ordering::Relaxed), 1);
    }
}
