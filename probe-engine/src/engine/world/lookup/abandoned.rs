//! Sandboxes whose runtime ended while it was making them.
//!
//! containerd before 1.5.15 and 1.6.9 writes its record of a sandbox only after it has set up the sandbox's
//! network. If it is killed in between, it leaves the network namespace, the address and the interface, and
//! after its restart it does not know of them. No runtime will ever call DEL for such a sandbox. Later
//! versions of containerd, and CRI-O, write the record first and clean up after a restart.
//!
//! A runtime may also be killed with all its processes and lose its records. An agent that starts later finds
//! the cgroup of such a sandbox, and nothing else of it. No runtime will call DEL for it either.
//!
//! **Rule:** a sandbox is abandoned when all of these hold: it never had a process; no CNI call for it is
//! open; every runtime that runs started after the sandbox's first sign; the runtimes' records were all read
//! after the runtimes could answer, and none names the sandbox. A sandbox that a listing found is left over
//! when all of these hold: none of its processes was ever seen; its cgroup is empty; no CNI call for it is
//! open; the runtimes' records were all read later, and none names the sandbox.

use std::{collections::BTreeSet, time::Duration};

use super::{call, daemons, record};
use crate::{
    engine::world::{
        World,
        table::{
            attachment::Attachment,
            record::HasRecord,
            sandbox::{Sandbox, State},
        },
    },
    model::{fact::Origin, id::ContainerId, time::Timestamp},
};

/// How long a runtime needs after its start until it answers on its socket. A sandbox without a folder is
/// named only by that answer.
pub(crate) const ANSWERS: Duration = Duration::from_secs(10);

/// Whether the runtimes' records were all read after the runtimes had time to answer since `since`, and none
/// names the sandbox.
pub(crate) fn is_off_record(world: &World, row: &Sandbox, since: Timestamp) -> bool {
    match world.records.has_record(&row.id).unless(record::has_unread_runtime(world)) {
        HasRecord::No { at } => at >= since + ANSWERS,
        HasRecord::Yes | HasRecord::Unknown => false,
    }
}

/// Whether a sandbox may be abandoned. Such a sandbox does not count as live.
pub(crate) fn may_be(world: &World, id: &ContainerId) -> bool {
    let Some((since, row)) = daemons::runtimes_since(world).zip(world.sandboxes.get(id)) else {
        return false;
    };
    is_unfinished(world, row, since) && world.records.has_record(id) != HasRecord::Yes
}

/// The time at which the records must be read because one of the sandboxes in `making` may be abandoned.
/// `making` holds the sandboxes that have no process yet.
pub(crate) fn due(world: &World, making: &BTreeSet<ContainerId>) -> Option<Timestamp> {
    let since = daemons::runtimes_since(world)?;
    making
        .iter()
        .any(|id| {
            world.sandboxes.get(id).is_some_and(|row| is_unfinished(world, row, since))
                && world.records.has_record(id) != HasRecord::Yes
        })
        .then_some(since + ANSWERS)
}

/// Whether the agent found the cgroup of a sandbox without processes, and never anything else of it.
pub(crate) fn is_leftover(world: &World, row: &Sandbox) -> bool {
    let is_bare = row.state == State::Created
        && row.origin == Origin::Listed
        && row.up_since.is_none()
        && !row.hides_programs;
    if !is_bare {
        return false;
    }
    let Some(container) = world.containers.get(&row.id) else { return false };
    let cgroup = container.cgroup.and_then(|key| world.cgroups.get(&key));
    container.process().is_none()
        && cgroup.is_some_and(|cgroup| cgroup.populated == Some(false))
        && !call::has_found_add(world, &row.id)
        && !world.attachments.of(&row.id).any(Attachment::is_busy)
}

/// Whether the sandbox was still being made when the present runtimes started.
pub(crate) fn is_unfinished(world: &World, row: &Sandbox, runtimes: Timestamp) -> bool {
    row.state == State::Created
        && row.up_since.is_none()
        && !row.hides_programs
        && !row.network.is_host
        && row.first_at < runtimes
        && !call::has_found_add(world, &row.id)
        && !world.attachments.of(&row.id).any(Attachment::is_busy)
}
