//! Collects what the report on the node's recovery needs: when the daemons started, which pods are back, and
//! the network. `engine::boot` makes the report of it.
//!
//! Pods are looked at a moment after a change of one. By then their names are known, and it has shown whether
//! a container that ended without error was followed by another.
//!
//! **Invariant:** bounded: the numbers of pods and of network attempts are limited, and nothing is added once
//! the recovery is over.

use std::time::Duration;

use probe_common::event::class;

use super::{program, restart};
use crate::{
    engine::{
        boot::{order, report::RecoveryReport},
        queued_change::{Subject, Wait},
        timer,
        world::{
            EventContext, World,
            daemon::{is_kubelet, is_runtime, is_trusted},
            lookup, process_of,
            table::{
                call::Call,
                recovery::{TRIES, WITHOUT_EFFECT},
                sandbox::Sandbox,
            },
        },
    },
    model::{
        change::ChangeKind,
        fact::{Executed, Origin, Reservation, Span, StoreKind, Task},
        recovery::{
            BootRead, KubeletListens, NetworkAttempt, OpenAttempt, Order, RecoveredPod, Recovery,
            ServicesUnread, Source, TimedSource,
        },
        time::Timestamp,
    },
};

/// How long to wait for names and ends before pods are looked at.
const SETTLE: Duration = Duration::from_secs(1);

/// A further order within this time is a part of the same restart.
const ONE_ORDER: Duration = Duration::from_secs(10 * 60);

/// Takes in the facts about this boot.
pub(crate) fn boot_read(world: &mut World, ctx: EventContext, boot: BootRead) {
    world.boot.recovery.boot = Some(boot);
    world.boot.recovery.watched_since.get_or_insert(ctx.at);
    world.node.began_at = Some(ctx.at);
    noted(world, ctx.at);
    // Only the history of this boot may have the restarts that are under way.
    if world.boot.is_restarting() {
        restart::look_at_restarts(world, ctx.at);
    }
}

/// Has the recovery looked at soon, since the facts changed.
fn noted(world: &mut World, at: Timestamp) {
    world.boot.by_rules();
    world.boot.recovery.revision = world.boot.recovery.revision.wrapping_add(1);
    world.timers.arm_earlier(timer::Name::Recovery, at + SETTLE);
}

/// Notes a process that was added to the table and has run since `mark`, if it is init, a runtime or the
/// kubelet.
pub(crate) fn started_at(world: &mut World, task: &Task, class: u32, mark: TimedSource) {
    let is_contained = class & class::IN_CONTAINER != 0 || world.cgroups.is_in_container(task.cgroup);
    let is_kubelet = if is_contained {
        let row = world.processes.get(task.key);
        row.is_some_and(|row| lookup::daemons::is_contained_kubelet(world, row))
    } else {
        is_kubelet(&task.comm) && is_trusted(class)
    };
    if is_contained && !is_kubelet {
        return;
    }
    let before = [world.boot.recovery.init, world.boot.recovery.runtime, world.boot.recovery.kubelet];
    if task.key.pid == 1 && mark.source == Source::ProcStart {
        TimedSource::offer(&mut world.boot.recovery.init, mark);
    }
    let is_runtime = is_runtime(&task.comm) && is_trusted(class);
    if is_runtime {
        TimedSource::offer(&mut world.boot.recovery.runtime, mark);
    }
    if is_kubelet {
        TimedSource::offer(&mut world.boot.recovery.kubelet, mark);
    }
    if before != [world.boot.recovery.init, world.boot.recovery.runtime, world.boot.recovery.kubelet] {
        noted(world, mark.at);
        if world.boot.recovery.boot.is_some() {
            program::ask_version_of(world, task.key);
        }
    }
    if is_runtime || is_kubelet {
        restart::daemon_runs(world, task.key, &task.comm, mark);
    }
}

/// Notes a program that orders a restart. Returns whether the program is reported for no other reason. Then
/// the process is not remembered, because its end is not reported.
pub(crate) fn only_orders(world: &mut World, ctx: EventContext, it: &Executed) -> bool {
    let orders = may_order(world, ctx, it);
    let only = it.class & class::ORDER != 0;
    if only && orders {
        let filename = it.filename.clone();
        let argv = it.argv.clone();
        let what = ChangeKind::ProcessExec { process: process_of(&it.task), filename, argv, argv_cut: false };
        world.report(ctx, Subject::default(), Wait::Nothing, what);
    }
    only
}

/// Notes a program outside of containers that orders the restart or cancels the order. Returns whether it
/// does.
fn may_order(world: &mut World, ctx: EventContext, it: &Executed) -> bool {
    let Some(said) = order::read(&it.filename, &it.argv) else { return false };
    if it.class & class::IN_CONTAINER != 0 || world.cgroups.is_in_container(it.task.cgroup) {
        return false;
    }
    match said {
        order::Said::Cancelled => world.boot.recovery.order = None,
        order::Said::Down => {
            let known = world.boot.recovery.order.as_ref();
            if known.is_none_or(|known| ctx.at >= known.at + ONE_ORDER) {
                let running = lookup::recovery::running_pods(world, ctx.at);
                world.boot.recovery.order = Some(Order { at: ctx.at, by: it.argv.join(" "), running });
            }
        }
    }
    noted(world, ctx.at);
    true
}

