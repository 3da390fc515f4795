//! What was there and could not be taken: counted, with the first of each kind by name.

use std::{collections::BTreeMap, path::PathBuf};

use super::ReadError;
use crate::model::fact::List;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    pub count: u64,
    /// The first, as an example for the log.
    pub first: Option<(PathBuf, ReadError)>,
    /// All of them, to know them again, but no more than are kept.
    pub named: BTreeMap<PathBuf, ReadError>,
    /// For each list that is not whole the first for which it is not.
    pub partial: BTreeMap<List, (PathBuf, ReadError)>,
}

/// Most that are kept by name: of more a pass knows how many there are.
const NAMED: usize = 1024;

impl Skipped {
    /// What is simply not there was not skipped.
    pub fn add(&mut self, path: impl Into<PathBuf>, why: ReadError) {
        if why == ReadError::Absent {
            return;
        }
        self.count += 1;
        let path = path.into();
        self.first.get_or_insert_with(|| (path.clone(), why));
        self.name(path, why);
    }

    pub fn append(&mut self, other: Self) {
        self.count += other.count;
        self.first = self.first.take().or(other.first);
        other.named.into_iter().for_each(|(path, why)| self.name(path, why));
        for (list, first) in other.partial {
            self.partial.entry(list).or_insert(first);
        }
    }

    fn name(&mut self, path: PathBuf, why: ReadError) {
        if self.named.len() < NAMED {
            self.named.entry(path).or_insert(why);
        }
    }

    #[must_use]
    pub fn is_none(&self) -> bool {
        self.count == 0
    }
}
