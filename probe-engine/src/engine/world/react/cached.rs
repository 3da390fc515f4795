//! Applies a reading of libcni's cache.

use super::identity;
use crate::{
    engine::world::{
        EventContext, World,
        args::Args,
        table::{attachment::Attachment, hint::Hint, presence::Voucher},
    },
    model::{
        fact::{CacheFound, NameSource, Role, sandbox_of_cached},
        id::ContainerId,
        time::Timestamp,
    },
};

/// Keeps the cached result of a file of libcni's cache that cannot be read. Other attachments do not change.
pub(crate) fn unread(world: &mut World, ctx: EventContext, path: String) {
    let name = path.rsplit('/').next().unwrap_or(&path);
    // Containers of pods have full ids, by which their attachments are found. Few attachments belong to other
    // containers.
    let keys: Vec<_> = match sandbox_of_cached(name) {
        Some(id) => world.attachments.of(&id).filter(|row| is_cached(row, name)).map(key).collect(),
        None => world.attachments.values().filter(|row| is_cached(row, name)).map(key).collect(),
    };
    for key in keys {
        if let Some(row) = world.attachments.rows.get_mut(&key) {
            row.cached_at = Some(ctx.at);
        }
    }
    world.records.unread(ctx.at, path);
}

fn is_cached(row: &Attachment, name: &str) -> bool {
    row.cached_at.is_some() && row.is_cached_as(name)
}

fn key(row: &Attachment) -> (ContainerId, String) {
    (row.container.clone(), row.ifname.clone())
}

/// Notes that the listing of libcni's cache that has begun has only what changed.
pub(crate) fn unchanged(world: &mut World, ctx: EventContext) {
    world.records.cache_read_at = world.records.cache_read_at.max(ctx.at);
    world.lists.is_cache_unchanged = true;
}

/// Removes a result that is no longer in libcni's cache.
pub(crate) fn gone(world: &mut World, ctx: EventContext, container: ContainerId, ifname: String) {
    world.schedule_reap(ctx.at);
    if let Some(row) = world.attachments.rows.get_mut(&(container, ifname)) {
        row.leave_cache();
    }
}

/// Forgets the cached results that a complete listing of libcni's cache, begun at `begun`, did not name. One
/// that has only changes (`is_unchanged`) names them itself.
pub(crate) fn not_listed(world: &mut World, begun: Timestamp, is_unchanged: bool) {
    world.records.unread.retain(|_, it| it.read_at >= begun);
    if is_unchanged {
        return;
    }
    world.attachments.rows.update(|_, row| {
        let was_cached = row.cached_at.is_some() || row.leases.iter().any(|lease| lease.cached);
        let is_gone = was_cached && row.cached_at < Some(begun);
        if is_gone {
            row.leave_cache();
        }
        is_gone
    });
}

/// Takes in a file of libcni's cache.
pub(crate) fn found(world: &mut World, ctx: EventContext, it: CacheFound) {
    attachment_cached(world, ctx, &it);
    let args = Args::of(it.args.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    let pod = args.pod.name.is_some().then_some(args.pod);
    if pod.is_none() && it.netns.is_none() {
        return;
    }
    let of_pod = pod.is_some().then_some(Role::Sandbox);
    let hint = Hint {
        at: ctx.at,
        role: of_pod,
        pod,
        netns_path: it.netns,
        ..Hint::new(it.container.clone(), NameSource::CniCache)
    };
    identity::hinted(world, ctx, hint);
    // A CNI record confirms a sandbox that other evidence shows. Alone it proves no sandbox.
    world.sandboxes.vouch(&it.container, Voucher::Cni, ctx.at);
}

/// Takes in the attachment that a result in libcni's cache names, and the addresses that its ADD gave.
fn attachment_cached(world: &mut World, ctx: EventContext, it: &CacheFound) {
    let id = it.container.clone();
    let pod = Args::of(it.args.iter().map(|(key, value)| (key.as_str(), value.as_str()))).pod;
    let key = (id.clone(), it.ifname.clone());
    if world.attachments.get(&key).is_some_and(|row| row.is_cached_already(it, &pod)) {
        world.schedule_reap(ctx.at);
        // Some verdicts depend on the time of a reading. They are judged again after each reading.
        if let Some(row) = world.attachments.rows.get_mut_unmarked(&key) {
            row.cached_at = Some(ctx.at);
        }
        return;
    }
    world.schedule_reap(ctx.at);
    let row = world.attachments.row(ctx.at, &id, &it.ifname);
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
        for lease in row
            .leases
            .iter_mut()
            .filter(|lease| !it.addresses.iter().any(|given| given.address == lease.address))
        {
            lease.cached = false;
        }
    }
}