/// Names the runtimes and the kubelet by which the pods come back. One that is started after the last pod was
/// back made none of them; the version of another one may still become known.
fn name_daemons(world: &mut World) {
    let last = world.boot.recovery.pods.iter().map(|back| back.mark.at).max();
    let by = if world.boot.recovery.closed { last } else { None }.unwrap_or(Timestamp(u64::MAX));
    let [runtime, kubelet] = lookup::daemons::with_versions(world, by);
    let closed = world.boot.recovery.closed;
    learn_program(&mut world.boot.recovery.runtime_program, runtime, closed);
    learn_program(&mut world.boot.recovery.kubelet_program, kubelet, closed);
}

/// Learns the name and version of a daemon.
fn learn_program(known: &mut Option<String>, found: Option<String>, closed: bool) {
    let found = found.filter(|found| !closed || is_version_of(found, known.as_deref()));
    *known = found.or(known.take());
}

/// Names the daemons again, since a program's version was found out.
pub(crate) fn version_found(world: &mut World, at: Timestamp) {
    let before = programs_of(&world.boot.recovery);
    name_daemons(world);
    if before != programs_of(&world.boot.recovery) {
        world.boot.recovery.revision = world.boot.recovery.revision.wrapping_add(1);
    }
    pod_may_be_back(world, at);
}

/// Drops an order that had no effect. A program with the name of one that restarts the node may do something
/// else, or be refused. The order had no effect if the runtime and the kubelet still run and no container was
/// stopped since. It had none either if they still make pods after `WITHOUT_EFFECT`, which a node that shuts
/// down does not.
fn take_back_order(world: &mut World, now: Timestamp) {
    let Some(order) = world.boot.recovery.order.as_ref().filter(|order| !order::is_for_later(&order.by))
    else {
        return;
    };
    let at = order.at;
    let due = order.at + WITHOUT_EFFECT;
    if now < due {
        world.timers.arm_earlier(timer::Name::Recovery, due);
        return;
    }
    let run_on = lookup::daemons::cleaners_since(world).is_some_and(|since| since <= at);
    let mut ran = world.sandboxes.all().flat_map(Sandbox::containers);
    let was_stopped = ran.any(|ran| ran.ended.is_some_and(|ended| ended.at >= at && !ended.by_itself()));
    if run_on
        && (!was_stopped
            || world.sandboxes.all().any(|row| row.origin == Origin::Kernel && row.first_at >= due))
    {
        world.boot.recovery.order = None;
        world.boot.recovery.revision = world.boot.recovery.revision.wrapping_add(1);
    } else {
        world.timers.arm_earlier(timer::Name::Recovery, now + WITHOUT_EFFECT);
    }
}

/// Has the recovery and the open restarts looked at soon, since something happened to a container.
pub(crate) fn pod_may_be_back(world: &mut World, at: Timestamp) {
    if !lookup::recovery::is_recovered(world, at) {
        world.timers.arm_earlier(timer::Name::Recovery, at + SETTLE);
    }
    if world.boot.is_restarting() {
        restart::look_at_restarts(world, at);
    }
}

/// Notes that a container could not be made in this time, because the kubelet had not read the Services.
pub(crate) fn services_unread(world: &mut World, wait: Span) {
    if lookup::recovery::is_recovered(world, wait.began) {
        return;
    }
    let recovery = &mut world.boot.recovery;
    let known = recovery.services_unread.unwrap_or(ServicesUnread { containers: 0, span: wait });
    recovery.services_unread = Some(ServicesUnread {
        containers: known.containers.saturating_add(1),
        span: Span { began: known.span.began.min(wait.began), ended: known.span.ended.max(wait.ended) },
    });
    recovery.revision = recovery.revision.wrapping_add(1);
}

type Programs = (Option<String>, Option<String>);

fn programs_of(it: &Recovery) -> Programs {
    (it.runtime_program.clone(), it.kubelet_program.clone())
}

/// Returns the parts that make a new revision when they change.
fn state_of(it: &Recovery) -> (Vec<RecoveredPod>, bool, u32, Programs) {
    (it.pods.clone(), it.closed, it.pods_left_out, programs_of(it))
}

