//! Applies a reading of the records outside of the kernel: IPAM stores, runtimes' sandboxes, networks'
//! configuration.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use super::{attachment, lease, program::PROGRAMS, recovery, sandbox};
use crate::{
    engine::world::{
        EventContext, World, lookup,
        table::{ipam_store::IpamStore, presence::Voucher, record::HasRecord, sandbox::Group},
    },
    model::{
        fact::{List, NetworksRead, ProgramFound, RuntimeChanged, RuntimeRead, StoreChanged, StoreRead},
        id::ContainerId,
        time::Timestamp,
    },
};

/// Takes in a reading of an IPAM store.
pub(crate) fn store_read(world: &mut World, ctx: EventContext, read: StoreRead) {
    // A store can have tens of thousands of records. If the reading is the same as before, none is applied
    // again.
    if let Some((at, known)) = world.records.stores.get_mut(&read.store.path)
        && known.complete
        && known.says(&read)
    {
        *at = ctx.at;
        return;
    }
    for holder in read.reservations.iter().filter_map(|it| it.holder.as_ref()) {
        world.sandboxes.vouch(&holder.container, Voucher::Cni, ctx.at);
    }
    let before = world.records.stores.get(&read.store.path).map_or(Timestamp::ZERO, |(at, _)| *at);
    lease::in_store(world, ctx, &read, before);
    recovery::leases_dated(world, ctx, read.store.kind, &read.reservations);
    world.records.stores.insert(read.store.path.clone(), (ctx.at, IpamStore::of(read)));
}

/// Takes in what changed in a store: the rest of it was read again, and is as it was.
pub(crate) fn store_changed(world: &mut World, ctx: EventContext, it: StoreChanged) {
    let Some((at, kept)) = world.records.stores.get_mut(&it.path) else { return };
    let read_before = mem::replace(at, ctx.at);
    if it.came.is_empty() && it.gone.is_empty() {
        return;
    }
    let before = kept.change(&it);
    // Which interface has an address may depend on everything else that is known. And who had an address
    // whose holder could not be read is not known here.
    let is_whole = !kept.names_interfaces()
        || before.iter().any(|it| it.holder.as_ref().is_none_or(|holder| holder.ifname.is_empty()));
    let read = if is_whole {
        kept.to_reading()
    } else {
        StoreRead { store: kept.store.clone(), reservations: it.came.clone(), complete: false }
    };
    for holder in it.came.iter().filter_map(|it| it.holder.as_ref()) {
        world.sandboxes.vouch(&holder.container, Voucher::Cni, ctx.at);
    }
    world.schedule_reap(ctx.at);
    if is_whole {
        lease::in_store(world, ctx, &read, read_before);
    } else {
        before.iter().for_each(|before| world.attachments.lease_left_store(&it, before, read_before));
        lease::came(world, ctx, &read);
    }
    recovery::leases_dated(world, ctx, read.store.kind, &it.came);
}

/// Takes in a reading of a runtime's records.
pub(crate) fn runtime_read(world: &mut World, ctx: EventContext, read: RuntimeRead) {
    for it in &read.sandboxes {
        if let Some(pod) = &it.pod {
            attachment::named(world, &it.id, pod);
        }
    }
    for it in &read.sandboxes {
        // A pod has not left while a sandbox of it is on record.
        if let Some(pod) = lookup::pod::of_record(world, &it.id, it.pod.as_ref())
            && world.pods.get(&pod).is_some_and(|row| row.left_at.is_some())
        {
            world.pods.left(pod, ctx.at);
        }
    }
    world.records.add_runtime(ctx.at, read);
    note_absence(world, ctx.at, None);
}

/// Takes in what changed in a runtime's records: the rest of them was read again, and is as it was.
pub(crate) fn runtime_changed(world: &mut World, ctx: EventContext, it: RuntimeChanged) {
    if !world.records.runtimes.contains_key(&it.place) {
        return;
    }
    for it in &it.came {
        if let Some(pod) = &it.pod {
            attachment::named(world, &it.id, pod);
        }
    }
    let place = it.place.clone();
    let ids = world.records.change_runtime(ctx.at, it);
    // The records may already have named the pods of attachments that came since the reading before.
    if let Some(row) = world.records.runtimes.get(&place) {
        let named =
            world.attachments.unnamed().filter_map(|id| Some((id.clone(), row.sandboxes.get(id)?.clone()?)));
        for (id, pod) in named.collect::<Vec<_>>() {
            attachment::named(world, &id, &pod);
        }
    }
    for pod in lookup::pod::left_on_record(world, &place) {
        world.pods.left(pod, ctx.at);
    }
    note_absence(world, ctx.at, Some(ids));
}

