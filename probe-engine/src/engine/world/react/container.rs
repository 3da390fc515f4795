//! The programs of a container begin, listen and end.
//!
//! When a container first listens on a socket, it can be reached. The start of its program does not show
//! that.
//!
//! **Invariant:** nothing is reported about the listening of a container that was found running: it may have
//! listened before the agent started.

use std::time::Duration;

use probe_common::event::{KUBELET_PORTS, class};

use super::{belief, identity, pod, recovery, restart, run, sandbox, start};
use crate::{
    engine::{
        queued_change::Wait,
        world::{
            EventContext, World,
            daemon::is_kubelet,
            lookup, process_of,
            table::{
                container::{Began, Hook, Listening, State, Step},
                presence::Voucher,
            },
        },
    },
    model::{
        change::{ChangeKind, End, Process, StopReason},
        fact::{Listened, Origin, Role, Task},
        id::{ContainerId, TaskKey},
        recovery::WITHIN,
        time::Timestamp,
    },
};

/// A hook begins at most this long after the start of the container's own program.
const HOOKED: Duration = Duration::from_secs(1);

/// Notes that the container's programs are no processes of the node, as its maker, what holds it, or its
/// first process shows.
pub(crate) fn programs_hidden(world: &mut World, id: &ContainerId) {
    if world.containers.get(id).is_some_and(|row| !row.hides_programs)
        && let Some(row) = world.containers.rows.get_mut(id)
    {
        row.hides_programs = true;
    }
    world.sandboxes.hide_programs(id);
}

/// Notes that a program began in a container's own cgroup.
pub(crate) fn ran(world: &mut World, ctx: EventContext, id: &ContainerId, task: &Task, bits: u32) {
    if bits & (class::CONTAINER_TOP | class::PAUSE) == 0 {
        return;
    }
    let Some(row) = world.containers.rows.get_mut(id) else { return };
    // The container was found with processes in it, so it has started already and this program is an `exec`
    // into it.
    let cgroup = row.cgroup.and_then(|key| world.cgroups.get(&key));
    if row.origin == Origin::Listed
        && cgroup.is_none_or(|cgroup| cgroup.created_at.is_none() && cgroup.populated == Some(true))
    {
        return;
    }
    let Some(running) = row.state.step(Step::Run { process: task.key, listed: false }, ctx.at) else {
        executed_into(world, ctx, id, task.key);
        return;
    };
    row.state = running;
    row.run.began = Some(Began { at: ctx.at, listed: false });
    belief::kernel_started(world, ctx.at, id);
    started(world, ctx, id, process_of(task), bits);
}

/// Notes that a program began in a container that runs already, and is no child of the container's own
/// program.
fn executed_into(world: &mut World, ctx: EventContext, id: &ContainerId, process: TaskKey) {
    let Some(row) = world.containers.rows.get_mut(id) else { return };
    if let State::Running { process: main, since, listed: false } = row.state
        && main != process
        && row.run.hook.is_none()
        && ctx.at <= since + HOOKED
    {
        let hook = Hook { process, ended_at: None };
        row.run.hook = Some(hook);
        run::hooked(world, id, hook);
    }
}

fn hook_exited(world: &mut World, ctx: EventContext, id: &ContainerId, process: TaskKey) {
    let Some(row) = world.containers.rows.get_mut(id) else { return };
    if let Some(hook) = row.run.hook.filter(|hook| hook.process == process && hook.ended_at.is_none()) {
        let hook = Hook { ended_at: Some(ctx.at), ..hook };
        row.run.hook = Some(hook);
        run::hooked(world, id, hook);
    }
}

/// Notes that a process was found in a container's own cgroup.
pub(crate) fn found(
    world: &mut World,
    ctx: EventContext,
    id: &ContainerId,
    task: &Task,
    ns_pid: u32,
    bits: u32,
) {
    let outside = world.processes.get(task.parent).is_none_or(|parent| parent.cgroup != task.cgroup);
    let Some(row) = world.containers.rows.get_mut(id) else { return };
    if ns_pid != 1 && !outside {
        return;
    }
    let Some(running) = row.state.step(Step::Run { process: task.key, listed: true }, ctx.at) else {
        return;
    };
    row.state = running;
    row.run.began = Some(Began { at: ctx.at, listed: true });
    started(world, ctx, id, process_of(task), bits);
}

fn started(world: &mut World, ctx: EventContext, id: &ContainerId, process: Process, bits: u32) {
    if bits & class::PAUSE != 0 && world.containers.get(id).is_some_and(|row| row.pod.is_some()) {
        identity::has_role(world, ctx, id, Role::Sandbox);
    }
    identity::ask_role(world, id);
    let role = world.containers.get(id).and_then(|row| row.role);
    let subject = world.containers.subject_of(id);
    match role {
        Some(Role::Sandbox) => {}
        Some(Role::Container) => {
            run::began(world, id);
            world.report(ctx, subject, Wait::Name, ChangeKind::ContainerStarted { process });
        }
        None => {
            world.report(ctx, subject, Wait::Role(Role::Container), ChangeKind::ContainerStarted { process })
        }
    }
    sandbox::is_up(world, ctx, id);
    start::phase_turns(world, world.containers.get(id).and_then(|row| row.pod));
}

