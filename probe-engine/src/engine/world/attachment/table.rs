//! All attachments, and how long each is kept.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
};

use super::Attachment;
use crate::{
    engine::tracked::Tracked,
    model::{id::ContainerId, time::Timestamp},
};

/// By container and interface; the interface is empty where a store does not keep it.
#[derive(Debug, Default)]
pub(in crate::engine) struct Table {
    pub(super) rows: Tracked<(ContainerId, String), Attachment>,
    /// When it was last asked what a plugin said, by its name; kept with the attachments that were asked about.
    pub(super) messages_asked: BTreeMap<String, Timestamp>,
}

impl Deref for Table {
    type Target = BTreeMap<(ContainerId, String), Attachment>;

    fn deref(&self) -> &Self::Target {
        &self.rows
    }
}

impl Table {
    /// The keys of rows that may have changed since the last call.
    pub(in crate::engine::world) fn take_changed(&mut self) -> BTreeSet<(ContainerId, String)> {
        self.rows.take_changed()
    }

    /// Takes back what was dumped.
    pub(in crate::engine::world) fn insert(&mut self, row: Attachment) {
        self.rows.insert((row.container.clone(), row.ifname.clone()), row);
    }

    /// Nothing says that its addresses were freed, and that was counted.
    pub(in crate::engine::world) fn mark_unverified(&mut self, key: &(ContainerId, String)) {
        if let Some(row) = self.rows.get_mut(key) {
            row.unverified = true;
        }
    }

    /// Forgets leases that nobody vouches for, and attachments without any, where they are `old` and no verdict needs
    /// their sandbox.
    pub(in crate::engine::world) fn reap(
        &mut self,
        old: impl Fn(&ContainerId) -> Timestamp,
        is_needed: impl Fn(&ContainerId) -> bool,
    ) {
        self.rows.update(|(id, _), row| {
            let (is_young, before) = (row.last_at > old(id), row.leases.len());
            row.leases.retain(|lease| lease.is_vouched() || is_young || is_needed(id));
            row.leases.len() != before
        });
        self.rows.retain(|(id, _), row| {
            !row.leases.is_empty() || row.last_at > old(id) || row.is_busy() || is_needed(id)
        });
    }
}
