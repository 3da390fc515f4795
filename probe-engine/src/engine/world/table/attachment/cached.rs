//! What libcni's cache says of an attachment.

use crate::{
    engine::world::table::attachment::Attachment,
    model::fact::{CacheFound, PodName, network_of_cached},
};

impl Attachment {
    /// Whether this is the file name of the attachment in libcni's cache.
    pub(crate) fn is_cached_as(&self, name: &str) -> bool {
        let network = network_of_cached(name, &self.container, &self.ifname);
        network
            .is_some_and(|name| self.inferred || self.network.as_ref().is_none_or(|network| network == name))
    }

    /// Whether this result in libcni's cache has nothing new.
    pub(crate) fn is_cached_already(&self, it: &CacheFound, pod: &PodName) -> bool {
        let is_named = self.names(pod)
            && !self.inferred
            && self.network.is_some()
            && (self.netns_path.is_some() || it.netns.is_none());
        let is_by_nobody = self.plugins.iter().all(|plugin| plugin.add.begun == 0);
        if self.cached_at.is_none() || !is_named {
            return false;
        }
        if self.is_loopback() {
            return true;
        }
        let knows_all = it.addresses.iter().all(|given| {
            self.leases.iter().any(|lease| {
                lease.address == given.address && lease.cached && (lease.plugin.is_some() || is_by_nobody)
            })
        });
        let has_no_other = self
            .leases
            .iter()
            .all(|lease| !lease.cached || it.addresses.iter().any(|given| given.address == lease.address));
        knows_all && has_no_other
    }

    /// libcni's cache has no result for it any more.
    pub(in crate::engine::world) fn leave_cache(&mut self) {
        self.cached_at = None;
        self.leases.iter_mut().for_each(|lease| lease.cached = false);
    }
}
