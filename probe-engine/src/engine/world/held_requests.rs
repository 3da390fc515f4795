//! Asks whether the kubelet held requests back while it prepared a sandbox for long, and keeps the answer with the sandbox.

use super::{World, image_work::LONG, phase};
use crate::model::{
    change::Question,
    fact::HeldRequests,
    id::ContainerId,
    phase::{Kind, Phase},
    time::Timestamp,
};

impl World {
    /// The first container of a start began. If its sandbox was long in coming, the kubelet's log is searched for the reason.
    pub(super) fn ask_held_requests(&mut self, sandbox: &ContainerId, now: Timestamp) {
        let row = self.sandboxes.recall(sandbox).filter(|row| row.work.started_at.is_none());
        if row.is_none_or(|row| row.containers().len() != 1 || !phase::may_be_late(self, row, LONG)) {
            return;
        }
        let Some(start) = phase::of(self, sandbox, now) else { return };
        let is_slow = |it: &&Phase| it.kind == Kind::Prepare && it.took() >= LONG;
        if let Some(&Phase { begin: from, end: until, .. }) = start.phases.first().filter(is_slow) {
            self.ask(Question::HeldRequests { sandbox: sandbox.clone(), from, until });
        }
    }

    /// The log was searched.
    pub(super) fn held_requests(&mut self, it: HeldRequests) {
        self.sandboxes.waited(&it.sandbox, it.held.clone());
        self.starts.divide(&it.sandbox, |phase| {
            let parts = phase::held::parts(&it.held, phase.begin, phase.end);
            if phase.kind == Kind::Prepare && !parts.is_empty() {
                phase.parts = parts;
            }
        });
    }
}
