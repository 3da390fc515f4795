//! The events that change a sandbox's state, and who ended it: the runtime, on purpose, or another process.

use std::time::Duration;

use super::{claim, log_search, pod, reading, run, start};
use crate::{
    engine::{
        queued_change::Wait,
        world::{
            EventContext, World, lookup,
            table::{
                attachment::Attachment,
                presence::Voucher,
                sandbox::{Group, State, Step, ending::Death},
            },
        },
    },
    model::{
        change::{ChangeKind, End, Process, StopReason},
        fact::{Origin, Role},
        id::ContainerId,
        time::Timestamp,
    },
};

/// Records that a listing overtook come within this time.
const OVERTAKEN: Duration = Duration::from_millis(500);

/// Adds a sandbox for which the runtime calls DEL and of which nothing but its record was known: it was made
/// before the agent started, or it failed before its network was made. It is over, and has a row from now
/// on.
pub(crate) fn recalled(world: &mut World, ctx: EventContext, id: &ContainerId) {
    if world.sandboxes.recall(id).is_some() || !world.records.is_on_record(id) {
        return;
    }
    let known_since = world.records.known_since.get(id).copied().unwrap_or(ctx.at);
    let first = EventContext { at: known_since.min(ctx.at), origin: Origin::Listed, ..ctx };
    let pod = lookup::record::pod_of_nameless(world, id);
    let row = world.sandboxes.begin(first, id, false);
    row.state = State::Remembered { stopped_at: ctx.at };
    row.reported.pod = pod;
}

/// Notes that the program of a container, or the pause process of a sandbox, runs.
pub(crate) fn is_up(world: &mut World, ctx: EventContext, id: &ContainerId) {
    let Some(row) = world.containers.get(id) else { return };
    let Some(role) = row.role else { return };
    let Some(process) = row.process().and_then(|key| world.processes.get(key)) else { return };
    let inode = process.netns;
    let on_host = inode != 0 && inode == world.node.host_netns;
    let sandbox = match role {
        Role::Sandbox => Some(id.clone()),
        Role::Container => run::sandbox_for(world, id),
    };
    let Some(sandbox) = sandbox else { return };
    let is_host = on_host && !lookup::sandbox::has_adds(world, &sandbox);
    if let Some(row) = world.sandboxes.get_mut(&sandbox) {
        row.up_since = Some(row.up_since.map_or(ctx.at, |since| since.min(ctx.at)));
        row.network.is_host |= is_host;
    }
    if inode != 0
        && !on_host
        && let Some(life) = world.netns.live(inode).map(|row| row.life)
    {
        claim::claim(world, ctx, life, &sandbox, true);
    }
    // A container that runs has its network, even if the making of the network was not seen.
    let proven = role == Role::Container || world.node.host_netns == 0;
    may_be_ready(world, ctx, &sandbox, proven);
}

/// Makes the sandbox ready if it is up and has its network. `proven`: if no ADD is open, none will follow.
pub(crate) fn may_be_ready(world: &mut World, ctx: EventContext, id: &ContainerId, proven: bool) {
    let Some(row) = world.sandboxes.get(id) else { return };
    let none = (proven && !lookup::sandbox::has_adds(world, id)).then_some(row.first_at);
    let Some((up, connected)) = row.up_since.zip(lookup::sandbox::connected_since(world, row).or(none))
    else {
        return;
    };
    // If the network is made for a process that runs already, a further plugin may follow.
    let is_through = connected <= up || lookup::sandbox::chains_are_through(world, id);
    if !is_through && !proven {
        return;
    }
    let at = if is_through { up.max(connected) } else { ctx.at };
    let was_found_ready = row.origin == Origin::Listed && !lookup::sandbox::was_seen_made(world, id);
    note_loopback(world, at, id);
    let Some(row) = world.sandboxes.get_mut(id) else { return };
    let Some(ready) = row.state.step(Step::Ready, at) else { return };
    row.state = ready;
    let since_created = (row.origin != Origin::Listed).then(|| at.since(row.first_at));
    log_search::await_pulls(world, at);
    // If the sandbox was found ready, the time at which it became ready is not known.
    if !was_found_ready {
        world.report(
            ctx.back_at(at),
            lookup::sandbox::subject(world, id),
            Wait::Name,
            ChangeKind::SandboxReady { since_created },
        );
    }
}

/// Notes whether a sandbox that has its network has a loopback attachment.
fn note_loopback(world: &mut World, at: Timestamp, id: &ContainerId) {
    let seen: Vec<&Attachment> = world.attachments.of(id).filter(|it| it.was_seen()).collect();
    let has_no_loopback = !seen.is_empty() && !seen.iter().any(|it| it.is_loopback());
    if has_no_loopback {
        world.records.no_loopback_since.get_or_insert(at);
    }
}