/// Notes which sandboxes the runtimes' records do not have. `changed`: only these, and sandboxes that are
/// new, can have come on record or left it since this was noted last.
fn note_absence(world: &mut World, at: Timestamp, changed: Option<BTreeSet<ContainerId>>) {
    let was_noted = world.records.is_absence_noted;
    world.records.is_absence_noted = matches!(world.records.absent(), HasRecord::No { .. });
    // While records cannot be read, absence was not noted.
    let changed = if was_noted || !world.records.is_absence_noted { changed } else { None };
    let records = &world.records;
    world.sandboxes.note_records(at, changed, |id| match records.has_record(id) {
        HasRecord::Yes => Some(true),
        HasRecord::No { .. } => Some(false),
        HasRecord::Unknown => None,
    });
}

/// Takes in a reading of the networks' configuration.
pub(crate) fn networks_read(world: &mut World, ctx: EventContext, read: NetworksRead) {
    let is_decodable = !read.networks.is_empty() || !read.complete && read.undecodable.is_empty();
    let fault = read.loading.as_ref().map(|it| it.fault.as_ref());
    let is_configured = fault.map_or(is_decodable, |fault| fault.is_none_or(|it| it.plugin.is_some()));
    match fault {
        Some(Some(_)) => _ = world.records.unready_since.get_or_insert(ctx.at),
        Some(None) => world.records.unready_since = None,
        None => {}
    }
    if is_configured {
        if world.records.unconfigured_since.take().is_some() {
            world.records.reconfigured_at = Some(ctx.at);
        }
    } else {
        world.records.unconfigured_since.get_or_insert(ctx.at);
    }
    let since = world.records.without_runtimes_since.unwrap_or(ctx.at);
    world.records.without_runtimes_since = world.records.runtimes.is_empty().then_some(since);
    recovery::network_configured(world, ctx.at, if is_configured { read.written } else { None });
    world.records.networks = Some((ctx.at, read));
}

/// Takes in the version of an executable.
pub(crate) fn program_found(world: &mut World, ctx: EventContext, it: ProgramFound) {
    if world.records.programs.len() < PROGRAMS || world.records.programs.contains_key(&it.path) {
        world.records.programs.insert(it.path, it.version);
        // It may be a runtime, or the kubelet.
        recovery::version_found(world, ctx.at);
    }
}

/// Removes the stores and runtimes that a complete listing no longer has.
pub(crate) fn stores_not_listed(world: &mut World, ctx: EventContext, begun: Timestamp) {
    let all = mem::take(&mut world.records.stores);
    let links = &world.records.links;
    let (kept, gone) = all.into_iter().partition(|(path, (at, _))| *at >= begun || links.contains_key(path));
    world.records.stores = kept;
    let gone: BTreeMap<String, (Timestamp, IpamStore)> = gone;
    for (at, IpamStore { store, .. }) in gone.into_values() {
        lease::in_store(world, ctx, &StoreRead { store, reservations: Vec::new(), complete: true }, at);
    }
}

/// Removes the runtimes that a complete listing no longer has, and stops abandoned sandboxes.
pub(crate) fn runtimes_not_listed(world: &mut World, ctx: EventContext, begun: Timestamp) {
    world.records.drop_runtimes(ctx.at, begun);
    stop_abandoned(world, ctx);
}

/// Stops the sandboxes that their runtime abandoned, after all records of the runtimes were read.
fn stop_abandoned(world: &mut World, ctx: EventContext) {
    // The next listing may find a process of the sandbox that the agent missed.
    if world.lists.is_gapped(List::Processes) {
        return;
    }
    let Some(runtimes) = lookup::daemons::runtimes_since(world) else { return };
    let unfinished = world
        .sandboxes
        .group(Group::Created)
        .filter(|row| lookup::abandoned::is_unfinished(world, row, runtimes));
    let abandoned = unfinished
        .filter(|row| lookup::abandoned::is_off_record(world, row, runtimes))
        .map(|row| row.id.clone());
    for id in abandoned.collect::<Vec<_>>() {
        sandbox::abandoned(world, ctx, &id);
    }
    let leftovers =
        world.sandboxes.group(Group::Created).filter(|row| lookup::abandoned::is_leftover(world, row));
    let leftovers =
        leftovers.filter(|row| lookup::abandoned::is_off_record(world, row, row.first_at.max(runtimes)));
    for id in leftovers.map(|row| row.id.clone()).collect::<Vec<_>>() {
        sandbox::left_over(world, ctx, &id);
    }
}
