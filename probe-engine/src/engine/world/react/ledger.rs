//! Asks a store about single addresses of sandboxes that are over, where nothing lists what this node has.
//!
//! **Invariant:** only an address that nothing shows to be freed is asked about, so that a healthy node asks
//! nothing. An answer that does not come changes nothing.

use std::{net::IpAddr, time::Duration};

use crate::{
    engine::world::{
        EventContext, World,
        table::{
            attachment::{Attachment, Lease, Outcome, Runs},
            ipam_store::IpamStore,
            record::HasRecord,
            sandbox::Sandbox,
        },
    },
    model::{
        change::Question,
        fact::{AddressAnswered, Holder, StoreAnswer, StoreKind, StoreLink, StoreRead},
        id::ContainerId,
        time::Timestamp,
    },
};

/// How long after the end of its sandbox an address is first asked about. By then the DEL has succeeded.
const FIRST: Duration = Duration::from_secs(60);

/// How often an address that is held is asked about again, and one about which no answer came.
const AGAIN: Duration = Duration::from_secs(10 * 60);

/// At most this many addresses are asked about again and again. Of any more nothing is known.
const SUSPECTS: usize = 1024;

/// An address of a sandbox that is over.
struct Suspect {
    key: (ContainerId, String),
    address: IpAddr,
    /// When its sandbox was over.
    ended: Timestamp,
    /// It was asked about, and may be held.
    is_known: bool,
    /// A DEL without a namespace succeeded.
    is_deleted: bool,
}

/// Notes whether a store can be asked.
pub(crate) fn linked(world: &mut World, ctx: EventContext, it: StoreLink) {
    let StoreLink { store, answer } = it;
    let path = store.path.clone();
    if answer == StoreAnswer::Off {
        world.records.links.remove(&path);
        world.records.stores.remove(&path);
        world.attachments.rows.update(|_, row| {
            let mut is_changed = false;
            for lease in row.leases.iter_mut().filter(|lease| lease.asked.is_some()) {
                lease.forget_answers(&path);
                is_changed = true;
            }
            is_changed
        });
        return;
    }
    let read = StoreRead { store, reservations: Vec::new(), complete: answer != StoreAnswer::Silent };
    world.records.links.insert(path.clone(), answer);
    world.records.stores.insert(path, (ctx.at, IpamStore::of(read)));
    world.schedule_reap(ctx.at);
}

/// Takes in a store's answer about an address.
pub(crate) fn answered(world: &mut World, ctx: EventContext, it: AddressAnswered) {
    // It may not be asked any more.
    if !world.records.links.contains_key(&it.path) {
        return;
    }
    let Some(row) = world.attachments.rows.get_mut(&(it.holder.container, it.holder.ifname)) else { return };
    if let Some(lease) = row.leases.iter_mut().find(|lease| lease.address == it.address) {
        lease.answer(&it.path, ctx.at, it.is_held);
    }
}

/// Asks about the addresses that are due.
pub(crate) fn ask(world: &mut World, now: Timestamp) {
    let paths: Vec<String> = world.records.links.keys().cloned().collect();
    for path in paths {
        let (mut suspects, mut new): (Vec<Suspect>, Vec<Suspect>) =
            suspects(world, &path).into_iter().partition(|it| it.is_known);
        let room = SUSPECTS.saturating_sub(suspects.len());
        let is_whole = new.len() <= room;
        new.truncate(room);
        suspects.append(&mut new);
        let answers = world.records.links.get(&path) != Some(&StoreAnswer::Silent);
        let Some((_, read)) = world.records.stores.get_mut(&path) else { continue };
        read.complete = answers && is_whole;
        let kind = read.store.kind;
        suspects.into_iter().for_each(|it| ask_about(world, now, &path, kind, it));
    }
}

/// Returns the addresses that this store may hold for sandboxes that are over.
fn suspects(world: &World, path: &str) -> Vec<Suspect> {
    let mut found = Vec::new();
    for (key, row) in world.attachments.iter() {
        let asked = world.records.network(row).and_then(|it| world.records.asked_store(it));
        // The network may have left the configuration after the store was asked.
        let is_served = asked.is_some_and(|it| it == path);
        let mut leases = row
            .leases
            .iter()
            .filter(|lease| lease.may_be_in(path) || is_served && is_unasked(row, lease))
            .peekable();
        if row.is_loopback() || row.is_busy() || leases.peek().is_none() {
            continue;
        }
        let sandbox = world.sandboxes.recall(&row.container);
        let is_over = sandbox.is_none_or(|it| it.is_stopped() || it.is_stillborn(row));
        if !is_over || !matches!(world.records.has_record(&row.container), HasRecord::No { .. }) {
            continue;
        }
        let over_at = sandbox.and_then(Sandbox::over_at).unwrap_or(Timestamp::ZERO);
        for lease in leases {
            found.push(Suspect {
                key: key.clone(),
                address: lease.address,
                ended: over_at.max(row.last_at).max(lease.since),
                is_known: lease.may_be_in(path),
                is_deleted: row
                    .plugin_of(lease)
                    .is_some_and(|plugin| has_succeeded(&plugin.del_without_netns, &plugin.add)),
            });
        }
    }
    found
}

/// Whether no store was asked about the address yet, and no DEL with a namespace succeeded.
fn is_unasked(row: &Attachment, lease: &Lease) -> bool {
    let is_deleted = row.plugin_of(lease).is_some_and(|plugin| has_succeeded(&plugin.del, &plugin.add));
    !lease.stored && !is_deleted
}

/// Whether the last of these DELs succeeded, after the last of these ADDs.
fn has_succeeded(dels: &Runs, adds: &Runs) -> bool {
    dels.outcome == Some(Outcome::Succeeded) && dels.last_at >= adds.last_at
}

/// Asks about an address, if that is due: first a minute after the end of its sandbox, then from time to
/// time, and as soon as the plugin should have freed it by itself. If a DEL has most likely freed it, it is
/// in doubt until that time, and is asked about only then: after a reboot there are many of these.
fn ask_about(world: &mut World, now: Timestamp, path: &str, kind: StoreKind, it: Suspect) {
    let Suspect { key, address, ended, is_known, is_deleted } = it;
    let Some(row) = world.attachments.rows.get_mut_unmarked(&key) else { return };
    let Some(network) = row.network.clone() else { return };
    let Some(lease) = row.leases.iter_mut().find(|lease| lease.address == address) else { return };
    let clean = ended + kind.own_cleanup();
    let is_free = is_deleted && kind.is_freed_by_id();
    let due = match lease.asked.as_ref().map(|it| it.at) {
        None => ended + FIRST,
        Some(at) if at < clean && is_free => clean,
        Some(at) if at < clean => clean.min(at + AGAIN),
        Some(at) => at + AGAIN,
    };
    if now < due {
        return;
    }
    lease.ask(path, now);
    if !is_known {
        // Its verdict waits for the answer from now on.
        world.attachments.rows.get_mut(&key);
    }
    if is_free && now < clean {
        return;
    }
    let holder = Holder { container: key.0, ifname: key.1 };
    world.ask(Question::Held { path: path.to_owned(), network, holder, address });
}