/// libcni's cache was read. It has the result of a network's ADDs when the last of them has succeeded, so a
/// sandbox of which nothing but this and its pause process was found has its network. Where hooks are
/// attached, records may still come of what the listing overtook, so it counts only at a later reading.
pub(crate) fn found_ready(world: &mut World, ctx: EventContext) {
    let is_hooked = !world.coverage.attached.is_empty();
    let made = world.sandboxes.values().filter(|row| {
        let is_found = row.state == State::Created && row.origin == Origin::Listed;
        is_found
            && world.attachments.of(&row.id).any(|it| !it.is_loopback() && it.cached_at.is_some())
            && !lookup::sandbox::was_seen_made(world, &row.id)
            && !lookup::call::has_found_add(world, &row.id)
    });
    let made: Vec<_> = made.filter_map(|row| Some((row.id.clone(), row.up_since?))).collect();
    for (id, up) in made {
        if is_hooked && ctx.at < up + OVERTAKEN {
            reading::soon(world, ctx.at);
        } else if let Some(row) = world.sandboxes.get_mut(&id)
            && let Some(ready) = row.state.step(Step::Ready, up)
        {
            row.state = ready;
            log_search::await_pulls(world, ctx.at);
        }
    }
}

/// Stops the sandbox. It stops only once, so the first sign of its end gives the reason.
pub(crate) fn stop(world: &mut World, ctx: EventContext, id: &ContainerId, why: StopReason) {
    let Some(row) = world.sandboxes.get_mut(id) else { return };
    let Some(stopped) = row.state.step(Step::Stop(why), ctx.at) else { return };
    let was_ready = matches!(std::mem::replace(&mut row.state, stopped), State::Ready { .. });
    let pod = row.pod;
    row.pod_made_at = pod.and_then(|pod| world.pods.get(&pod)?.made_at());
    if let Some(pod) = pod
        && was_ready
    {
        world.pods.left(pod, ctx.at);
    }
    reading::soon(world, ctx.at);
    start::over(world, ctx, id);
    world.schedule_reap(ctx.at);
    world.report(ctx, lookup::sandbox::subject(world, id), Wait::Name, ChangeKind::SandboxStopped { why });
    if let Some(pod) = pod {
        pod::may_be_gone(world, ctx, pod);
    }
}

/// Stops a sandbox whose runtime ended while it was making the sandbox, and that no runtime knows.
pub(crate) fn abandoned(world: &mut World, ctx: EventContext, id: &ContainerId) {
    if let Some(row) = world.sandboxes.get_mut(id) {
        row.ending.is_abandoned = true;
    }
    stop(world, ctx, id, StopReason::RuntimeEnded);
}

/// Stops a sandbox of which a listing found only the cgroup that it left behind. The sandbox was ready once,
/// since a runtime makes the cgroup after the network.
pub(crate) fn left_over(world: &mut World, ctx: EventContext, id: &ContainerId) {
    if let Some(pod) = world.sandboxes.get(id).and_then(|row| row.pod) {
        world.pods.left(pod, ctx.at);
    }
    stop(world, ctx, id, StopReason::NotListed);
}

/// Stops a sandbox whose namespace ended. `by`: the process that dropped its last reference.
pub(crate) fn lost_netns(world: &mut World, ctx: EventContext, id: &ContainerId, by: Option<Process>) {
    if let Some(row) = world.sandboxes.recall_mut(id) {
        row.ending.netns_goes(ctx.at, by);
    }
    let is_listed = ctx.origin == Origin::Listed;
    stop(world, ctx, id, if is_listed { StopReason::NotListed } else { StopReason::NetnsGone });
    world.sandboxes.withdraw(id, Voucher::Mount);
    world.sandboxes.withdraw(id, Voucher::Kernel);
    if let Some(pod) = world.sandboxes.get(id).and_then(|row| row.pod) {
        pod::may_be_gone(world, ctx, pod);
    }
}

/// Stops the sandboxes of a pod that only records show, since the pod's own cgroup is gone. They cannot live
/// any more.
pub(crate) fn stop_unvouched(world: &mut World, ctx: EventContext, pod: u64) {
    let of_pod = world.sandboxes.group(Group::Pod(pod));
    let over: Vec<ContainerId> = of_pod
        .filter(|row| !row.is_stopped() && !row.presence.is_alive())
        .map(|row| row.id.clone())
        .collect();
    for id in over {
        stop(world, ctx, &id, StopReason::Emptied);
    }
}

/// Notes that a runtime's program was run to end the sandbox.
pub(crate) fn stopping(world: &mut World, ctx: EventContext, id: &ContainerId) {
    if let Some(row) = world.sandboxes.recall_mut(id) {
        row.ending.stopping(ctx.at);
    }
    note_last_started(world, ctx, id);
}

/// Keeps which daemon had started last when the runtime began to stop the sandbox: its own row may be
/// forgotten before a verdict needs it.
fn note_last_started(world: &mut World, ctx: EventContext, id: &ContainerId) {
    if !world
        .sandboxes
        .recall(id)
        .is_some_and(|row| row.ending.stop_at.is_some() && row.ending.last_started.is_none())
    {
        return;
    }
    let last_started = lookup::daemons::last_started(world, ctx.at);
    if let Some(row) = world.sandboxes.recall_mut(id) {
        row.ending.last_started = last_started;
    }
}

/// Notes how the pause process ended.
pub(crate) fn died(world: &mut World, ctx: EventContext, id: &ContainerId, end: &End) {
    let by_runtime = end.killer.as_ref().is_some_and(|killer| lookup::process::is_of_runtime(world, killer));
    if let Some(row) = world.sandboxes.recall_mut(id)
        && row.ending.death.is_none()
    {
        row.ending.death = Some(Death { at: ctx.at, end: end.clone(), by_runtime });
        if by_runtime {
            row.ending.stopping(ctx.at);
        }
    }
    note_last_started(world, ctx, id);
}
