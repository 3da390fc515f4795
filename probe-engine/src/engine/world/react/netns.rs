//! Network namespaces are made, found, dropped and freed.

use std::{mem, time::Duration};

use super::{claim, lease, pod, sandbox, watch};
use crate::{
    engine::{
        queued_change::{Subject, Wait},
        world::{
            EventContext, World, lookup,
            netns_path::is_same,
            process_of,
            table::{
                self,
                netns::{Address, Netns, State, Step, rows::same},
            },
        },
    },
    model::{
        change::{ChangeKind, Process},
        fact::{Origin, Task},
        id::NetnsKey,
        time::Timestamp,
    },
};

/// Adds a namespace that was made.
pub(crate) fn created(world: &mut World, ctx: EventContext, key: NetnsKey, by: Task, end_unseen: bool) {
    let mut known = None;
    for row in world.netns.lives(key.inode).filter(|row| same(row.key, key)) {
        if row.created_at.is_some_and(|created| created >= ctx.at || row.key == key && key.cookie != 0) {
            return;
        }
        // A listing can come before the record, and a late record can come after the end.
        if row.created_at.is_none() && row.last_at() >= Some(ctx.at) {
            known = known.or(Some(row.life));
        }
    }
    let life = known.unwrap_or_else(|| {
        // The inode number is in use again, so the namespace that had it before has ended, whether or not
        // that was seen.
        for life in world.netns.lives(key.inode).map(|row| row.life).collect::<Vec<_>>() {
            infer_end(world, ctx, life);
        }
        world.netns.begin(Netns { key, ..Netns::default() })
    });
    if let Some(row) = world.netns.rows.get_mut(&life) {
        row.created_at = Some(ctx.at);
        row.creator = by.clone();
        row.end_unseen = end_unseen;
    }
    claim::sandbox_netns_created(world, life);
    let subject = Subject { netns: Some(life), ..world.cgroups.subject_of(&by) };
    let of_pod = table::process::makes_pods(&by.comm)
        || subject.container.is_some()
        || world.processes.get(by.parent).is_some_and(|parent| table::process::makes_pods(&parent.comm));
    let wait = if of_pod { Wait::Name } else { Wait::Nothing };
    world.report(ctx, subject, wait, ChangeKind::NetnsCreated { by: process_of(&by) });
    watch::soon(world, ctx.at, life);
}

/// Drops a namespace whose last reference is gone, by a hook or as netlink reports it.
pub(crate) fn dropped(world: &mut World, ctx: EventContext, key: NetnsKey, by: &Task) {
    let found = world.netns.live_at(key, ctx.at);
    if ctx.origin == Origin::Netlink {
        return unnamed(world, ctx, found);
    }
    let by = (by.key.pid != 0).then(|| process_of(by));
    if let Some(life) = found {
        drop_life(world, ctx, life, by);
    } else if world.netns.of(key).is_none() {
        // The namespace existed before the agent started, and no listing showed it.
        let life = world.netns.begin(Netns { key, ..Netns::default() });
        drop_life(world, ctx, life, by);
    }
}

/// Ends a namespace as netlink reports it, perhaps long after a hook's record of the end. Netlink reports
/// only namespaces that it was asked to watch. If the world no longer knows the namespace, it ended before,
/// and its number may be in use again.
fn unnamed(world: &mut World, ctx: EventContext, found: Option<u64>) {
    let Some(life) = found else {
        world.counts.stale = world.counts.stale.saturating_add(1);
        return;
    };
    let end_unseen = world.netns.get(life).is_some_and(|row| row.end_unseen);
    if !world.netns.get(life).is_some_and(|row| lookup::netns::sees_end(world, row)) {
        drop_life(world, ctx, life, None);
    }
    if end_unseen {
        // No hook will report the end of the teardown.
        free_life(world, ctx, life);
    }
}

