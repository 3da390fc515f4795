//! Bounds the closed findings that are kept, and their evidence: a node with a recurring problem closes
//! thousands of findings, each with the events of up to sixteen sandboxes.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{change::Finding, finding::Key, time::Timestamp};

/// At most this many closed findings are kept. If there are more, the first to close are forgotten.
const CLOSED: usize = 1000;
/// They keep at most this many events as evidence together. If there are more, the first to close lose
/// theirs.
pub(super) const CLOSED_EVIDENCE: usize = 8192;

/// The closed findings by the time at which they closed.
#[derive(Debug, Default)]
pub(super) struct Closed {
    all: BTreeSet<(Timestamp, Key)>,
    /// The number of events in each finding's evidence, for findings with evidence.
    evidence: BTreeMap<(Timestamp, Key), usize>,
    /// The number of events in all of them.
    events: usize,
}

impl Closed {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds a finding if it is closed.
    pub(super) fn add(&mut self, finding: &Finding) {
        self.remove(finding);
        let Some(at) = finding.closed_at else { return };
        let place = (at, finding.key.clone());
        self.all.insert(place.clone());
        let events = finding.evidence.len();
        if events > 0 {
            self.evidence.insert(place, events);
            self.events += events;
        }
    }

    /// Removes a finding if it is here.
    pub(super) fn remove(&mut self, finding: &Finding) {
        let Some(at) = finding.closed_at else { return };
        let place = (at, finding.key.clone());
        self.all.remove(&place);
        self.events -= self.evidence.remove(&place).unwrap_or(0);
    }

    /// Removes the finding that is to be forgotten, if there are too many.
    pub(super) fn pop_too_many(&mut self) -> Option<Key> {
        if self.all.len() <= CLOSED {
            return None;
        }
        let place = self.all.pop_first()?;
        self.events -= self.evidence.remove(&place).unwrap_or(0);
        Some(place.1)
    }

    /// Notes that a finding loses its evidence, if there is too much.
    pub(super) fn pop_evidence(&mut self) -> Option<Key> {
        if self.events <= CLOSED_EVIDENCE {
            return None;
        }
        let ((_, key), events) = self.evidence.pop_first()?;
        self.events -= events;
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::{CLOSED, CLOSED_EVIDENCE};

    #[test]
    fn the_page_has_these_bounds() {
        let page = include_str!("../../../../docs/findings.md");
        let words: Vec<&str> = page.split_whitespace().collect();
        let page = words.join(" ");
        for bound in [
            format!("{CLOSED} closed findings are kept"),
            format!("at most {CLOSED_EVIDENCE} events as evidence together"),
        ] {
            assert!(page.contains(&bound), "{bound}");
        }
    }
}
