//! Finds the sandbox of a network namespace. `CNI_NETNS` is a path, and the engine cannot look up the file
//! behind it. Four things show the namespace: the mount table, the namespaces that the caller made just
//! before, an answer about the file, which is asked for where those are several, and the plugin's own work in
//! a namespace.

use std::time::Duration;

use super::watch;
use crate::{
    engine::world::{
        EventContext, World, lookup,
        netns_path::{is_same, plain, process_of},
        table::{self, netns::Group, presence::Voucher},
    },
    model::{
        change::Question,
        id::{ContainerId, TaskKey},
        time::Timestamp,
    },
};

/// A runtime makes a sandbox's namespace right before it calls the first plugin.
const JUST_MADE: Duration = Duration::from_secs(10);

/// Claims the namespace at the path that a CNI call named for a sandbox. `caller`: the process that called
/// the plugin.
pub(crate) fn at_call(
    world: &mut World,
    ctx: EventContext,
    sandbox: &ContainerId,
    path: &str,
    caller: TaskKey,
) {
    if by_path(world, ctx, sandbox, path)
        || world.sandboxes.get(sandbox).is_none_or(|row| row.network.netns.is_some())
    {
        return;
    }
    let mut lately = world.netns.group(Group::Unclaimed).filter(|row| {
        (row.creator.key == caller || row.creator.parent == caller)
            && row.created_at.is_some_and(|created| created <= ctx.at && ctx.at.since(created) <= JUST_MADE)
    });
    let found = (lately.next().map(|row| row.life), lately.next().is_some());
    drop(lately);
    match found {
        (Some(life), false) => claim(world, ctx, life, sandbox, false),
        // If the caller made several, as where many pods start at once, it can be any. The file shows which,
        // and later the plugin's work.
        (Some(_), true) if process_of(path).is_none() && !path.is_empty() => {
            world.ask(Question::Netns { path: path.to_owned() });
        }
        (Some(_), true) | (None, _) => {}
    }
}

/// Claims the namespace at this path for the sandbox. Returns whether there is one.
pub(crate) fn by_path(world: &mut World, ctx: EventContext, sandbox: &ContainerId, path: &str) -> bool {
    if path.is_empty() {
        return false;
    }
    if !world.sandboxes.netns_named(sandbox, path) {
        return false;
    }
    let Some(life) = lookup::netns::at_path(world, path) else { return false };
    claim(world, ctx, life, sandbox, true);
    true
}

/// Claims a namespace with these mounts for the sandbox that waits at one of these paths, if there is one.
pub(crate) fn by_mounts(world: &mut World, ctx: EventContext, life: u64) {
    let Some(row) = world.netns.get(life) else { return };
    let paths = row.mounts.iter().map(|mount| table::sandbox::Group::NetnsPath(plain(mount).into_owned()));
    let waiting = paths.filter_map(|path| {
        let first = world.sandboxes.group(path).find(|sandbox| !sandbox.is_stopped());
        first.map(|sandbox| sandbox.id.clone())
    });
    let sandbox = waiting.min();
    if let Some(sandbox) = sandbox {
        claim(world, ctx, life, &sandbox, true);
        world.sandboxes.vouch(&sandbox, Voucher::Mount, ctx.at);
    }
}

/// Joins a namespace and a sandbox. A proven claim stays; a guess is replaced.
pub(crate) fn claim(world: &mut World, ctx: EventContext, life: u64, sandbox: &ContainerId, proven: bool) {
    let Some(row) = world.sandboxes.get(sandbox) else { return };
    let before = row.network.netns;
    let path = row.network.netns_path.clone();
    let Some(netns) = world.netns.get(life) else { return };
    let taken = netns.sandbox.as_ref().is_some_and(|other| other != sandbox);
    if taken && (netns.proven || !proven) {
        return;
    }
    if let Some(before) = before.filter(|before| *before != life)
        && let Some(old) = world.netns.rows.get_mut(&before)
    {
        if old.proven && old.is_live() {
            return;
        }
        if old.is_live() {
            old.sandbox = None;
        }
    }
    let Some(netns) = world.netns.get(life) else { return };
    let is_known = netns.sandbox.as_ref() == Some(sandbox)
        && (netns.proven || !proven)
        && path.as_ref().is_none_or(|path| {
            !proven || process_of(path).is_some() || netns.mounts.iter().any(|mount| is_same(mount, path))
        });
    if is_known {
        sandbox_netns_created(world, life);
        sandbox_has_netns(world, ctx.at, sandbox, life);
        watch::claimed(world, ctx.at, life);
        return;
    }
    let Some(netns) = world.netns.rows.get_mut(&life) else { return };
    let previous_owner = netns.sandbox.replace(sandbox.clone());
    netns.proven |= proven;
    if let Some(path) = path
        && proven
        && process_of(&path).is_none()
        && !netns.mounts.iter().any(|mount| is_same(mount, &path))
    {
        netns.mounts.push(path);
    }
    if taken && let Some(previous_owner) = previous_owner {
        world.sandboxes.had_no_netns(&previous_owner);
    }
    sandbox_netns_created(world, life);
    sandbox_has_netns(world, ctx.at, sandbox, life);
    watch::claimed(world, ctx.at, life);
}

/// Notes which namespace turned out to be a sandbox's.
fn sandbox_has_netns(world: &mut World, at: Timestamp, id: &ContainerId, life: u64) {
    let is_live = world.netns.get(life).is_some_and(|row| row.is_live());
    if !world.sandboxes.get(id).is_some_and(|row| {
        row.network.netns == Some(life) && (!is_live || row.presence.is_vouched(Voucher::Kernel, at))
    }) && let Some(row) = world.sandboxes.get_mut(id)
    {
        row.network.netns = Some(life);
        if is_live {
            row.presence.vouch(Voucher::Kernel, at);
        }
    }
}

/// Notes when a sandbox's namespace was made.
pub(crate) fn sandbox_netns_created(world: &mut World, life: u64) {
    let Some(netns) = world.netns.get(life) else { return };
    let Some(id) = &netns.sandbox else { return };
    if world.sandboxes.recall(id).is_some_and(|row| row.network.netns_created_at != netns.created_at)
        && let Some(row) = world.sandboxes.recall_mut(id)
    {
        row.network.netns_created_at = netns.created_at;
    }
}
