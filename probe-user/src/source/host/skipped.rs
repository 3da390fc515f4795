//! Counts files that exist but could not be read, and keeps the names of the first ones.

use std::{collections::BTreeMap, path::PathBuf};

use super::ReadError;
use crate::model::fact::List;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    pub count: u64,
    /// The first one, as an example for the log.
    pub first: Option<Box<(PathBuf, ReadError)>>,
    /// The first one that a list or an answer misses. `None` if all were set aside.
    pub missed: Option<Box<(PathBuf, ReadError)>>,
    /// The names, up to a limit, to recognize them in the next pass.
    pub named: BTreeMap<PathBuf, ReadError>,
    /// The first failure of each list that is incomplete.
    pub partial: BTreeMap<List, (PathBuf, ReadError)>,
}

/// The most files that are kept by name. Further files are only counted.
const MAX_NAMED: usize = 1024;

impl Skipped {
    /// Adds a file that could not be read. A file that does not exist was not skipped.
    pub(crate) fn add(&mut self, path: impl Into<PathBuf>, why: ReadError) {
        if why != ReadError::Absent {
            let path = path.into();
            self.missed.get_or_insert_with(|| Box::new((path.clone(), why)));
            self.set_aside(path, why);
        }
    }

    /// Adds a file that could not be read, but that no list or answer misses.
    pub(crate) fn set_aside(&mut self, path: impl Into<PathBuf>, why: ReadError) {
        if why == ReadError::Absent {
            return;
        }
        self.count += 1;
        let path = path.into();
        self.first.get_or_insert_with(|| Box::new((path.clone(), why)));
        self.name(path, why);
    }

    pub(crate) fn append(&mut self, other: Self) {
        self.count += other.count;
        self.first = self.first.take().or(other.first);
        self.missed = self.missed.take().or(other.missed);
        other.named.into_iter().for_each(|(path, why)| self.name(path, why));
        for (list, first) in other.partial {
            self.partial.entry(list).or_insert(first);
        }
    }

    fn name(&mut self, path: PathBuf, why: ReadError) {
        if self.named.len() < MAX_NAMED {
            self.named.entry(path).or_insert(why);
        }
    }

    #[must_use]
    pub(crate) fn is_none(&self) -> bool {
        self.count == 0
    }
}
