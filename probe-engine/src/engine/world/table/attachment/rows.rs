//! The table of attachments, and how long it keeps each.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
};

use crate::{
    engine::{
        tracked::Tracked,
        world::{
            MessageAsked,
            table::attachment::{Attachment, Lease},
        },
    },
    model::{
        fact::{CniCommand, Reservation, StoreChanged},
        id::ContainerId,
        time::Timestamp,
    },
};

/// The attachments by container and interface. The interface is empty where a store does not keep it.
#[derive(Debug, Default)]
pub(crate) struct Table {
    ///
    /// A row has a place of its own: the map has room for up to twice as many rows as it holds, and there may
    /// be tens of thousands of them.
    pub(in crate::engine::world) rows: Tracked<(ContainerId, String), Box<Attachment>>,
    /// When each plugin, by name, was last asked for its message about a command. The next question about any
    /// drops those that were asked long ago.
    pub(crate) messages_asked: BTreeMap<(String, CniCommand), Timestamp>,
    /// Sandboxes with an attachment that came since the runtimes' records were last looked through for its
    /// pod.
    pub(crate) unnamed: BTreeSet<ContainerId>,
}

impl Deref for Table {
    type Target = BTreeMap<(ContainerId, String), Box<Attachment>>;

    fn deref(&self) -> &Self::Target {
        &self.rows
    }
}

impl Table {
    pub(crate) fn get(&self, key: &(ContainerId, String)) -> Option<&Attachment> {
        self.rows.get(key).map(|row| &**row)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Attachment> {
        self.rows.values().map(|row| &**row)
    }

    /// The keys of rows that may have changed since the last call.
    pub(in crate::engine::world) fn take_changed(&mut self) -> BTreeSet<(ContainerId, String)> {
        self.rows.take_changed()
    }

    pub(crate) fn unnamed(&self) -> impl Iterator<Item = &ContainerId> {
        self.unnamed.iter()
    }

    /// The runtimes' records were looked through.
    pub(in crate::engine::world) fn forget_unnamed(&mut self) {
        self.unnamed.clear();
    }

    /// The row of an attachment. A new row begins if there is none.
    pub(in crate::engine::world) fn row(
        &mut self,
        at: Timestamp,
        id: &ContainerId,
        ifname: &str,
    ) -> &mut Attachment {
        let key = (id.clone(), ifname.to_owned());
        if !self.rows.contains_key(&key) {
            self.unnamed.insert(id.clone());
        }
        self.rows.entry(key).or_insert_with(|| Box::new(Attachment::new(id.clone(), ifname, at)))
    }

    /// Restores a row from a checkpoint.
    pub(in crate::engine::world) fn insert(&mut self, row: Attachment) {
        self.unnamed.insert(row.container.clone());
        self.rows.insert((row.container.clone(), row.ifname.clone()), Box::new(row));
    }

    pub(crate) fn messages_asked(&self) -> Vec<MessageAsked> {
        let all = self.messages_asked.iter();
        all.map(|((plugin, command), at)| MessageAsked { plugin: plugin.clone(), command: *command, at: *at })
            .collect()
    }

    pub(in crate::engine) fn restore_messages_asked(&mut self, all: Vec<MessageAsked>) {
        self.messages_asked.extend(all.into_iter().map(|it| ((it.plugin, it.command), it.at)));
    }

    /// A listing showed the sandbox unchanged since `since`. An attachment of it loses its mark if it still
    /// has its addresses, or its result in libcni's cache: then no DEL has succeeded for it.
    pub(in crate::engine::world) fn heal(
        &mut self,
        id: &ContainerId,
        since: Timestamp,
        cache_read_at: Timestamp,
    ) {
        if !self.of(id).any(|row| row.gapped) {
            return;
        }
        let all = self.rows.range_mut((id.clone(), String::new())..);
        for (_, row) in all.take_while(|((key, _), _)| key == id) {
            let is_held = row.leases.iter().any(|lease| lease.kernel.is_some());
            let cached_at = row.cached_at.map(|at| at.max(cache_read_at));
            row.gapped &= !(is_held || cached_at >= Some(since));
        }
    }

    /// The attachment was counted: nothing shows that its addresses were freed by this plugin.
    pub(in crate::engine::world) fn mark_unverified(&mut self, key: &(ContainerId, String), plugin: &str) {
        let Some(row) = self.rows.get_mut(key) else { return };
        row.unverified = true;
        if let Some(entry) = row.plugin(plugin).and_then(|plugin| plugin.entry.as_mut()) {
            entry.is_unjudged = false;
        }
    }

    /// A store no longer says what it said of an address at `read_before`: whoever had it by this store has
    /// it no longer, unless the store says so anew, or who has it now cannot be read.
    pub(in crate::engine::world) fn lease_left_store(
        &mut self,
        it: &StoreChanged,
        before: &Reservation,
        read_before: Timestamp,
    ) {
        let Some(holder) = &before.holder else { return };
        let now = it.came.iter().find(|now| now.address == before.address).map(|now| now.holder.as_ref());
        if now.flatten() == Some(holder) {
            return;
        }
        let Some(row) = self.rows.get_mut(&(holder.container.clone(), holder.ifname.clone())) else {
            return;
        };
        for lease in row.leases.iter_mut().filter(|lease| lease.address == before.address) {
            match now {
                Some(None) => lease.doubted_in(&it.path, read_before),
                Some(Some(_)) | None => lease.not_in(&it.path),
            }
        }
    }

    /// Forgets old leases that no record and no namespace shows, and old attachments without leases.
    /// Attachments of a sandbox that a verdict needs stay. Returns the forgotten ones with an open entry.
    pub(in crate::engine::world) fn reap(
        &mut self,
        old: impl Fn(&ContainerId) -> Timestamp,
        is_needed: impl Fn(&ContainerId) -> bool,
    ) -> Vec<Attachment> {
        self.rows.update(|(id, _), row| {
            let is_kept = row.leases.iter().all(Lease::is_vouched) || is_needed(id) || row.last_at > old(id);
            if !is_kept {
                row.leases.retain(Lease::is_vouched);
            }
            !is_kept
        });
        let mut open = Vec::new();
        self.rows.retain(|(id, _), row| {
            let is_kept = !row.leases.is_empty() || row.is_busy() || is_needed(id) || row.last_at > old(id);
            if !is_kept && row.has_entry() {
                open.push(Attachment::clone(row));
            }
            is_kept
        });
        let rows = &self.rows;
        self.unnamed.retain(|id| {
            rows.range((id.clone(), String::new())..).next().is_some_and(|((key, _), _)| key == id)
        });
        open
    }

    /// All attachments of a sandbox.
    pub(crate) fn of(&self, id: &ContainerId) -> impl Iterator<Item = &Attachment> {
        let all = self.range((id.clone(), String::new())..);
        all.take_while(move |((key, _), _)| key == id).map(|(_, row)| &**row)
    }
}