/// Changes everything that a dropped namespace changes, in order: its row, its leases, the event, the events
/// of its addresses, and its sandbox.
pub(crate) fn drop_life(world: &mut World, ctx: EventContext, life: u64, by: Option<Process>) {
    // A namespace loses its id in the agent's own namespace before its addresses are removed.
    let by_netlink = world.coverage.hears_addresses();
    let Some(row) = world.netns.rows.get_mut(&life) else { return };
    let Some(dropped) = row.state.step(Step::Drop, ctx.at) else { return };
    row.state = dropped;
    row.dropped_at = Some(ctx.at);
    row.end_inferred = ctx.origin != Origin::Kernel;
    let sandbox = row.sandbox.clone();
    // If no hook reports the removal of the addresses, the end of the namespace counts as their removal.
    let heard = ctx.origin == Origin::Kernel && !by_netlink;
    let unheard = if heard { Vec::new() } else { mem::take(&mut row.addresses) };
    let subject = lookup::netns::subject(world, life);
    let wait = lookup::context::wait_of(world, &subject);
    world.schedule_reap(ctx.at);
    lease::dropped(world, life);
    world.report(ctx, subject.clone(), wait, ChangeKind::NetnsDestroyed { by: by.clone() });
    addresses_gone(world, ctx, &subject, unheard);
    watch::ended(world, ctx, life);
    if let Some(sandbox) = sandbox {
        sandbox::lost_netns(world, ctx, &sandbox, by);
    }
}

/// Ends a namespace whose end nobody saw.
fn infer_end(world: &mut World, ctx: EventContext, life: u64) {
    drop_life(world, ctx, life, None);
    if free_life(world, ctx, life).is_some() {
        world.netns.infer_end(life);
    }
}

/// Frees a namespace, since its object was freed. Only that of a known network namespace counts.
pub(crate) fn freed(world: &mut World, ctx: EventContext, key: NetnsKey) {
    let mut freed = None;
    for row in world.netns.lives(key.inode).filter(|row| same(row.key, key)) {
        if matches!(row.state, State::Dropped { at } if at <= ctx.at) {
            freed = Some(row);
            break;
        }
        if row.is_live() && row.created_at.is_none_or(|created| created < ctx.at) {
            freed = freed.or(Some(row));
        }
    }
    let Some(row) = freed else { return };
    let life = row.life;
    let teardown = match row.state {
        State::Dropped { at } => Some(ctx.at.since(at)),
        State::Live | State::Freed { .. } => None,
    };
    // Two CPUs that drop the last two references at once may both fail to see that theirs was the last.
    drop_life(world, ctx, life, None);
    if let Some(subject) = free_life(world, ctx, life) {
        let wait = lookup::context::wait_of(world, &subject);
        world.report(ctx, subject, wait, ChangeKind::NetnsFreed { teardown });
    }
}

/// Ends the teardown: the inode number is free, and the namespace has no addresses.
fn free_life(world: &mut World, ctx: EventContext, life: u64) -> Option<Subject> {
    let row = world.netns.rows.get_mut(&life)?;
    row.state = row.state.step(Step::Free, ctx.at)?;
    let left = mem::take(&mut row.addresses);
    let subject = lookup::netns::subject(world, life);
    world.schedule_reap(ctx.at);
    addresses_gone(world, ctx, &subject, left);
    Some(subject)
}

/// Takes in a namespace that a listing found, and the files to which it is bound.
pub(crate) fn found(world: &mut World, ctx: EventContext, key: NetnsKey, mounts: Vec<String>, vacant: bool) {
    // Records were lost, and the number is that of a namespace at other files: the one that had it has ended.
    let other = world
        .netns
        .of(key)
        .filter(|row| {
            let is_moved = !mounts.is_empty()
                && !row.mounts.is_empty()
                && !row.mounts.iter().any(|mount| mounts.iter().any(|found| is_same(found, mount)));
            row.is_live() && row.gapped && is_moved
        })
        .map(|row| row.life);
    let life = match other {
        Some(ended) => {
            infer_end(world, ctx, ended);
            Some(world.netns.begin(Netns { key, ..Netns::default() }))
        }
        None => seen(world, ctx, key),
    };
    let Some(life) = life else { return };
    let Some(row) = world.netns.rows.get_mut(&life) else { return };
    row.found_at = Some(ctx.at);
    row.unlisted_since = None;
    row.vacant_since = vacant.then(|| row.vacant_since.unwrap_or(ctx.at));
    row.mounts = mounts;
    watch::soon(world, ctx.at, life);
    claim::by_mounts(world, ctx, life);
}

