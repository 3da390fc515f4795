//! What of the node could not be read, from one pass to the next: told when it begins and when it is over, since passes
//! come every few seconds and a file that a power cut has torn stays torn.

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

/// As the last pass over one part of the node left it.
#[derive(Debug)]
pub(super) struct Unread {
    named: BTreeMap<PathBuf, ReadError>,
    count: u64,
    /// Of all parts together. One thread reads them, one after the other.
    total: Arc<AtomicU64>,
}

/// What is not as it was.
#[derive(Debug, Default, PartialEq, Eq)]
struct Turn {
    /// Unreadable now, or for another reason than before.
    begun: Vec<(PathBuf, ReadError)>,
    /// Readable again, or gone.
    over: Vec<PathBuf>,
}

impl Unread {
    pub(super) fn new(total: Arc<AtomicU64>) -> Self {
        Self { named: BTreeMap::new(), count: 0, total }
    }

    /// After a pass: tells what has changed.
    pub(super) fn tell(&mut self, skipped: Skipped) {
        let Turn { begun, over } = self.turn(skipped);
        let all = self.count;
        if let Some((path, why)) = begun.first() {
            // A name may be a container's own: quoted, it does nothing to a terminal.
            warn!(count = begun.len(), all, ?path, %why, "files of the node could not be read");
        }
        if let Some(path) = over.first() {
            warn!(count = over.len(), all, ?path, "files of the node can be read again, or are gone");
        }
    }

    fn turn(&mut self, skipped: Skipped) -> Turn {
        let Skipped { count, named, .. } = skipped;
        let others = self.total.load(Ordering::Relaxed).saturating_sub(self.count);
        self.total.store(others.saturating_add(count), Ordering::Relaxed);
        self.count = count;
        let before = mem::replace(&mut self.named, named);
        let is_new = |(path, why): &(&PathBuf, &ReadError)| before.get(*path) != Some(*why);
        Turn {
            begun: self.named.iter().filter(is_new).map(|(path, why)| (path.clone(), *why)).collect(),
            over: before.into_keys().filter(|path| !self.named.contains_key(path)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{AtomicU64, Ordering, ReadError, Skipped, Turn, Unread};

    fn skipped(all: &[(&str, ReadError)]) -> Skipped {
        let mut skipped = Skipped::default();
        all.iter().for_each(|(path, why)| skipped.add(*path, *why));
        skipped
    }

    #[test]
    fn a_torn_file_is_told_of_once_and_when_it_is_over() {
        let total = Arc::new(AtomicU64::new(0));
        let (mut unread, mut other) = (Unread::new(Arc::clone(&total)), Unread::new(Arc::clone(&total)));
        let torn = [("/a", ReadError::Malformed), ("/b", ReadError::Malformed)];
        let begun = torn.map(|(path, why)| (path.into(), why)).to_vec();
        assert_eq!(unread.turn(skipped(&torn)), Turn { begun, over: Vec::new() });
        other.turn(skipped(&[("/c", ReadError::NotPlain)]));
        for _ in 0..3 {
            assert_eq!(unread.turn(skipped(&torn)), Turn::default());
        }
        assert_eq!(total.load(Ordering::Relaxed), 3);
        // Another reason is news, and so is one that is read again.
        let turn = unread.turn(skipped(&[("/b", ReadError::TooLarge(9))]));
        assert_eq!(
            turn,
            Turn { begun: vec![("/b".into(), ReadError::TooLarge(9))], over: vec!["/a".into()] }
        );
        assert_eq!(total.load(Ordering::Relaxed), 2);
        let turn = unread.turn(Skipped::default());
        assert_eq!(turn, Turn { begun: Vec::new(), over: vec!["/b".into()] });
        assert_eq!(total.load(Ordering::Relaxed), 1);
    }
}
