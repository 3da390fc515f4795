//! Sandboxes whose runtime ended while it made them.
//!
//! containerd before 1.5.15 and 1.6.9 writes its record of a sandbox only after it has set up the sandbox's network. If
//! it is killed in between, it leaves the network namespace, the address and the interface, and after its restart it
//! does not know of them. No runtime will ever call DEL. Later versions, and CRI-O, write the record first, and clean
//! up.
//!
//! A runtime may also be killed with all its processes and lose its records. An agent that starts later finds the
//! cgroup of such a sandbox, and nothing else of it. No runtime will call DEL for it either.
//!
//! **Rule:** a sandbox is abandoned when it never had a process, no CNI call for it is open, every runtime that runs
//! started after it began, and their records, read whole since they can answer, do not name it. A sandbox that a
//! listing found is left over when no process of it was ever seen, its cgroup is empty, no CNI call for it is open, and
//! the runtimes' records, read whole later, do not name it.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    engine::world::{
        EventContext, World,
        attachment::Attachment,
        record::Kept,
        sandbox::{Sandbox, State},
    },
    model::{
        fact::{List, Origin},
        id::ContainerId,
        time::Timestamp,
    },
};

/// How long a runtime that has just started needs until it answers on its socket. Only its answer there names a sandbox
/// that has no folder yet.
pub(in crate::engine) const ANSWERS: Duration = Duration::from_secs(10);

impl World {
    /// Finds out which sandboxes are abandoned, after the runtimes' records were read whole.
    pub(super) fn judge_abandoned(&mut self, ctx: EventContext) {
        // The next listing may find a process of the sandbox that the agent missed.
        if self.is_gapped(List::Processes) {
            return;
        }
        let Some(runtimes) = self.runtimes_since() else { return };
        let unfinished = self.sandboxes.values().filter(|row| self.is_unfinished(row, runtimes));
        let abandoned = unfinished.filter(|row| self.is_off_record(row, runtimes)).map(|row| row.id.clone());
        for id in abandoned.collect::<Vec<_>>() {
            self.sandbox_abandoned(ctx, &id);
        }
        let leftovers = self.sandboxes.values().filter(|row| self.is_leftover(row));
        let leftovers = leftovers.filter(|row| self.is_off_record(row, row.first_at.max(runtimes)));
        for id in leftovers.map(|row| row.id.clone()).collect::<Vec<_>>() {
            self.sandbox_left_over(ctx, &id);
        }
    }

    /// Whether the runtimes' records do not name a sandbox, read whole after the runtimes had time to answer since then.
    fn is_off_record(&self, row: &Sandbox, since: Timestamp) -> bool {
        match self.records.kept(&row.id).unless(self.has_unread_runtime()) {
            Kept::No { at } => at >= since + ANSWERS,
            Kept::Yes | Kept::Unknown => false,
        }
    }

    /// Whether a sandbox may be abandoned, as far as is known. Such a sandbox does not count as live.
    pub(in crate::engine) fn may_be_abandoned(&self, id: &ContainerId) -> bool {
        let Some((since, row)) = self.runtimes_since().zip(self.sandboxes.get(id)) else { return false };
        self.is_unfinished(row, since) && self.records.kept(id) != Kept::Yes
    }

    /// When the records are to be read because a sandbox may be abandoned: when the runtimes can answer. `making`: the
    /// sandboxes that have no process yet.
    pub(super) fn abandoned_due(&self, making: &BTreeSet<ContainerId>) -> Option<Timestamp> {
        let since = self.runtimes_since()?;
        let may_be = |id: &ContainerId| {
            self.sandboxes.get(id).is_some_and(|row| self.is_unfinished(row, since))
                && self.records.kept(id) != Kept::Yes
        };
        making.iter().any(may_be).then_some(since + ANSWERS)
    }

    /// Whether the agent found the cgroup of a sandbox without processes, and never anything else of it.
    fn is_leftover(&self, row: &Sandbox) -> bool {
        let container = || self.containers.get(&row.id);
        let cgroup = || self.cgroups.get(&container()?.cgroup?);
        row.state == State::Created
            && row.origin == Origin::Listed
            && row.up_since.is_none()
            && container().is_some_and(|container| container.process().is_none())
            && cgroup().is_some_and(|cgroup| cgroup.populated == Some(false))
            && !self.has_found_add(&row.id)
            && !self.attachments_of(&row.id).any(Attachment::is_busy)
    }

    /// Whether a sandbox was in the making when the runtimes that run now started.
    fn is_unfinished(&self, row: &Sandbox, runtimes: Timestamp) -> bool {
        row.state == State::Created
            && row.up_since.is_none()
            && !row.network.is_host
            && row.first_at < runtimes
            && !self.has_found_add(&row.id)
            && !self.attachments_of(&row.id).any(Attachment::is_busy)
    }
}