/// Returns the living namespace that a listing or an address shows. A new life begins if none was known.
/// None: the namespace is known to be over.
pub(crate) fn seen(world: &mut World, ctx: EventContext, key: NetnsKey) -> Option<u64> {
    let live = world.netns.lives(key.inode).rev().find(|row| same(row.key, key) && row.is_live());
    if let Some(life) = live.map(|row| row.life) {
        if let Some(row) = world.netns.rows.get_mut(&life).filter(|row| row.key.cookie == 0) {
            row.key = key;
        }
        return Some(life);
    }
    let over = world.netns.lives(key.inode).any(|row| match row.state {
        State::Live => false,
        // The number is not free until the teardown has ended.
        State::Dropped { .. } => same(row.key, key),
        State::Freed { at } => same(row.key, key) && (key.cookie != 0 || ctx.at <= at),
    });
    if over {
        return None;
    }
    let life = world.netns.begin(Netns { key, found_at: Some(ctx.at), ..Netns::default() });
    watch::soon(world, ctx.at, life);
    Some(life)
}

/// How long a runtime may take to let go of the namespace of a sandbox that ended. A listing may then find
/// neither a file nor a process of a namespace that is about to end.
const LETS_GO: Duration = Duration::from_secs(2);

/// Notes the namespaces of sandboxes that are over which a complete listing, begun at `begun`, does not
/// have, and whose end a hook would have reported: something else keeps them. No sandbox and no pod lives by
/// that.
pub(crate) fn outlive(world: &mut World, ctx: EventContext, begun: Timestamp) {
    let lets_go = begun.saturating_sub(LETS_GO);
    let all: Vec<u64> = world
        .netns
        .values()
        .filter(|row| {
            row.may_be_used()
                && row.key.inode != world.node.host_netns
                && row.seen_at() < Some(begun)
                && row.sandbox.as_ref().is_some_and(|id| match world.sandboxes.recall(id) {
                    Some(sandbox) => sandbox.over_at().is_some_and(|at| at <= lets_go),
                    None => true,
                })
                && !row.gapped
                && lookup::netns::sees_end(world, row)
        })
        .map(|row| row.life)
        .collect();
    for life in all {
        let Some(row) = world.netns.rows.get_mut(&life) else { continue };
        row.unlisted_since = Some(ctx.at);
        let pod = row.sandbox.as_ref().and_then(|id| world.sandboxes.get(id)?.pod);
        world.schedule_reap(ctx.at);
        if let Some(pod) = pod {
            pod::may_be_gone(world, ctx, pod);
        }
    }
}

/// Marks the namespaces that containers made: records of the bulk ring were lost, and their ends may be
/// among them.
pub(crate) fn inner_gapped(world: &mut World) {
    let cgroups = &world.cgroups;
    world.netns.rows.update(|_, row| {
        cgroups.get(&row.creator.cgroup).is_some_and(|cgroup| cgroup.container.is_some())
            && !mem::replace(&mut row.gapped, true)
    });
}

/// Reports that these addresses ended with their namespace.
fn addresses_gone(world: &mut World, ctx: EventContext, subject: &Subject, gone: Vec<Address>) {
    for Address { address, ifname, .. } in gone {
        let wait = lookup::context::wait_of(world, subject);
        world.report(ctx, subject.clone(), wait, ChangeKind::AddressRemoved { address, ifname });
    }
}
