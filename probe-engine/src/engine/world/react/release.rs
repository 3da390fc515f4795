//! Counts the releases that nothing verifies, and closes the entries of attachments that are forgotten.
//!
//! **Invariant:** an attachment is counted once, and only if its whole life was seen. The count outlives the
//! attachment.

use crate::{
    engine::world::{
        World,
        lookup::{self, balance::fate_without_del},
        table::{
            self,
            attachment::{Attachment, Booked, Booking, Fate, Plugin},
            record::HasRecord,
            release::{MEMORY, Release, Released},
        },
    },
    model::{id::ContainerId, time::Timestamp},
};

/// At most this many plugins have a count.
const PLUGINS: usize = 64;

/// The plugins that find an address by the container's id, and need no namespace to free it.
const BY_CONTAINER: [&str; 4] = ["host-local", "calico", "calico-ipam", "cilium-cni"];

/// Closes the entries of attachments that are forgotten. The sandboxes are over for long, and no record names
/// an address of them any more.
pub(crate) fn close_entries(world: &mut World, now: Timestamp, forgotten: Vec<Attachment>) {
    for row in forgotten {
        let has_record =
            world.records.has_record(&row.container).unless(lookup::record::has_unread_runtime(world));
        let is_known = matches!(has_record, HasRecord::No { .. });
        let is_free = is_stored(world, &row);
        let unreleased = if is_free {
            Fate::Released
        } else if is_known {
            Fate::Unreleased
        } else {
            Fate::Unknown
        };
        for (plugin, network) in row.entries() {
            let is_unreleased = fate_without_del(&row, plugin) == Fate::Unreleased;
            let what = Booked::Closed(if is_unreleased { unreleased } else { Fate::Unknown });
            world.accounts.book(Booking { plugin: plugin.name.clone(), network: network.clone(), what });
        }
        // The first plugin of a chain gives the address.
        let first = row.plugins.iter().find(|plugin| plugin.add.succeeded > 0);
        if let Some(plugin) = first
            && plugin.open_entry().is_some()
            && unreleased == Fate::Unreleased
            && fate_without_del(&row, plugin) == Fate::Unreleased
        {
            count(world, now, plugin.name.clone(), Released::Never);
            world.changed_at.get_or_insert(now);
        }
    }
}

/// Counts the attachments whose last DEL is so long ago that the stores were read after it.
pub(crate) fn judge(world: &mut World, now: Timestamp) {
    let old = now.saturating_sub(table::GRACE);
    let found: Vec<_> = world
        .attachments
        .iter()
        .filter(|(_, row)| row.last_at <= old && !row.is_busy() && !row.is_loopback())
        .filter_map(|(key, row)| Some((key, row, released_without_netns(row)?)))
        .filter(|(_, row, _)| !is_verified(world, row))
        .map(|(key, _, plugin)| (key.clone(), plugin.name.clone(), unverified(plugin)))
        .collect();
    for (key, plugin, booking) in found {
        world.attachments.mark_unverified(&key, &plugin);
        world.accounts.extend(booking);
        count(world, now, plugin, Released::WithoutNetns);
        world.changed_at.get_or_insert(now);
    }
}

/// Counts the release of an attachment that is added again: it is over, although its sandbox is not.
pub(crate) fn added_again(world: &mut World, id: &ContainerId, ifname: &str, plugin: &str) {
    let Some(row) = world.attachments.get(&(id.clone(), ifname.to_owned())) else { return };
    let released = released_without_netns(row).filter(|it| it.name == plugin);
    let booking = released.and_then(unverified);
    if booking.is_some() && !is_verified(world, row) {
        world.accounts.extend(booking);
    }
}

fn unverified(plugin: &Plugin) -> Option<Booking> {
    let network = plugin.unjudged_entry()?.network.clone();
    Some(Booking { plugin: plugin.name.clone(), network, what: Booked::Unverified })
}

fn count(world: &mut World, at: Timestamp, plugin: String, how: Released) {
    let known = world.releases.get(&plugin).filter(|it| at < it.last_at + MEMORY);
    let (count, without_del, since) = known.map_or((0, 0, at), |it| (it.count, it.without_del, it.since));
    let without_del = without_del.saturating_add(u32::from(how == Released::Never));
    let row = Release { plugin, count: count.saturating_add(1), without_del, since, last_at: at };
    world.releases.insert(row.plugin.clone(), row);
    if world.releases.len() > PLUGINS {
        let first = world.releases.values().min_by_key(|it| (it.last_at, &it.plugin));
        if let Some(plugin) = first.map(|it| it.plugin.clone()) {
            world.releases.remove(&plugin);
        }
    }
}

/// Whether a store shows what became of the addresses, or the plugin reliably frees them. If the attachment's
/// network is not known, this must hold for each network that it can be.
fn is_verified(world: &World, row: &Attachment) -> bool {
    let mut networks = world
        .records
        .networks()
        .iter()
        .filter(|network| match &row.network {
            Some(name) => network.name == *name,
            None => row.plugins.iter().any(|plugin| network.plugins.contains(&plugin.name)),
        })
        .peekable();
    let by_network = networks.peek().is_some()
        && networks.all(|it| {
            it.ipam.as_deref().is_some_and(|name| BY_CONTAINER.contains(&name))
                || world.records.has_store(&it.name)
        });
    by_network
        || row.plugins.iter().any(|plugin| BY_CONTAINER.contains(&plugin.name.as_str()))
        || is_stored(world, row)
}

/// Returns the plugin that gave the address, if it succeeded with DEL only without a namespace, and with no
/// ADD after that. A container without a pod has no entry, and counts once.
fn released_without_netns(row: &Attachment) -> Option<&Plugin> {
    let plugin = row.plugins.iter().find(|plugin| plugin.add.succeeded > 0)?;
    let is_unverified = match &plugin.entry {
        Some(entry) => entry.is_unjudged,
        None => {
            !row.unverified
                && !row.gapped
                && plugin.del_without_netns.succeeded > 0
                && plugin.del.succeeded == 0
                && plugin.del.unseen == 0
        }
    };
    is_unverified.then_some(plugin)
}

/// Whether a store that was read whole shows which addresses of an attachment are given.
fn is_stored(world: &World, row: &Attachment) -> bool {
    row.leases.iter().any(|lease| world.records.is_store_read(row, lease))
        || row.network.as_deref().is_some_and(|name| world.records.has_store(name))
}
