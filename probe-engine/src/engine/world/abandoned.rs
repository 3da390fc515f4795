//! Sandboxes whose runtime ended while it was making them.
//!
//! containerd before 1.5.15 and 1.6.9 writes its record of a sandbox only after it has set up the sandbox's network. If
//! it is killed in between, it leaves the network namespace, the address and the interface, and after its restart it
//! does not know of them. No runtime will ever call DEL for such a sandbox. Later versions of containerd, and CRI-O,
//! write the record first and clean up after a restart.
//!
//! A runtime may also be killed with all its processes and lose its records. An agent that starts later finds the
//! cgroup of such a sandbox, and nothing else of it. No runtime will call DEL for it either.
//!
//! **Rule:** a sandbox is abandoned when all of these hold: it never had a process; no CNI call for it is open; every
//! runtime that runs started after the sandbox's first sign; the runtimes' records were all read after the runtimes
//! could answer, and none names the sandbox. A sandbox that a listing found is left over when all of these hold: none of
//! its processes was ever seen; its cgroup is empty; no CNI call for it is open; the runtimes' records were all read
//! later, and none names the sandbox.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    engine::world::{
        EventContext, World,
        attachment::Attachment,
        record::HasRecord,
        sandbox::{Group, Sandbox, State},
    },
    model::{
        fact::{List, Origin},
        id::ContainerId,
        time::Timestamp,
    },
};

/// How long a runtime needs after its start until it answers on its socket. A sandbox without a folder is named only by
/// that answer.
pub(in crate::engine) const ANSWERS: Duration = Duration::from_secs(10);

impl World {
    /// Marks the abandoned sandboxes after all records of the runtimes were read.
    pub(super) fn judge_abandoned(&mut self, ctx: EventContext) {
        // The next listing may find a process of the sandbox that the agent missed.
        if self.lists.is_gapped(List::Processes) {
            return;
        }
        let Some(runtimes) = self.runtimes_since() else { return };
        let unfinished = self.sandboxes.group(Group::Created).filter(|row| self.is_unfinished(row, runtimes));
        let abandoned = unfinished.filter(|row| self.is_off_record(row, runtimes)).map(|row| row.id.clone());
        for id in abandoned.collect::<Vec<_>>() {
            self.sandbox_abandoned(ctx, &id);
        }
        let leftovers = self.sandboxes.group(Group::Created).filter(|row| self.is_leftover(row));
        let leftovers = leftovers.filter(|row| self.is_off_record(row, row.first_at.max(runtimes)));
        for id in leftovers.map(|row| row.id.clone()).collect::<Vec<_>>() {
            self.sandbox_left_over(ctx, &id);
        }
    }

    /// Whether the runtimes' records were all read after the runtimes had time to answer since `since`, and none names the
    /// sandbox.
    fn is_off_record(&self, row: &Sandbox, since: Timestamp) -> bool {
        match self.records.has_record(&row.id).unless(self.has_unread_runtime()) {
            HasRecord::No { at } => at >= since + ANSWERS,
            HasRecord::Yes | HasRecord::Unknown => false,
        }
    }

    /// Whether a sandbox may be abandoned. Such a sandbox does not count as live.
    pub(in crate::engine) fn may_be_abandoned(&self, id: &ContainerId) -> bool {
        let Some((since, row)) = self.runtimes_since().zip(self.sandboxes.get(id)) else { return false };
        self.is_unfinished(row, since) && self.records.has_record(id) != HasRecord::Yes
    }

    /// The time at which the records must be read because one of the sandboxes in `making` may be abandoned. `making`
    /// holds the sandboxes that have no process yet.
    pub(super) fn abandoned_due(&self, making: &BTreeSet<ContainerId>) -> Option<Timestamp> {
        let since = self.runtimes_since()?;
        let may_be = |id: &ContainerId| {
            self.sandboxes.get(id).is_some_and(|row| self.is_unfinished(row, since))
                && self.records.has_record(id) != HasRecord::Yes
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
            && !row.hides_programs
            && container().is_some_and(|container| container.process().is_none())
            && cgroup().is_some_and(|cgroup| cgroup.populated == Some(false))
            && !self.has_found_add(&row.id)
            && !self.attachments.of(&row.id).any(Attachment::is_busy)
    }

    /// Whether the sandbox was still being made when the present runtimes started.
    fn is_unfinished(&self, row: &Sandbox, runtimes: Timestamp) -> bool {
        row.state == State::Created
            && row.up_since.is_none()
            && !row.hides_programs
            && !row.network.is_host
            && row.first_at < runtimes
            && !self.has_found_add(&row.id)
            && !self.attachments.of(&row.id).any(Attachment::is_busy)
    }
}
