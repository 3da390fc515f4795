//! The stream of changes as lines: those that a filter keeps, in one format.

use super::{Format, Label, Sink, filter::Filter};
use crate::model::change::Change;

/// The lines that were not taken yet. The owner of the destination takes them.
pub(crate) struct Lines {
    filter: Filter,
    format: Box<dyn Format>,
    bytes: Vec<u8>,
}

impl Lines {
    #[must_use]
    pub(crate) fn new(filter: Filter, format: Box<dyn Format>) -> Self {
        Self { filter, format, bytes: Vec::new() }
    }

    /// The bytes made so far. The caller empties them.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// A line that says how many changes are missing before the next one.
    pub(crate) fn missed(&mut self, count: u64, label: &Label) -> Vec<u8> {
        let mut line = Vec::new();
        self.format.missed(count, label, &mut line);
        line
    }
}

impl Sink for Lines {
    fn on_change(&mut self, change: &Change, label: &Label) {
        if self.filter.keeps(change) {
            self.format.write(change, label, &mut self.bytes);
        }
    }
}
