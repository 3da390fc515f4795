//! Ends of listings: a row that a complete listing does not have is gone.
//!
//! **Invariant:** a row counts as gone only if a complete listing that began after the gap does not have it,
//! and only if such a listing would have it while it exists.

use probe_common::event::class;

use super::{cached, cgroup, exit, gap, netns, pod, records, sandbox, watch};
use crate::{
    engine::world::{
        EventContext, World, lookup,
        table::{
            self,
            list::{Doubt, QUIET},
            sandbox::Sandbox,
        },
    },
    model::{
        fact::{List, Origin},
        time::Timestamp,
    },
};

/// Ends a listing.
pub(crate) fn ended(world: &mut World, ctx: EventContext, list: List, complete: bool) {
    let Some(begun) = world.lists.begun.remove(&list) else { return };
    if list == List::Runtimes {
        world.attachments.forget_unnamed();
    }
    if !complete {
        // Nothing else asks for these again.
        if world.lists.is_gap_over(Doubt::Marked, list, begun)
            && matches!(list, List::Processes | List::Netns)
        {
            gap::check(world, ctx.at);
        }
        world.lists.partial.entry(list).or_insert(ctx.at);
        return;
    }
    world.lists.partial.remove(&list);
    let all = [Doubt::Lost, Doubt::Excess, Doubt::Unheard, Doubt::Marked];
    let over = all.map(|doubt| (doubt, world.lists.is_gap_over(doubt, list, begun)));
    // Changes of records only show when the records are read again.
    match list {
        List::CniCache => {
            cached::not_listed(world, begun, world.lists.is_cache_unchanged);
            sandbox::found_ready(world, ctx);
        }
        List::Ipam => records::stores_not_listed(world, ctx, begun),
        List::Runtimes => records::runtimes_not_listed(world, ctx, begun),
        List::Processes | List::Netns | List::Addresses | List::Cgroups | List::Containers | List::Pods => {}
    }
    for (doubt, _) in over.iter().filter(|(_, is_over)| *is_over) {
        world.lists.gaps.remove(&(*doubt, list));
    }
    if over.iter().any(|(doubt, is_over)| *is_over && *doubt != Doubt::Marked) {
        not_listed(world, ctx, list, begun);
    }
    if list == List::Netns {
        netns::outlive(world, ctx, begun);
        watch::rest(world, ctx.at);
    }
    if over.contains(&(Doubt::Marked, true)) {
        heal(world, ctx, list);
    }
}

/// Removes the rows that a complete listing does not name. The listing began at `begun`, after a gap.
fn not_listed(world: &mut World, ctx: EventContext, list: List, begun: Timestamp) {
    let ctx = EventContext { origin: Origin::Listed, ..ctx };
    match list {
        List::Processes => processes_not_listed(world, ctx, begun),
        List::Netns => netns_not_listed(world, ctx, begun),
        List::Cgroups => cgroups_not_listed(world, ctx, begun),
        // Absence from these lists proves nothing.
        List::Addresses | List::Containers | List::Pods | List::CniCache | List::Ipam | List::Runtimes => {}
    }
}

fn processes_not_listed(world: &mut World, ctx: EventContext, begun: Timestamp) {
    let gone: Vec<_> = world
        .processes
        .values()
        .filter(|row| {
            row.state == table::process::State::Running
                && row.executed_at.max(row.found_at).is_none_or(|seen| seen < begun)
                && is_listable(world, row)
        })
        .map(|row| row.key)
        .collect();
    for key in gone {
        exit::vanished(world, ctx, key);
    }
}

/// Whether a listing has a process as long as the process runs. No listing has processes that run in a
/// container, or that are known only because the hooks report every exec.
fn is_listable(world: &World, row: &table::process::Process) -> bool {
    row.found_at > row.executed_at
        || row.program.class & class::CONTAINER_TOP != 0
        || row.program.class & (class::CALLER | class::RUNTIME | class::PAUSE) != 0
        || world.calls.get(&row.key).is_some_and(|call| !call.call.delegated)
}

/// Drops the namespaces that a listing does not have. An end that a hook reports is left to it, unless the
/// record may be lost.
fn netns_not_listed(world: &mut World, ctx: EventContext, begun: Timestamp) {
    let gone: Vec<_> = world
        .netns
        .values()
        .filter(|row| {
            row.is_live()
                && row.key.inode != world.node.host_netns
                && row.seen_at() < Some(begun)
                && row.is_listable()
                && (row.gapped || !lookup::netns::sees_end(world, row))
        })
        .map(|row| row.life)
        .collect();
    for life in gone {
        netns::drop_life(world, ctx, life, None);
    }
}

fn cgroups_not_listed(world: &mut World, ctx: EventContext, begun: Timestamp) {
    let gone = world.cgroups.not_listed(ctx.at, begun);
    world.schedule_reap(ctx.at);
    for key in gone {
        cgroup::gone(world, ctx, key);
    }
    // The listing names every cgroup that exists. A pod's cgroup that was known only by the cgroups in it
    // would have its key now.
    for pod in world.pods.lost_unseen_cgroups() {
        pod::may_be_gone(world, ctx, pod);
    }
}

/// Removes the marks of rows that a listing after a quiet time shows unchanged: no lost record was about
/// them. Rows that are over stay marked.
fn heal(world: &mut World, ctx: EventContext, list: List) {
    let since = world.coverage.losses.as_ref().map_or(Timestamp::ZERO, |losses| losses.last_at + QUIET);
    if list == List::Netns {
        world.netns.heal(since);
        world.netns.forget_unseen();
    }
    if world.lists.is_marked() {
        return;
    }
    let there: Vec<_> =
        world.sandboxes.values().filter(|row| is_seen(world, row, since)).map(|row| row.id.clone()).collect();
    for id in there {
        world.attachments.heal(&id, since, world.records.cache_read_at);
        world.sandboxes.heal(&id);
    }
    world.changed_at.get_or_insert(ctx.at);
}

/// Whether a listing since that time showed the process that holds a sandbox, and no CNI plugin works on it.
///
/// CRI-O makes sandboxes without a process: there the network namespace is enough. Elsewhere it is not,
/// because the namespace outlives the process, and the records of the process and of its end may both be
/// lost.
fn is_seen(world: &World, row: &Sandbox, since: Timestamp) -> bool {
    let process = world.containers.get(&row.id).and_then(|row| row.process());
    let is_held = match process.and_then(|key| world.processes.get(key)) {
        Some(row) => row.state == table::process::State::Running && row.found_at >= Some(since),
        None => {
            let netns = row.network.netns.and_then(|life| world.netns.get(life));
            lookup::daemons::has_crio(world)
                && netns.is_some_and(|row| row.is_live() && row.found_at >= Some(since))
        }
    };
    !row.is_stopped() && is_held && world.calls.values().all(|call| call.container.as_ref() != Some(&row.id))
}
