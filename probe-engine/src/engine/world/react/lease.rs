//! Leases: the addresses that an ADD gave, as the kernel and the stores show them.
//!
//! Other addresses in a pod's namespace are no leases: docker0 of a Docker in the pod, virtual IPs, addresses
//! that IPv6 configures by itself.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use crate::{
    engine::world::{EventContext, World, table::attachment::lease::Removed},
    model::{
        fact::{self, Origin, StoreRead},
        id::ContainerId,
        time::Timestamp,
    },
};

/// What a reading of a store names.
struct Named {
    /// The attachments with their addresses.
    leases: BTreeSet<((ContainerId, String), IpAddr)>,
    /// The addresses whose holder could not be read.
    unread: BTreeSet<IpAddr>,
}

/// `IFA_F_TEMPORARY` of IPv6.
const TEMPORARY: u32 = 1;

/// `IFA_F_SECONDARY` of IPv4: the subnet had an address on the interface before.
const SECONDARY: u32 = 1;

/// The first address of its family that is heard of within this time after an ADD is that of the ADD: netlink
/// begins to watch a namespace some time after it was made, and an agent may be stopped meanwhile.
const HEARD_LATE: Duration = Duration::from_secs(30);

/// `IFA_F_PERMANENT`: the address has no lifetime.
pub(super) const PERMANENT: u32 = 0x80;

/// `RT_SCOPE_UNIVERSE`.
const GLOBAL: u8 = 0;

/// Adds an address that appeared in a sandbox's namespace, if a plugin works on that interface now, or has
/// just done: then it is a lease.
pub(crate) fn by_kernel(world: &mut World, ctx: EventContext, life: u64, it: &fact::Address) {
    let is_temporary = it.address.address.is_ipv6() && it.flags & TEMPORARY != 0;
    if it.scope != GLOBAL || is_temporary || it.address.address.is_loopback() {
        return;
    }
    let Some(id) = world.netns.get(life).and_then(|row| row.sandbox.clone()) else { return };
    let Some(row) = world.attachments.rows.get_mut(&(id, it.ifname.clone())) else { return };
    let address = it.address.address;
    let known = row.leases.iter().any(|lease| lease.address == address);
    let mut adding = row.plugins.iter().find(|plugin| plugin.add.is_open());
    // A second address of a subnet is not that of the ADD, nor one of IPv6 with a lifetime.
    let is_own = if address.is_ipv4() { it.flags & SECONDARY == 0 } else { it.flags & PERMANENT != 0 };
    // A hook is never late.
    let may_be_late = is_own && ctx.origin != Origin::Kernel;
    let has_none = !row.leases.iter().any(|lease| lease.address.is_ipv4() == address.is_ipv4());
    if adding.is_none() && may_be_late && has_none {
        let mut plugins = row.plugins.iter();
        adding = plugins.find(|it| {
            let ended = it.add.last_at;
            it.add.succeeded > 0 && ended <= ctx.at && ctx.at < ended + HEARD_LATE
        });
    }
    let adding = adding.map(|plugin| plugin.name.clone());
    if known || adding.is_some() {
        row.lease(address, ctx.at, adding.as_deref()).kernel = Some(life);
    }
}

/// Notes that an address was removed from a namespace. `removed: None` if that says nothing about the pod.
pub(crate) fn removed(world: &mut World, life: u64, address: IpAddr, removed: Option<&Removed>) {
    left_kernel(world, life, Some(address), removed);
}

/// Whether a lease of the namespace's sandbox was removed from the namespace after `at`.
pub(crate) fn was_removed_since(world: &World, at: Timestamp, life: u64, address: IpAddr) -> bool {
    let Some(id) = world.netns.get(life).and_then(|row| row.sandbox.as_ref()) else { return false };
    let mut leases = world.attachments.of(id).flat_map(|row| &row.leases);
    leases.any(|it| it.address == address && it.removed.as_ref().is_some_and(|removed| removed.at > at))
}

/// Notes that an address that was removed is back in the namespace, perhaps on another interface.
pub(crate) fn back(world: &mut World, ctx: EventContext, life: u64, address: IpAddr) {
    if was_removed_since(world, ctx.at, life, address) {
        return;
    }
    let Some(id) = world.netns.get(life).and_then(|row| row.sandbox.clone()) else { return };
    let rows = world.attachments.of(&id).filter(|row| row.leases.iter().any(|it| it.is_removed(address)));
    let keys: Vec<_> = rows.map(|row| (id.clone(), row.ifname.clone())).collect();
    for key in keys {
        let Some(row) = world.attachments.rows.get_mut(&key) else { continue };
        for lease in row.leases.iter_mut().filter(|lease| lease.is_removed(address)) {
            lease.kernel = Some(life);
            lease.removed = None;
        }
    }
}

