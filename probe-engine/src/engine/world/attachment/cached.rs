//! What libcni's cache says of attachments.

use std::net::IpAddr;

use super::{Attachment, Lease};
use crate::{
    engine::world::{EventContext, World, args::Args},
    model::{
        fact::{CacheFound, PodName, network_of_cached, sandbox_of_cached},
        id::ContainerId,
        time::Timestamp,
    },
};

impl Attachment {
    /// Whether this is the file name of the attachment in libcni's cache.
    fn is_cached_as(&self, name: &str) -> bool {
        let network = network_of_cached(name, &self.container, &self.ifname);
        network
            .is_some_and(|name| self.inferred || self.network.as_ref().is_none_or(|network| network == name))
    }

    /// Whether this result in libcni's cache tells nothing new.
    fn is_cached_already(&self, it: &CacheFound, pod: &PodName) -> bool {
        let is_named = self.names(pod)
            && !self.inferred
            && self.network.is_some()
            && (self.netns_path.is_some() || it.netns.is_none());
        let is_by_nobody = self.plugins.iter().all(|plugin| plugin.add.begun == 0);
        let has = |address: IpAddr| {
            let is_it = |lease: &Lease| {
                lease.address == address && lease.cached && (lease.plugin.is_some() || is_by_nobody)
            };
            self.leases.iter().any(is_it)
        };
        let given = |lease: &Lease| it.addresses.iter().any(|given| given.address == lease.address);
        self.cached_at.is_some()
            && is_named
            && (self.is_loopback()
                || it.addresses.iter().all(|given| has(given.address))
                    && self.leases.iter().all(|lease| !lease.cached || given(lease)))
    }

    /// libcni's cache has no result for it any more.
    fn leave_cache(&mut self) {
        self.cached_at = None;
        self.leases.iter_mut().for_each(|lease| lease.cached = false);
    }
}

impl World {
    /// A result in libcni's cache names an attachment and the addresses that its ADD gave.
    pub(in crate::engine::world) fn attachment_cached(&mut self, ctx: EventContext, it: &CacheFound) {
        let id = it.container.clone();
        let pod = Args::of(it.args.iter().map(|(key, value)| (key.as_str(), value.as_str()))).pod;
        let key = (id.clone(), it.ifname.clone());
        if self.attachments.get(&key).is_some_and(|row| row.is_cached_already(it, &pod)) {
            self.schedule_reap(ctx.at);
            // Some verdicts depend on the time of a reading. They are judged again after each reading.
            if let Some(row) = self.attachments.rows.get_mut_unmarked(&key) {
                row.cached_at = Some(ctx.at);
            }
            return;
        }
        self.schedule_reap(ctx.at);
        let row = self.attachments.row(ctx.at, &id, &it.ifname);
        row.cached_at = Some(ctx.at);
        row.pod.learn(&pod);
        row.learn_network(&it.network, false);
        if row.netns_path.is_none() {
            row.netns_path.clone_from(&it.netns);
        }
        if !row.is_loopback() {
            let plugin = row.plugins.iter().find(|plugin| plugin.add.begun > 0);
            let plugin = plugin.map(|plugin| plugin.name.clone());
            for address in &it.addresses {
                row.lease(address.address, ctx.at, plugin.as_deref()).cached = true;
            }
            let named = |lease: &Lease| it.addresses.iter().any(|given| given.address == lease.address);
            for lease in row.leases.iter_mut().filter(|lease| !named(lease)) {
                lease.cached = false;
            }
        }
    }

    /// A file of libcni's cache cannot be read. The attachment of that file keeps its cached result. Other attachments
    /// do not change.
    pub(in crate::engine::world) fn cache_unread(&mut self, ctx: EventContext, path: String) {
        let name = path.rsplit('/').next().unwrap_or(&path);
        let is_it = |row: &&Attachment| row.cached_at.is_some() && row.is_cached_as(name);
        let key = |row: &Attachment| (row.container.clone(), row.ifname.clone());
        // Containers of pods have full ids, by which their attachments are found. Few attachments belong to other
        // containers.
        let keys: Vec<_> = match sandbox_of_cached(name) {
            Some(id) => self.attachments.of(&id).filter(is_it).map(key).collect(),
            None => self.attachments.values().filter(is_it).map(key).collect(),
        };
        for key in keys {
            if let Some(row) = self.attachments.rows.get_mut(&key) {
                row.cached_at = Some(ctx.at);
            }
        }
        self.records.unread(ctx.at, path);
    }

    /// The listing of libcni's cache that has begun tells only what changed.
    pub(in crate::engine::world) fn cache_unchanged(&mut self, ctx: EventContext) {
        self.records.cache_read_at = self.records.cache_read_at.max(ctx.at);
        self.lists.is_cache_unchanged = true;
    }

    /// A result that was in libcni's cache is no longer in it.
    pub(in crate::engine::world) fn cache_gone(
        &mut self,
        ctx: EventContext,
        container: ContainerId,
        ifname: String,
    ) {
        self.schedule_reap(ctx.at);
        if let Some(row) = self.attachments.rows.get_mut(&(container, ifname)) {
            row.leave_cache();
        }
    }

    /// Forgets the cached results that a complete listing of libcni's cache, begun at `begun`, did not name. One that tells
    /// only changes (`is_unchanged`) names them itself.
    pub(in crate::engine::world) fn cache_not_listed(&mut self, begun: Timestamp, is_unchanged: bool) {
        self.records.unread.retain(|_, it| it.read_at >= begun);
        if is_unchanged {
            return;
        }
        self.attachments.rows.update(|_, row| {
            let was_cached = row.cached_at.is_some() || row.leases.iter().any(|lease| lease.cached);
            let is_gone = was_cached && row.cached_at < Some(begun);
            if is_gone {
                row.leave_cache();
            }
            is_gone
        });
    }
}
