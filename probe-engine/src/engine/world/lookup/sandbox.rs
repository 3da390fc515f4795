//! The network of a sandbox: its ADDs, and since when it is connected. Also whether its programs are
//! processes of the node.

use super::call;
use crate::{
    engine::{
        queued_change::Subject,
        world::{
            World,
            table::{
                attachment::{Attachment, Outcome},
                sandbox::Sandbox,
            },
        },
    },
    model::{id::ContainerId, time::Timestamp},
};

/// Whether the runtime has called every plugin that the node's configuration names for a sandbox.
pub(crate) fn chains_are_through(world: &World, id: &ContainerId) -> bool {
    // No configuration names the loopback network, and the loopback alone connects nothing.
    let has_network = world.attachments.of(id).any(|row| !row.is_loopback());
    (has_network || world.records.networks().is_empty())
        && world.attachments.of(id).all(|row| {
            world.records.network(row).is_none_or(|network| {
                network.called().all(|name| {
                    row.plugins.iter().any(|plugin| plugin.name == *name && plugin.add.succeeded > 0)
                })
            })
        })
}

/// Whether an ADD for the sandbox ran at some time since the hooks were attached.
pub(crate) fn was_added(world: &World, sandbox: Option<&ContainerId>) -> bool {
    sandbox.is_some_and(|id| {
        world.sandboxes.get(id).is_some_and(|row| row.network.found_add_ended) || has_adds(world, id)
    })
}

/// Whether an ADD for the sandbox was seen.
pub(crate) fn has_adds(world: &World, id: &ContainerId) -> bool {
    call::has_found_add(world, id) || world.attachments.of(id).any(Attachment::was_seen)
}

/// Since when its network has been ready: all ADDs have succeeded, or none is needed.
pub(crate) fn connected_since(world: &World, row: &Sandbox) -> Option<Timestamp> {
    if row.network.is_host {
        return Some(row.first_at);
    }
    if call::has_found_add(world, &row.id) {
        return None;
    }
    let mut last_at = None;
    for add in world.attachments.of(&row.id).flat_map(Attachment::adds) {
        if add.outcome != Some(Outcome::Succeeded) {
            return None;
        }
        last_at = last_at.max(Some(add.last_at));
    }
    last_at
}

/// Whether hooks saw how the sandbox's network was made, or how its pause process began. Runtimes note a
/// sandbox before they make it, so a listing can find one that is not ready.
pub(crate) fn was_seen_made(world: &World, id: &ContainerId) -> bool {
    let began = world.containers.get(id).and_then(|row| row.run.began);
    began.is_some_and(|began| !began.listed) || world.attachments.of(id).any(Attachment::was_seen)
}

/// The subject of a sandbox's changes.
pub(crate) fn subject(world: &World, id: &ContainerId) -> Subject {
    let row = world.sandboxes.get(id);
    let cgroup = world.containers.get(id).and_then(|row| row.cgroup);
    Subject {
        sandbox: Some(id.clone()),
        pod: row.and_then(|row| row.pod),
        netns: row.and_then(|row| row.network.netns),
        cgroup,
        ..Subject::default()
    }
}

/// Whether the programs of a container, or of a sandbox's containers, are no processes of the node. Then no
/// absence and no end of a process says anything about them.
pub(crate) fn hides_programs(world: &World, id: &ContainerId) -> bool {
    world.containers.get(id).is_some_and(|row| row.hides_programs)
        || world.sandboxes.recall(id).is_some_and(|row| row.hides_programs)
}

/// Whether the pod of two sandboxes was gone between them, and came again with the same UID: its cgroup was
/// made after the end of the first one. A static pod does so if its manifest is moved away and back.
pub(crate) fn is_of_later_pod(world: &World, before: &Sandbox, after: &Sandbox) -> bool {
    let made_at = after.pod_made_at.or_else(|| world.pods.get(&after.pod?)?.made_at());
    match (before.over_at(), made_at) {
        (Some(over), Some(made)) => over < made,
        (None, _) | (_, None) => false,
    }
}