/// Notes that a namespace with all its addresses is gone.
pub(crate) fn dropped(world: &mut World, life: u64) {
    left_kernel(world, life, None, None);
}

/// Notes that the namespace no longer has `address`, or none any more. A pod from before the agent has a
/// lease that only records name, and its address was in this namespace all the same.
fn left_kernel(world: &mut World, life: u64, address: Option<IpAddr>, removed: Option<&Removed>) {
    let Some(id) = world.netns.get(life).and_then(|row| row.sandbox.clone()) else { return };
    let all = world.attachments.rows.range_mut((id.clone(), String::new())..);
    for (_, row) in all.take_while(|((key, _), _)| *key == id) {
        // A plugin at work may move the address.
        let removed = if row.is_busy() { None } else { removed };
        for lease in &mut row.leases {
            let is_it = address.is_none_or(|address| lease.address == address);
            let is_unknown = lease.kernel.is_none() && lease.removed.is_none() && removed.is_some();
            if is_it && (lease.kernel == Some(life) || is_unknown) {
                lease.kernel = None;
                lease.removed = removed.cloned().map(Box::new);
            }
        }
    }
}

/// Takes in a reading of a store, which was read before at `read_before`. Every address that it names is
/// given. An address that it no longer names is not given any more, if the reading covers that address.
pub(crate) fn in_store(world: &mut World, ctx: EventContext, read: &StoreRead, read_before: Timestamp) {
    let named = leases_named(world, ctx, read);
    let path = &read.store.path;
    world.attachments.rows.update(|key, row| {
        let mut is_changed = false;
        for place in 0..row.leases.len() {
            let Some(lease) = row.leases.get(place).filter(|lease| {
                lease.may_be_in(path) && !named.leases.contains(&(key.clone(), lease.address))
            }) else {
                continue;
            };
            let is_unread = named.unread.contains(&lease.address);
            let is_gone = if read.complete {
                !is_unread
            } else {
                !is_unread && row.is_deleted_since(lease, path, read_before, ctx.at)
            };
            let Some(lease) = row.leases.get_mut(place) else { continue };
            if is_gone {
                lease.not_in(path);
                is_changed = true;
            } else if lease.stores.contains(path) {
                lease.doubted_in(path, read_before);
                is_changed = true;
            }
        }
        is_changed
    });
}

/// Adds every address that a reading of a store names.
pub(crate) fn came(world: &mut World, ctx: EventContext, read: &StoreRead) {
    leases_named(world, ctx, read);
}

fn leases_named(world: &mut World, ctx: EventContext, read: &StoreRead) -> Named {
    let path = &read.store.path;
    let mut named = Named { leases: BTreeSet::new(), unread: BTreeSet::new() };
    for it in &read.reservations {
        let Some(holder) = &it.holder else {
            named.unread.insert(it.address);
            continue;
        };
        let key = (holder.container.clone(), interface_of(world, holder, it.address));
        if world.attachments.get(&key).is_some_and(|row| row.is_stored_already(read, it)) {
            world.schedule_reap(ctx.at);
            named.leases.insert((key, it.address));
            continue;
        }
        world.schedule_reap(ctx.at);
        let row = world.attachments.row(ctx.at, &key.0, &key.1);
        if let Some(network) = &read.store.network {
            row.learn_network(network, false);
        }
        if let Some(pod) = &it.pod {
            row.pod.learn(pod);
        }
        let lease = row.lease(it.address, it.since, None);
        if lease.stored && !lease.is_vouched() {
            // It was given back, and is given again.
            lease.since = it.since;
        }
        lease.queued_since = it.queued_since();
        lease.shown_in(path);
        named.leases.insert((key, it.address));
    }
    named
}

/// Returns the interface of a reservation in a store that keeps no interface names: the one that has the
/// address, or the only one.
fn interface_of(world: &World, holder: &fact::Holder, address: IpAddr) -> String {
    if !holder.ifname.is_empty() {
        return holder.ifname.clone();
    }
    let mut only = None;
    let mut count = 0_usize;
    for row in world.attachments.of(&holder.container).filter(|row| !row.is_loopback()) {
        if row.leases.iter().any(|lease| lease.address == address) {
            return row.ifname.clone();
        }
        if !row.ifname.is_empty() {
            only = Some(row);
            count += 1;
        }
    }
    let only = if count == 1 { only } else { None };
    only.map(|row| row.ifname.clone()).unwrap_or_default()
}
