//! What was there and could not be taken: counted, with the first of each kind by name.

use std::path::PathBuf;

use super::Miss;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    pub count: u64,
    /// The first, as an example for the log.
    pub first: Option<(PathBuf, Miss)>,
}

impl Skipped {
    /// What is simply not there was not skipped.
    pub fn add(&mut self, path: impl Into<PathBuf>, why: Miss) {
        if why == Miss::Absent {
            return;
        }
        self.count += 1;
        self.first.get_or_insert_with(|| (path.into(), why));
    }

    pub fn append(&mut self, other: Self) {
        self.count += other.count;
        self.first = self.first.take().or(other.first);
    }

    #[must_use]
    pub fn is_none(&self) -> bool {
        self.count == 0
    }
}
