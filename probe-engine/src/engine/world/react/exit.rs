//! The ends of processes, and the signals that may end them.

use probe_common::event::class;

use super::{cni, container, restart, sandbox};
use crate::{
    engine::world::{
        EventContext, World, argv, daemon, lookup, process_of,
        table::process::{Process, Signal, State},
    },
    model::{
        change::ChangeKind,
        fact::{Exited, SIGKILL, Signaled, Task},
        id::TaskKey,
        recovery::DaemonEnd,
    },
};

/// At most this many signals are kept for one process. Runtimes send fewer, and a flood of signals must not
/// cost memory.
const SIGNALS: usize = 8;

/// Returns the row of a process of which only a task is known.
pub(crate) fn unseen(task: &Task) -> Process {
    Process {
        key: task.key,
        parent: task.parent,
        comm: task.comm.clone(),
        cgroup: task.cgroup,
        netns: task.netns,
        ..Process::default()
    }
}

/// Ends a process.
pub(crate) fn exited(world: &mut World, ctx: EventContext, it: &Exited) {
    let key = it.task.key;
    supersede(world, ctx, key);
    let known = world.processes.get(key);
    let state = known.map(|known| known.state).unwrap_or_default();
    let Some(ended) = state.step(ctx.at) else { return };
    // If a process's beginning was not seen, its end is reported only if the process itself matters.
    let matters = it.class & (class::CONTAINER_TOP | class::PAUSE | class::CALLER) != 0
        && !argv::is_init(&it.task.comm, &[]);
    let quiet = known.map_or(!matters, |known| known.quiet);
    let cgroup = known.map_or(it.task.cgroup, |known| known.cgroup);
    let about = known.and_then(|known| known.program.about.clone());
    let daemon = known.filter(|known| daemon::is_named(&known.comm, known.program.class)).cloned();
    if known.is_some() {
        world.processes.set_state(key, ended);
    } else {
        world.processes.insert(Process { state: ended, ..unseen(&it.task) });
    }
    world.schedule_reap(ctx.at);
    cni::caller_ended(world, ctx.at, key);

    let stopped_at = lookup::process::stopped_at(world, key);
    let killer = lookup::process::killer(world, key);
    let told = daemon.as_ref().and_then(|_| world.processes.last_fatal_signal(key));
    let end = world.processes.take_end(key, it.status);
    if let Some(row) = daemon {
        restart::daemon_ended(world, &row, ctx.at, Some(DaemonEnd { at: ctx.at, end: end.clone(), told }));
    }
    if let Some(call) = world.calls.remove(&key) {
        cni::finished(world, ctx, call, Some(end));
        return;
    }
    // A process that was killed before it had become the pause process ends its sandbox all the same.
    if end.signal.is_some()
        && let Some(id) = world.cgroups.own_container(cgroup)
        && !lookup::sandbox::hides_programs(world, &id)
    {
        sandbox::died(world, ctx, &id, &end);
    }
    if quiet {
        return;
    }
    let mut subject = world.cgroups.subject_of(&it.task);
    if !world.cgroups.contains_key(&it.task.cgroup) {
        subject.cgroup = Some(cgroup);
    }
    subject.container = about.or(subject.container);
    let wait = lookup::context::wait_of(world, &subject);
    let process = process_of(&it.task);
    world.report(ctx, subject, wait, ChangeKind::ProcessExit { process: process.clone(), end: end.clone() });
    for id in [world.cgroups.own_container(cgroup), world.cgroups.own_container(it.task.cgroup)]
        .into_iter()
        .flatten()
    {
        container::exited(world, ctx, &id, &process, &end, (stopped_at, killer.as_ref()));
    }
}

/// Notes a fatal signal, or a choice of the OOM killer.
pub(crate) fn signaled(world: &mut World, ctx: EventContext, it: Signaled, oom: bool) {
    let target = world.processes.target_of(ctx, &it);
    let ended = world.processes.get(target).filter(|known| known.state != State::Running);
    if let Some(known) = ended {
        // The OOM killer's choice is reported after the signal. The reported end stays as it is, but verdicts
        // use the OOM kill.
        if let Some(id) = world.cgroups.own_container(known.cgroup)
            && oom
        {
            world.sandboxes.oom_killed(ctx, &id);
        }
        if oom {
            restart::daemon_oom_killed(world, target);
        }
        return;
    }
    let signal = Signal { target, at: ctx.at, signal: it.signal, oom, sender: process_of(&it.sender) };
    let heard = world.processes.signals.entry(target).or_default();
    // The first SIGKILL ends the process. Signals that can be caught may have been caught, so only the last
    // of each counts.
    if signal.signal != SIGKILL || oom {
        heard.retain(|other| other.signal != signal.signal || other.oom != oom);
    } else if heard.iter().any(|other| other.signal == SIGKILL && !other.oom) {
        return;
    }
    let killer = (signal.signal == SIGKILL && !oom).then(|| signal.sender.clone());
    if heard.len() < SIGNALS {
        heard.push(signal);
    }
    if killer.is_some_and(|killer| lookup::process::is_of_runtime(world, &killer)) {
        container::killed(world, ctx, target);
    }
    world.schedule_reap(ctx.at);
}

/// Ends the process that had the same pid before.
pub(crate) fn supersede(world: &mut World, ctx: EventContext, key: TaskKey) {
    if let Some(stale) = world.processes.stale(key) {
        vanished(world, ctx, stale);
    }
}

/// Ends a process that is gone without a record of its end.
pub(crate) fn vanished(world: &mut World, ctx: EventContext, key: TaskKey) {
    let Some(row) = world.processes.get(key) else { return };
    let Some(ended) = row.state.step(ctx.at) else { return };
    let cgroup = row.cgroup;
    let daemon = Some(row).filter(|row| daemon::is_named(&row.comm, row.program.class)).cloned();
    world.processes.set_state(key, ended);
    world.schedule_reap(ctx.at);
    cni::caller_ended(world, ctx.at, key);
    world.processes.signals.remove(&key);
    if let Some(row) = daemon {
        restart::daemon_ended(world, &row, ctx.at, None);
    }
    if let Some(call) = world.calls.remove(&key) {
        cni::finished(world, ctx, call, None);
    }
    if let Some(id) = world.cgroups.own_container(cgroup) {
        container::vanished(world, ctx, &id, key);
    }
}
