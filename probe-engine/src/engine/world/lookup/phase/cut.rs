//! Cuts a time into parts.

use crate::model::{
    phase::{Part, PartKind, WaitsFor},
    time::Timestamp,
};

/// **Invariant:** the parts follow each other without a gap from the beginning to `at`, and none is empty.
pub(super) struct Cut {
    pub(super) at: Timestamp,
    end: Timestamp,
    pub(super) parts: Vec<Part>,
}

impl Cut {
    pub(super) fn new(begin: Timestamp, end: Timestamp) -> Self {
        Self { at: begin, end, parts: Vec::new() }
    }

    pub(super) fn push(&mut self, to: Timestamp, kind: PartKind, waits: Option<WaitsFor>) {
        let to = to.min(self.end).max(self.at);
        if to > self.at {
            self.parts.push(Part { kind, begin: self.at, took: to.since(self.at), waits });
            self.at = to;
        }
    }

    pub(super) fn until(&mut self, to: Timestamp, kind: PartKind) {
        self.push(to, kind, None);
    }

    /// Adds the wait, if there was one, after a part of which nothing is known.
    pub(super) fn wait_until(&mut self, to: Timestamp, wait: Option<(Timestamp, WaitsFor)>) {
        self.until(wait.map_or(to, |(from, _)| from.min(to)), PartKind::Unknown);
        if let Some((_, waits)) = wait {
            self.push(to, PartKind::Wait, Some(waits));
        }
    }
}