/// Finds the pods that are back, and whether all are.
pub(crate) fn assess(world: &mut World, now: Timestamp) {
    let found: Vec<_> = world.sandboxes.all().filter_map(|row| lookup::recovery::back(world, row)).collect();
    let before = state_of(&world.boot.recovery);
    let left_out = found.into_iter().filter_map(|(back, first)| world.boot.note_back(back, first));
    let left_out = u32::try_from(left_out.count()).unwrap_or(u32::MAX);
    // The pods that found no room are not remembered. At least as many exist as were counted at one time.
    world.boot.recovery.pods_left_out = world.boot.recovery.pods_left_out.max(left_out);
    world.boot.by_rules();
    name_daemons(world);
    take_back_order(world, now);
    let study = RecoveryReport::of(&world.boot.recovery, now);
    world.boot.recovery.closed = study.is_closed();
    world.boot.recovery.seen_until = now;
    if before != state_of(&world.boot.recovery) {
        world.boot.recovery.revision = world.boot.recovery.revision.wrapping_add(1);
    }
    let last = study.last_service.map(|last| last.mark.at + world.boot.rules.quiet);
    let next = last.into_iter().chain(world.boot.recovery.patience(now)).min();
    if let Some(next) = next
        && !world.boot.recovery.closed
    {
        world.timers.arm_earlier(timer::Name::Recovery, next);
    }
}

/// Notes that the kubelet listens at one of its ports.
pub(crate) fn kubelet_listens(world: &mut World, at: Timestamp, port: u16) {
    let is_over = lookup::recovery::is_recovered(world, at);
    let ports = &mut world.boot.recovery.kubelet_listens;
    let place = ports.partition_point(|it| it.port < port);
    // After a later start of the kubelet it listens again.
    if !is_over && ports.get(place).is_none_or(|it| it.port != port) {
        ports.insert(place, KubeletListens { port, at });
        noted(world, at);
    }
}

/// Notes when the networks' configuration was written in this boot.
pub(crate) fn network_configured(world: &mut World, at: Timestamp, written: Option<Timestamp>) {
    // A clock that was wrong at first dates a file into the future.
    let Some(written) = written.filter(|it| *it <= at && !lookup::recovery::is_recovered(world, at)) else {
        return;
    };
    let before = world.boot.recovery.network_configured;
    let mark = TimedSource { at: written, source: Source::FileTime };
    TimedSource::offer(&mut world.boot.recovery.network_configured, mark);
    if before != world.boot.recovery.network_configured {
        noted(world, at);
    }
}

/// Notes that the runtime calls ADD.
pub(crate) fn network_trying(world: &mut World, call: &Call) {
    let Some(sandbox) = call.container.clone() else { return };
    if is_loopback(call) || !lookup::recovery::is_try(world, &sandbox, call) {
        return;
    }
    let trying = &mut world.boot.recovery.trying;
    if trying.len() < TRIES {
        trying.push(OpenAttempt { sandbox, began: call.at });
        world.boot.recovery.revision = world.boot.recovery.revision.wrapping_add(1);
    }
}

/// Notes that an ADD that the runtime called has ended.
pub(crate) fn network_tried(world: &mut World, at: Timestamp, call: &Call, succeeded: bool) {
    let Some(id) = &call.container else { return };
    world.boot.network_not_trying(id, call.at);
    let failed = (!succeeded).then(|| call.call.plugin.clone());
    let recovery = &world.boot.recovery;
    // The first success ends the time without a network, whenever it comes.
    let has_waited = !recovery.tries.is_empty() || !recovery.trying.is_empty();
    let is_first = succeeded && has_waited && recovery.tries.iter().all(|it| it.failed.is_some());
    // The plugins of a chain are called one after the other, and the next may fail.
    let known = recovery.tries.iter().rposition(|it| it.sandbox == *id && it.failed.is_none());
    if is_loopback(call) || !is_first && known.is_none() && !lookup::recovery::is_try(world, id, call) {
        return;
    }
    let Recovery { tries, tries_left_out, .. } = &mut world.boot.recovery;
    if let Some(known) = known.and_then(|place| tries.get_mut(place)) {
        known.ended = known.ended.max(at);
        known.failed = failed;
    } else {
        if is_first && tries.len() >= TRIES {
            tries.pop();
            *tries_left_out = tries_left_out.saturating_add(1);
        }
        if tries.len() < TRIES {
            tries.push(NetworkAttempt { sandbox: id.clone(), began: call.at, ended: at, failed });
        } else {
            *tries_left_out = tries_left_out.saturating_add(1);
        }
    }
    noted(world, at);
}

/// Notes the oldest address in a store. It gives the time of the network's first success, if that was before
/// the agent started. A store that has no times says nothing of that.
pub(crate) fn leases_dated(
    world: &mut World,
    ctx: EventContext,
    kind: StoreKind,
    reservations: &[Reservation],
) {
    if !kind.has_times() {
        return;
    }
    let dates = reservations.iter().map(|it| it.since).filter(|at| *at > Timestamp::ZERO);
    let oldest = dates.chain(world.boot.recovery.leased_since).min();
    if oldest != world.boot.recovery.leased_since {
        world.boot.recovery.leased_since = oldest;
        noted(world, ctx.at);
    }
}

/// Whether `found` is the name that is known, and its version.
fn is_version_of(found: &str, known: Option<&str>) -> bool {
    known.is_some_and(|known| found.strip_prefix(known).is_some_and(|rest| rest.starts_with(' ')))
}

/// Whether the call is for the loopback, whose ADD connects nothing and never fails.
fn is_loopback(call: &Call) -> bool {
    call.call.ifname.as_deref() == Some("lo")
}