/// Notes that a process in the container ended. `by`: when its runtime first sent it a fatal signal, and
/// which process other than its runtime ended it.
pub(crate) fn exited(
    world: &mut World,
    ctx: EventContext,
    id: &ContainerId,
    process: &Process,
    end: &End,
    (stopped_at, killer): (Option<Timestamp>, Option<&Process>),
) {
    hook_exited(world, ctx, id, process.key);
    let Some(row) = world.containers.rows.get_mut(id) else { return };
    let State::Running { process: top, since, listed } = row.state else { return };
    let Some(ended) = row.state.step(Step::End, ctx.at) else { return };
    if top != process.key {
        return;
    }
    row.state = ended;
    row.run.code = Some(end.code);
    row.run.oom = end.oom;
    row.run.stopped_at = stopped_at;
    row.killer = killer.cloned();
    let role = row.role;
    let pod = row.pod;
    world.schedule_reap(ctx.at);
    belief::kernel_ended(world, ctx.at, id, Some(end.code));
    if role == Some(Role::Sandbox) {
        if lookup::sandbox::hides_programs(world, id) {
            return;
        }
        sandbox::died(world, ctx, id, end);
        sandbox::stop(world, ctx, id, StopReason::PauseExited);
        return;
    }
    run::ended(world, ctx.at, id, Some(end.code));
    identity::infer_role(world, id);
    let role = world.containers.get(id).and_then(|row| row.role);
    let ran = (!listed).then(|| ctx.at.since(since));
    let wait = if role.is_some() { Wait::Name } else { Wait::Role(Role::Container) };
    let what = ChangeKind::ContainerExited { process: process.clone(), end: end.clone(), ran };
    world.report(ctx, world.containers.subject_of(id), wait, what);
    if let Some(pod) = pod {
        pod::may_be_gone(world, ctx, pod);
    }
}

/// Notes that the runtime sent SIGKILL to a process in a container.
pub(crate) fn killed(world: &mut World, ctx: EventContext, process: TaskKey) {
    let cgroup = world.processes.get(process).map(|row| row.cgroup);
    let Some(id) = cgroup.and_then(|key| world.cgroups.own_container(key)) else { return };
    if world
        .containers
        .get(&id)
        .is_some_and(|row| row.process() == Some(process) && row.run.killed_at.is_none())
        && let Some(row) = world.containers.rows.get_mut(&id)
    {
        row.run.killed_at = Some(ctx.at);
    }
}

/// Ends a container whose process is gone without a record of its end.
pub(crate) fn vanished(world: &mut World, ctx: EventContext, id: &ContainerId, process: TaskKey) {
    if world.containers.get(id).is_some_and(|row| row.process() == Some(process)) {
        over(world, ctx, id, StopReason::NotListed);
    }
}

/// Stops a sandbox whose cgroup became empty.
pub(crate) fn emptied(world: &mut World, ctx: EventContext, id: &ContainerId) {
    let is_sandbox = world.containers.get(id).is_some_and(|row| row.role == Some(Role::Sandbox));
    if is_sandbox && !lookup::sandbox::hides_programs(world, id) {
        sandbox::stop(world, ctx, id, StopReason::Emptied);
    }
}

/// Ends a container whose own cgroup was removed.
pub(crate) fn cgroup_gone(world: &mut World, ctx: EventContext, id: &ContainerId) {
    world.sandboxes.withdraw(id, Voucher::Cgroupfs);
    over(world, ctx, id, StopReason::Emptied);
}

fn over(world: &mut World, ctx: EventContext, id: &ContainerId, why: StopReason) {
    let Some(row) = world.containers.rows.get_mut(id) else { return };
    if let Some(ended) = row.state.step(Step::End, ctx.at) {
        row.state = ended;
        world.schedule_reap(ctx.at);
        belief::kernel_ended(world, ctx.at, id, None);
        run::ended(world, ctx.at, id, None);
        identity::infer_role(world, id);
    }
    let pod = world.containers.get(id).and_then(|row| row.pod);
    if why != StopReason::NotListed || !lookup::sandbox::hides_programs(world, id) {
        sandbox::stop(world, ctx, id, why);
    }
    if let Some(pod) = pod {
        pod::may_be_gone(world, ctx, pod);
    }
}

/// Notes the first socket on which a container listens, and the kubelet's ports.
pub(crate) fn listened(world: &mut World, ctx: EventContext, it: &Listened) {
    let is_kubelets = is_kubelet(&it.task.comm) && KUBELET_PORTS.contains(&it.socket.port);
    if it.container.id == 0 && is_kubelets {
        recovery::kubelet_listens(world, ctx.at, it.socket.port);
        restart::listens(world, ctx.at, it.task.key, it.socket.port);
    }
    let Some(id) = world.cgroups.own_container(it.container) else { return };
    let Some(row) = world.containers.rows.get_mut(&id) else { return };
    let State::Running { since, listed: false, .. } = row.state else { return };
    let in_time = ctx.at >= since && ctx.at.since(since) <= WITHIN;
    if row.run.listening.is_some() || row.role == Some(Role::Sandbox) || !in_time {
        return;
    }
    let listening = Listening { at: ctx.at, socket: it.socket };
    row.run.listening = Some(listening);
    let wait = if row.role.is_some() { Wait::Name } else { Wait::Role(Role::Container) };
    let what = ChangeKind::ContainerListening {
        process: process_of(&it.task),
        socket: it.socket,
        since_started: ctx.at.since(since),
    };
    world.report(ctx, world.containers.subject_of(&id), wait, what);
    run::listens(world, &id, listening);
    if let Some(pod) = world.containers.get(&id).and_then(|row| row.pod) {
        start::ask_pressure(world, pod);
    }
}
