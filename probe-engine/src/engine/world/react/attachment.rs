//! The runtime calls a plugin for an attachment, and the plugin answers.
//!
//! **Invariant:** only calls by the node's own runtime count here, separately for each plugin. Calls that a
//! plugin makes (bridge calls host-local) or that a CNI daemon's pod makes change no attachment.

use super::{message, reading, release, wrong_del};
use crate::{
    engine::world::{EventContext, World, lookup, table::call::Call},
    model::{
        change::End,
        fact::{CniCommand, Origin, PodName},
        id::ContainerId,
    },
};

/// Notes that the runtime called a plugin with ADD or DEL.
pub(crate) fn called(world: &mut World, ctx: EventContext, call: &Call) {
    if !call.top || operation(call).is_none() {
        return;
    }
    let Some(id) = call.container.clone() else { return };
    let ifname = call.call.ifname.clone().unwrap_or_default();
    let inferred = world.records.network_of(&call.call.plugin).map(|network| network.name.clone());
    wrong_del::note(world, ctx, call, &id, &ifname);
    world.schedule_reap(ctx.at);
    let row = world.attachments.row(ctx.at, &id, &ifname);
    row.pod.learn(&call.pod);
    row.last_at = row.last_at.max(ctx.at);
    if let Some(name) = inferred {
        row.learn_network(&name, true);
    }
    if call.call.command == "ADD" && row.netns_path.is_none() {
        row.netns_path.clone_from(&call.call.netns);
    }
    if let Some(runs) = row.runs(call) {
        runs.begin(call.at);
    }
    if let Some(plugin) = row.plugin(&call.call.plugin) {
        plugin.path.clone_from(&call.path);
    }
}

/// Notes that a plugin that the runtime called has ended.
pub(crate) fn answered(world: &mut World, ctx: EventContext, call: &Call, end: Option<&End>) {
    if !call.top {
        return;
    }
    let Some((id, command)) = call.container.clone().zip(operation(call)) else { return };
    let ifname = call.call.ifname.clone().unwrap_or_default();
    // Nobody waits for a call whose caller has ended.
    let until = call.cut_off_at.map_or(ctx.at, |cut_off| cut_off.min(ctx.at));
    let took = world.awake_for(call.at, until);
    world.schedule_reap(ctx.at);
    let succeeded = end.is_some_and(|end| end.code == 0);
    let first = if succeeded && command == CniCommand::Add {
        release::added_again(world, &id, &ifname, &call.call.plugin);
        Some(lookup::balance::first(world, &id, &ifname, &call.call.plugin))
    } else {
        None
    };
    let row = world.attachments.row(ctx.at, &id, &ifname);
    row.last_at = row.last_at.max(ctx.at);
    let failed = end.is_some_and(|end| end.code != 0);
    // Its reader is gone, so its pipe may be what killed it: that is no failure of the plugin.
    let is_cut_off = failed && call.cut_off_at.is_some();
    let booking = if succeeded { row.book(call, first) } else { None };
    if let Some(runs) = row.runs(call) {
        runs.end(ctx.at, end, took, is_cut_off);
        // A slow ADD that fails counts as failed, not as slow.
        if end.is_some() && (is_cut_off || !(failed && command == CniCommand::Add)) {
            runs.lasted(until, took, call.looked.as_ref());
        }
    }
    if let Some(plugin) = row.plugin(&call.call.plugin)
        && command == CniCommand::Del
        && !is_cut_off
    {
        plugin.del_ended(call.at, ctx.at, end, took);
    }
    world.accounts.extend(booking);
    if failed && !is_cut_off {
        message::ask(world, ctx, call, command, (id, ifname));
    }
    reading::soon(world, ctx.at);
}

/// Names the pod of a sandbox's attachments, as a runtime's record has it.
pub(crate) fn named(world: &mut World, id: &ContainerId, pod: &PodName) {
    if world.attachments.of(id).all(|row| row.names(pod)) {
        return;
    }
    for (_, row) in
        world.attachments.rows.range_mut((id.clone(), String::new())..).take_while(|((key, _), _)| key == id)
    {
        row.pod.learn(pod);
    }
}

/// Returns how a call changes an attachment. CHECK, GC and calls about the plugin itself change none.
///
/// Neither does a call that was found in a listing: no hook sees the end of a program that began before
/// the hook was attached.
fn operation(call: &Call) -> Option<CniCommand> {
    let command = match call.call.command.as_str() {
        "ADD" => CniCommand::Add,
        "DEL" => CniCommand::Del,
        _ => return None,
    };
    (call.origin != Origin::Listed).then_some(command)
}
