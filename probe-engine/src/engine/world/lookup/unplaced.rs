//! Decides whether a network namespace without a known owner can be that of a sandbox on record.

use std::time::Duration;

use probe_common::runtime;

use super::record;
use crate::{
    engine::world::{
        World,
        table::record::{HasRecord, MAKING},
    },
    model::{fact::RuntimeKind, id::ContainerId, time::Timestamp},
};

/// The sandboxes on record whose network namespace is not known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unplaced {
    /// When the oldest of the records was read.
    read_at: Timestamp,
    /// A namespace that was made after this belongs to none of these sandboxes. None: there are no such
    /// sandboxes.
    youngest: Option<Timestamp>,
}

impl Unplaced {
    /// When the records were read, if they show that a namespace made at `made_at` belongs to no sandbox.
    /// None: it may belong to one of these sandboxes. That includes any namespace that existed before the
    /// agent.
    pub(crate) fn absent_at(&self, made_at: Option<Timestamp>) -> Option<Timestamp> {
        self.youngest
            .is_none_or(|youngest| made_at.is_some_and(|made| youngest < made))
            .then_some(self.read_at)
    }
}

/// The sandboxes on record whose namespace is not known. None in two cases: the records were not read
/// completely, or a sandbox lives that is not on record and whose namespace is not known.
pub(crate) fn sandboxes(world: &World) -> Option<Unplaced> {
    let HasRecord::No { at: read_at } = world.records.absent().unless(record::has_unread_runtime(world))
    else {
        return None;
    };
    let known_since = &world.records.known_since;
    if world
        .sandboxes
        .values()
        .filter(|row| !row.is_stopped() && !is_placed(world, &row.id))
        .any(|row| !known_since.contains_key(&row.id))
    {
        return None;
    }
    let mut youngest = None;
    for runtime in world.records.runtimes.values() {
        for id in runtime.sandboxes.keys().filter(|id| !is_placed(world, id)) {
            let since = known_since.get(id).copied().unwrap_or(read_at);
            youngest = youngest.max(Some(since + makes_netns_within(runtime.kind)));
        }
    }
    Some(Unplaced { read_at, youngest })
}

/// How long after the record a runtime may still make the sandbox's namespace.
fn makes_netns_within(kind: Option<RuntimeKind>) -> Duration {
    let records_last = kind.is_some_and(|kind| runtime::Runtime::of(kind).records_last);
    if records_last { Duration::ZERO } else { MAKING }
}

/// Whether the sandbox's namespace is known.
fn is_placed(world: &World, id: &ContainerId) -> bool {
    world.sandboxes.get(id).is_some_and(|row| {
        let network = &row.network;
        network.netns.is_some() || network.netns_path.is_some() || network.is_host
    }) || world.attachments.of(id).any(|row| row.netns_path.is_some())
}
