//! Which closed findings are kept, and how much of them: a node that has the same trouble again and again closes thousands,
//! each with the events of up to sixteen sandboxes.

use std::collections::BTreeSet;

use crate::model::{change::Finding, finding::Key, time::Timestamp};

/// At most this many closed findings are kept. If there are more, the first to close are forgotten.
const CLOSED: usize = 1000;
/// They keep at most this many events as evidence together. If there are more, the first to close lose theirs.
pub(super) const CLOSED_EVIDENCE: usize = 8192;

/// The closed findings by the time at which they closed.
#[derive(Debug, Default)]
pub(super) struct Closed {
    all: BTreeSet<(Timestamp, Key)>,
    with_evidence: BTreeSet<(Timestamp, Key)>,
    /// How many events all of them have together.
    events: usize,
}

impl Closed {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds a finding if it is closed.
    pub(super) fn add(&mut self, finding: &Finding) {
        let Some(at) = finding.closed_at else { return };
        self.all.insert((at, finding.key.clone()));
        if !finding.evidence.is_empty() && self.with_evidence.insert((at, finding.key.clone())) {
            self.events += finding.evidence.len();
        }
    }

    /// Removes a finding if it is here. It must be as it was when it was added.
    pub(super) fn remove(&mut self, finding: &Finding) {
        let Some(at) = finding.closed_at else { return };
        let place = (at, finding.key.clone());
        self.all.remove(&place);
        if self.with_evidence.remove(&place) {
            self.events = self.events.saturating_sub(finding.evidence.len());
        }
    }

    /// The finding to forget, if there are too many.
    pub(super) fn first_too_many(&self) -> Option<Key> {
        self.all.first().filter(|_| self.all.len() > CLOSED).map(|(_, key)| key.clone())
    }

    /// The finding that is to lose its evidence, if there is too much of it.
    pub(super) fn first_with_too_much(&self) -> Option<Key> {
        self.with_evidence.first().filter(|_| self.events > CLOSED_EVIDENCE).map(|(_, key)| key.clone())
    }
}
