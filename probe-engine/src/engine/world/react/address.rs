//! Addresses of network namespaces. The kernel reports an address more than once (IPv6: tentative, then
//! settled). The engine reports it once.

use std::net::IpAddr;

use super::{claim, lease, netns};
use crate::{
    engine::world::{
        EventContext, World, lookup, process_of,
        table::{
            attachment::lease::Removed,
            netns::{Address, address::Kept},
        },
    },
    model::{
        change::ChangeKind,
        fact::{self, List},
        id::NetnsKey,
    },
};

/// Adds an address that a hook or netlink reports.
pub(crate) fn added(world: &mut World, ctx: EventContext, it: fact::Address) {
    prove_by_plugin(world, ctx, &it);
    let Some(life) = netns::seen(world, ctx, it.netns) else { return };
    lease::back(world, ctx, life, it.address.address);
    lease::by_kernel(world, ctx, life, &it);
    if world.netns.keep_address(life, &it) != Kept::Before {
        tell_added(world, ctx, life, &it);
    }
}

fn tell_added(world: &mut World, ctx: EventContext, life: u64, it: &fact::Address) {
    let mut subject = lookup::netns::subject(world, life);
    if subject.sandbox.is_none() {
        subject.container = subject.container.or_else(|| world.cgroups.subject_of(&it.by).container);
    }
    let wait = lookup::context::wait_of(world, &subject);
    let what = ChangeKind::AddressAdded { address: it.address, ifname: it.ifname.clone() };
    world.report(ctx, subject, wait, what);
}

/// Adds an address that a listing found. If hooks saw the making of the namespace, it was added since then.
/// If they saw an ADD in it begin or end, that ADD most likely added it.
///
/// A listing of files guesses the interface and the prefix, so it says nothing new about an address that is
/// known. An address that was removed after the listing read it is not there any more.
pub(crate) fn found(world: &mut World, ctx: EventContext, it: fact::Address) {
    let Some(life) = netns::seen(world, ctx, it.netns) else { return };
    relisted(world, ctx, life);
    if lease::was_removed_since(world, ctx.at, life, it.address.address) {
        return;
    }
    lease::back(world, ctx, life, it.address.address);
    lease::by_kernel(world, ctx, life, &it);
    if world.netns.correct_known(life, &it) {
        return;
    }
    // The next listing finds again what found no room.
    let is_new = world.netns.keep_address(life, &it) == Kept::Now;
    if is_new
        && world.netns.get(life).is_some_and(|row| {
            row.created_at.is_some() || lookup::sandbox::was_added(world, row.sandbox.as_ref())
        })
    {
        tell_added(world, ctx, life, &it);
    }
}

/// Removes the addresses that are no longer in a namespace: nobody heard when they went.
pub(crate) fn listed(world: &mut World, ctx: EventContext, netns: NetnsKey, present: &[IpAddr]) {
    let Some(row) = world.netns.of(netns).filter(|row| row.is_live()) else { return };
    let gone = row.addresses.iter().filter(|kept| !present.contains(&kept.address.address));
    let gone: Vec<_> = gone.map(|kept| kept.unheard(netns)).collect();
    let life = row.life;
    for it in gone {
        removed(world, ctx, &it);
    }
    relisted(world, ctx, life);
}

/// Notes that the addresses of a namespace were listed. A listing of the whole node may never be complete.
fn relisted(world: &mut World, ctx: EventContext, life: u64) {
    if world.lists.in_doubt_until(List::Addresses).is_some_and(|gap| gap <= ctx.at)
        && let Some(row) = world.netns.rows.get_mut(&life)
    {
        row.relisted_at = Some(ctx.at);
    }
}

