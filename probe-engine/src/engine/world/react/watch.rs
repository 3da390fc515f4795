//! Chooses the network namespaces that netlink is asked to watch. Netlink is needed where no hook reports
//! their end or their addresses.
//!
//! To watch a namespace, the agent must find a process that holds it and send a few requests to the kernel.
//! Any container can make thousands of namespaces a second. So a namespace that a container made is watched
//! only after it has lived for a moment, or once a sandbox has it. The number of watches in a second is
//! limited to what a node's pods need.
//!
//! **Invariant:** a namespace that waits for its watch is known, and the watch is asked for as soon as there
//! is room. One that netlink could not watch is asked for again, each time later, and not for ever. Only a
//! loss that can hide that another namespace has its inode makes it wait for a listing.

use std::mem;

use super::gap;
use crate::{
    engine::{
        timer,
        world::{
            EventContext, World, lookup,
            table::netns::{
                Netns,
                rows::same,
                watch::{Failed, LATE, SETTLED},
            },
        },
    },
    model::{
        change::Question,
        fact::{Attached, Signal},
        id::NetnsKey,
        time::Timestamp,
    },
};

/// At most this many waiting namespaces are watched in a second.
const WAITING: usize = 32;

/// Notes how a source sees a signal.
pub(crate) fn attached(world: &mut World, it: Attached) {
    let before = world.coverage.needs_netlink();
    if it.signal == Signal::Listening {
        world.boot.listening_seen(it.mechanism.is_some());
    }
    world.coverage.attached.insert(it.signal, it);
    if !before && world.coverage.needs_netlink() {
        all(world);
    }
}

/// Asks for the watch of a namespace that became known, now or later.
pub(crate) fn soon(world: &mut World, at: Timestamp, life: u64) {
    let Some(row) = world.netns.get(life).filter(|row| lookup::netns::is_wanted(world)(row)) else { return };
    let is_known = row.found_at.is_some() || !world.cgroups.is_in_container(row.creator.cgroup);
    let is_promptly = row.watch_failed.map_or(is_known, |failed| failed.is_due(at));
    let unheard_since = row.unheard_since();
    if is_promptly && world.netns.watches.take(at) {
        watch(world, life, unheard_since);
    } else {
        world.timers.arm_earlier(timer::Name::Watch, at + SETTLED);
    }
}

/// Asks for the watch of a namespace that turned out to belong to a sandbox, so it need not wait.
pub(crate) fn claimed(world: &mut World, at: Timestamp, life: u64) {
    let Some(row) = world.netns.get(life).filter(|row| lookup::netns::is_wanted(world)(row)) else { return };
    let unheard_since = row.unheard_since();
    if row.watch_failed.is_none_or(|failed| failed.is_due(at)) {
        watch(world, life, unheard_since);
    }
}

/// Watches all known namespaces: the hooks are attached after the first ones may have become known.
fn all(world: &mut World) {
    for life in lookup::netns::unwatched(world).collect::<Vec<_>>() {
        watch(world, life, None);
    }
}

/// Asks for all watches again: a new agent's netlink socket watches nothing yet.
pub(crate) fn again(world: &mut World, at: Timestamp) {
    // The time before is reported as one in which no agent ran, or none heard netlink.
    world.netns.unheard_until = at;
    world.netns.rows.update(|_, row| {
        let was_watched = mem::take(&mut row.watched);
        let failed = row.watch_failed.take();
        was_watched || failed.is_some()
    });
    rest(world, at);
}

/// Arms the timer for the namespaces that are not watched yet.
pub(crate) fn rest(world: &mut World, at: Timestamp) {
    if lookup::netns::unwatched(world).next().is_some() {
        world.timers.arm_earlier(timer::Name::Watch, at + SETTLED);
    }
}

/// Notes that netlink does not watch a namespace that it was asked to watch.
pub(crate) fn unwatched(
    world: &mut World,
    ctx: EventContext,
    key: NetnsKey,
    unheard_since: Option<Timestamp>,
) {
    if let Some(since) = unheard_since
        && world.coverage.hears_addresses()
    {
        unheard(world, ctx, key, since);
    }
    let at = ctx.at;
    let Some(life) = world.netns.live_at(key, at) else { return };
    let Some(row) = world.netns.rows.get_mut(&life) else { return };
    if !mem::take(&mut row.watched) {
        return;
    }
    let before = row.watch_failed.map_or(0, |failed| failed.times);
    let failed = Failed { times: before.saturating_add(1), at, unheard_since };
    row.watch_failed = Some(failed);
    let is_listed = row.is_live() && row.is_listable();
    if let Some(again) = failed.again_at() {
        world.timers.arm_earlier(timer::Name::Watch, again);
    } else if is_listed && !world.netns.get(life).is_some_and(|row| lookup::netns::sees_end(world, row)) {
        // It may have ended before its watch began.
        gap::netlink_missed(world, at);
    }
}

/// Notes the end of a namespace for which netlink looked in vain. The answer can come before the record of
/// the end.
pub(crate) fn ended(world: &mut World, ctx: EventContext, life: u64) {
    let Some(row) = world.netns.get(life) else { return };
    if let Some(failed) = row.watch_failed
        && let Some(since) = failed.unheard_since
        && ctx.at <= failed.at
        && world.coverage.hears_addresses()
    {
        unheard(world, EventContext { at: failed.at, ..ctx }, row.key, since);
    }
}

/// Reports that nobody heard netlink, if a namespace that was made at `since` came and went before the agent
/// looked for it: the process was stopped, had no CPU, waited for the kernel, or had too many others to look
/// for. Each time is reported once.
fn unheard(world: &mut World, ctx: EventContext, key: NetnsKey, since: Timestamp) {
    let row = world.netns.lives(key.inode).find(|row| same(row.key, key) && row.created_at == Some(since));
    if row.is_some_and(Netns::is_live) {
        // Netlink is asked again, and finds what addresses it has.
        return;
    }
    // After a long pause the row is already forgotten.
    let ended_at = row.and_then(|row| row.dropped_at).unwrap_or(since);
    let reported_until = world.netns.unheard_until;
    let since = since.max(reported_until).max(world.node.woke_at);
    if ended_at > reported_until && ctx.at.since(since) > LATE {
        gap::unheard(world, ctx, since);
    }
}

/// Watches the namespaces that had to wait, and those that netlink could not watch before.
pub(crate) fn waiting(world: &mut World, now: Timestamp) {
    let waiting =
        lookup::netns::unwatched(world).filter_map(|life| Some((due(world.netns.get(life)?)?, life)));
    let (ready, later): (Vec<_>, Vec<_>) = waiting.partition(|(due, _)| *due <= now);
    ready.iter().take(WAITING).for_each(|(_, life)| watch(world, *life, None));
    let left = ready.iter().skip(WAITING).chain(&later);
    if let Some(next) = left.map(|(due, _)| *due).min() {
        world.timers.arm_earlier(timer::Name::Watch, next.max(now + SETTLED));
    }
}

fn watch(world: &mut World, life: u64, unheard_since: Option<Timestamp>) {
    let Some(row) = world.netns.rows.get_mut(&life) else { return };
    row.watched = true;
    let question = Question::Watch { netns: row.key, by: row.creator.clone(), unheard_since };
    world.ask(question);
}

/// Returns when netlink is asked to watch a namespace that had to wait, or that it could not watch. None: it
/// is not asked again.
fn due(row: &Netns) -> Option<Timestamp> {
    let began = row.created_at.or(row.found_at).unwrap_or(Timestamp::ZERO);
    row.watch_failed.map_or(Some(began + SETTLED), Failed::again_at)
}
