//! Decides whether a network namespace without a known owner can be that of a sandbox on record.

use std::time::Duration;

use probe_common::runtime;

use super::{HasRecord, MAKING};
use crate::{
    engine::world::{World, sandbox::Sandbox},
    model::{fact::RuntimeKind, id::ContainerId, time::Timestamp},
};

/// The sandboxes on record whose network namespace is not known.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Unplaced {
    /// When the oldest of the records was read.
    read_at: Timestamp,
    /// A namespace that was made after this belongs to none of these sandboxes. None: there are no such sandboxes.
    youngest: Option<Timestamp>,
}

impl Unplaced {
    /// When the records were read, if they show that a namespace made at `made_at` belongs to no sandbox. None: it may
    /// belong to one of these sandboxes. That includes any namespace that existed before the agent.
    pub(in crate::engine) fn absent_at(&self, made_at: Option<Timestamp>) -> Option<Timestamp> {
        let is_later = |youngest: Timestamp| made_at.is_some_and(|made| youngest < made);
        self.youngest.is_none_or(is_later).then_some(self.read_at)
    }
}

impl World {
    /// The sandboxes on record whose namespace is not known. None in two cases: the records were not read completely,
    /// or a sandbox lives that is not on record and whose namespace is not known.
    pub(in crate::engine) fn unplaced(&self) -> Option<Unplaced> {
        let HasRecord::No { at: read_at } = self.records.absent().unless(self.has_unread_runtime()) else {
            return None;
        };
        let since = |id: &ContainerId| self.records.known_since.get(id).copied();
        let is_unknown = |row: &&Sandbox| !row.is_stopped() && !self.is_placed(&row.id);
        if self.sandboxes.values().filter(is_unknown).any(|row| since(&row.id).is_none()) {
            return None;
        }
        // How long after the record a runtime may still make the sandbox's namespace.
        let makes_netns_within = |kind: Option<RuntimeKind>| {
            let records_last = kind.is_some_and(|kind| runtime::Runtime::of(kind).records_last);
            if records_last { Duration::ZERO } else { MAKING }
        };
        let runtimes = self.records.runtimes.values();
        let all = runtimes.flat_map(|runtime| runtime.sandboxes.keys().map(move |id| (runtime.kind, id)));
        let unplaced = all.filter(|(_, id)| !self.is_placed(id));
        let youngest =
            unplaced.map(|(kind, id)| since(id).unwrap_or(read_at) + makes_netns_within(kind)).max();
        Some(Unplaced { read_at, youngest })
    }

    /// Whether the sandbox's namespace is known.
    fn is_placed(&self, id: &ContainerId) -> bool {
        let known = |row: &Sandbox| {
            let network = &row.network;
            network.netns.is_some() || network.netns_path.is_some() || network.is_host
        };
        self.sandboxes.get(id).is_some_and(known)
            || self.attachments.of(id).any(|row| row.netns_path.is_some())
    }
}