/// Removes an address, perhaps while the namespace is being torn down.
pub(crate) fn removed(world: &mut World, ctx: EventContext, it: &fact::Address) {
    let exact = holder(world, it, is_same);
    let guessed = exact.or_else(|| holder(world, it, is_same_guess));
    let Some(life) = guessed.or_else(|| holder_from_before(world, ctx, it)) else { return };
    if let Some(row) = world.netns.rows.get_mut(&life) {
        let is_copy = if exact.is_some() { is_same } else { is_same_guess };
        row.addresses.retain(|kept| !is_copy(kept, it));
    }
    // The pod keeps the address if another interface has it, or it has another prefix.
    let kept = world.netns.get(life).is_some_and(|row| row.has(it.address.address));
    if !kept {
        let removed = lost_by_pod(world, ctx, life, it);
        lease::removed(world, life, it.address.address, removed.as_ref());
    }
    let subject = lookup::netns::subject(world, life);
    let wait = lookup::context::wait_of(world, &subject);
    let what = ChangeKind::AddressRemoved { address: it.address, ifname: it.ifname.clone() };
    world.report(ctx, subject, wait, what);
}

/// Returns who removed an address from a pod that is not being stopped. An address of IPv6 may run out by
/// itself. A runtime such as gVisor takes the addresses over before the first container runs.
fn lost_by_pod(world: &World, ctx: EventContext, life: u64, it: &fact::Address) -> Option<Removed> {
    if it.address.address.is_ipv6() && it.flags & lease::PERMANENT == 0 {
        return None;
    }
    let sandbox = world.sandboxes.get(world.netns.get(life)?.sandbox.as_ref()?)?;
    if sandbox.is_stopped() || sandbox.ending.stop_at.is_some() {
        return None;
    }
    let by = (it.by.key.pid != 0).then(|| process_of(&it.by));
    let has_run = sandbox.containers().iter().any(|run| run.started_at <= ctx.at);
    if !has_run && by.as_ref().is_none_or(|by| lookup::process::is_of_runtime(world, by)) {
        return None;
    }
    let container = world.cgroups.container_of(it.by.cgroup);
    let by_pod = sandbox.containers().iter().any(|run| Some(&run.id) == container);
    Some(Removed { at: ctx.at, by, by_pod })
}

/// Returns the latest life of the namespace that has this address.
fn holder(world: &World, it: &fact::Address, is_copy: fn(&Address, &fact::Address) -> bool) -> Option<u64> {
    let mut lives = world.netns.lives(it.netns.inode).rev();
    lives.find(|row| row.addresses.iter().any(|kept| is_copy(kept, it))).map(|row| row.life)
}

fn is_same(kept: &Address, it: &fact::Address) -> bool {
    kept.address == it.address && kept.is_on(it)
}

/// Whether it is the same address, to which a listing of files may have given another prefix or interface.
fn is_same_guess(kept: &Address, it: &fact::Address) -> bool {
    kept.address.address == it.address.address && kept.ifindex == 0
}

/// Returns the namespace of an address that was never reported. Only a namespace that existed before the
/// agent can have one.
fn holder_from_before(world: &mut World, ctx: EventContext, it: &fact::Address) -> Option<u64> {
    let last = world.netns.lives(it.netns.inode).next_back().map(|row| row.life);
    let life = last.or_else(|| netns::seen(world, ctx, it.netns))?;
    world.netns.get(life).filter(|row| row.created_at.is_none() && row.is_live()).map(|row| row.life)
}

/// Gives a namespace to the sandbox for which a plugin adds an address in it, unless it is the node's own.
///
/// A call from inside a container proves nothing. It gives a guess if the runtime itself has a call open for
/// the same sandbox and the same namespace, and if no container made the namespace.
fn prove_by_plugin(world: &mut World, ctx: EventContext, it: &fact::Address) {
    if it.netns.inode == world.node.host_netns {
        return;
    }
    let Some(call) =
        lookup::call::around(world, it.by.key).or_else(|| lookup::call::around(world, it.by.parent))
    else {
        return;
    };
    let delegated = call.call.delegated;
    let believed = !delegated || lookup::call::is_backed(world, call);
    let Some(sandbox) = call.container.clone() else { return };
    if !believed {
        return;
    }
    let Some(life) = netns::seen(world, ctx, it.netns) else { return };
    let creator = world.netns.get(life).map(|row| row.creator.cgroup);
    if delegated && creator.is_some_and(|cgroup| world.cgroups.is_in_container(cgroup)) {
        return;
    }
    claim::claim(world, ctx, life, &sandbox, !delegated);
}
