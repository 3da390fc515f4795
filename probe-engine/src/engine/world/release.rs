//! Releases that nothing verifies. The runtime called DEL only when the namespace was gone, and the plugin succeeded.
//! No store could be read that shows whether the address was freed.
//!
//! **Invariant:** an attachment is counted once, and only if its whole life was seen. The count outlives the
//! attachment.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    engine::world::{
        World,
        attachment::{Attachment, Plugin},
        reap,
    },
    model::{fact::Network, time::Timestamp},
};

/// A plugin, and the number of its releases that nothing verifies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    pub(crate) plugin: String,
    pub(crate) count: u32,
    /// How many of these had no DEL that succeeded.
    #[serde(default)]
    pub(crate) without_del: u32,
    pub(crate) since: Timestamp,
    pub(crate) last_at: Timestamp,
}

/// How an attachment was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Released {
    /// Only by a DEL without a namespace.
    WithoutNetns,
    /// By no DEL.
    Never,
}

/// If no new one came for this long, the count begins anew.
pub(in crate::engine) const MEMORY: Duration = Duration::from_secs(60 * 60);
/// At most this many plugins have a count.
const PLUGINS: usize = 64;

/// The plugins that find an address by the container's id, and need no namespace to free it.
const BY_CONTAINER: [&str; 4] = ["host-local", "calico", "calico-ipam", "cilium-cni"];

impl World {
    /// Counts the attachments whose last DEL is so long ago that the stores were read after it.
    pub(super) fn judge_releases(&mut self, now: Timestamp) {
        let old = now.saturating_sub(reap::GRACE);
        let is_new = |row: &Attachment| {
            !row.unverified && !row.gapped && row.last_at <= old && !row.is_busy() && !row.is_loopback()
        };
        let found: Vec<_> = self
            .attachments
            .iter()
            .filter(|(_, row)| is_new(row))
            .filter_map(|(key, row)| Some((key, row, released_without_netns(row)?)))
            .filter(|(_, row, _)| !self.is_verified(row))
            .map(|(key, _, plugin)| (key.clone(), plugin.name.clone()))
            .collect();
        for (key, plugin) in found {
            self.attachments.mark_unverified(&key);
            self.count_release(now, plugin, Released::WithoutNetns);
            self.changed_at.get_or_insert(now);
        }
    }

    pub(super) fn count_release(&mut self, at: Timestamp, plugin: String, how: Released) {
        let known = self.releases.get(&plugin).filter(|it| at < it.last_at + MEMORY);
        let (count, without_del, since) = known.map_or((0, 0, at), |it| (it.count, it.without_del, it.since));
        let without_del = without_del.saturating_add(u32::from(how == Released::Never));
        let row = Release { plugin, count: count.saturating_add(1), without_del, since, last_at: at };
        self.releases.insert(row.plugin.clone(), row);
        if self.releases.len() > PLUGINS {
            let first = self.releases.values().min_by_key(|it| (it.last_at, &it.plugin));
            if let Some(plugin) = first.map(|it| it.plugin.clone()) {
                self.releases.remove(&plugin);
            }
        }
    }

    /// Whether a store shows what became of the addresses, or the plugin reliably frees them. If the attachment's
    /// network is not known, this must hold for each network that it can be.
    fn is_verified(&self, row: &Attachment) -> bool {
        let frees = |name: &str| BY_CONTAINER.contains(&name);
        let is_it = |network: &&Network| match &row.network {
            Some(name) => network.name == *name,
            None => row.plugins.iter().any(|plugin| network.plugins.contains(&plugin.name)),
        };
        let mut networks = self.records.networks().iter().filter(is_it).peekable();
        let by_network = networks.peek().is_some()
            && networks.all(|it| it.ipam.as_deref().is_some_and(frees) || self.records.has_store(&it.name));
        by_network || row.plugins.iter().any(|plugin| frees(&plugin.name)) || self.is_stored(row)
    }

    /// Whether a store that was read whole shows which addresses of an attachment are given.
    pub(super) fn is_stored(&self, row: &Attachment) -> bool {
        row.leases.iter().any(|lease| self.records.is_store_read(row, lease))
            || row.network.as_deref().is_some_and(|name| self.records.has_store(name))
    }
}

/// The plugin that gave the address, if it succeeded with DEL only without a namespace.
fn released_without_netns(row: &Attachment) -> Option<&Plugin> {
    let plugin = row.plugins.iter().find(|plugin| plugin.add.succeeded > 0)?;
    let is_unverified =
        plugin.del_without_netns.succeeded > 0 && plugin.del.succeeded == 0 && plugin.del.unseen == 0;
    is_unverified.then_some(plugin)
}
