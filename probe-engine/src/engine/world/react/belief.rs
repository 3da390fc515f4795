//! What runtimes report over CRI, and what the kernel shows of the same containers.
//!
//! **Invariant:** a runtime's report changes no row of another table, except for names that no other evidence
//! gave.

use super::{identity, restart};
use crate::{
    engine::{
        timer,
        world::{
            EventContext, World,
            daemon::at_socket,
            lookup,
            table::{
                belief::{Belief, GRACE, KernelEnd, Listed},
                cgroup::Cgroup,
                hint::Hint,
            },
        },
    },
    model::{
        change::Question,
        fact::{Answer, List, NameSource, RuntimeLink, RuntimeStatus, Stated},
        id::{ContainerId, PodUid},
        recovery::{Source, TimedSource},
        time::Timestamp,
    },
};

const ASKED: usize = 16;

/// Notes that a runtime can be asked from now on, or cannot be asked any more.
pub(crate) fn linked(world: &mut World, ctx: EventContext, it: RuntimeLink) {
    if it.answer == Answer::Answers {
        restart::runtime_works(world, TimedSource { at: ctx.at, source: Source::Cri }, at_socket(&it.socket));
    }
    let process = if it.answer == Answer::Hangs { lookup::daemons::serving(world, &it.socket) } else { None };
    if let Some(process) = &process {
        world.ask(Question::Process { process: process.key });
    }
    world.beliefs.link(ctx.at, it, process);
    // Asks for what happened while it did not answer.
    world.timers.arm_earlier(timer::Name::Statuses, ctx.at + GRACE);
}

/// Takes in a runtime's list.
pub(crate) fn stated(world: &mut World, ctx: EventContext, it: RuntimeStatus) {
    let RuntimeStatus { socket, whole, came, gone } = it;
    if world.beliefs.read(ctx.at, &socket).is_none() {
        return;
    }
    if whole {
        world.beliefs.only_listed(ctx.at, &socket, &came.iter().map(|it| &it.id).collect());
    }
    for id in gone {
        world.beliefs.gone(ctx.at, &socket, &id);
    }
    for stated in came {
        state_of(world, ctx, &socket, stated);
    }
    world.beliefs.note_read(&socket);
    world.beliefs.reap(ctx.at);
    ask_pods_of_records(world, ctx.at, &socket);
    arm_statuses(world, ctx.at);
}

/// Asks whether the pods of sandboxes that are not ready are gone: of a pod that has completed, the runtime
/// keeps the sandbox, and the kubelet the log folder, as long as the pod is not deleted.
fn ask_pods_of_records(world: &mut World, at: Timestamp, socket: &str) {
    let due = world.beliefs.unasked(at, socket).filter(|(_, uid)| {
        let pod = world.pods.by_uid(uid).and_then(|pod| world.pods.get(&pod));
        let mut cgroups = pod.into_iter().flat_map(|pod| &pod.cgroups);
        !cgroups.any(|key| world.cgroups.get(key).is_some_and(Cgroup::is_live))
    });
    let due: Vec<(ContainerId, PodUid)> = due.take(ASKED).collect();
    for (id, uid) in due {
        world.beliefs.pod_asked(at, &id);
        world.ask(Question::Pod { uid });
    }
}

fn state_of(world: &mut World, ctx: EventContext, socket: &str, it: Stated) {
    join(world, ctx, &it);
    let Stated { id, role, sandbox, state, made_at, exit_code, described } = it;
    let Some(row) = world.beliefs.entry(ctx.at, &id) else { return };
    row.socket = Some(socket.to_owned());
    row.role = Some(role);
    row.described = described;
    row.sandbox = sandbox.or_else(|| row.sandbox.take());
    let is_same = row.listed.state == Some(state);
    let since = if is_same { row.listed.since } else { ctx.at };
    let exit_code = exit_code.or(row.listed.exit_code);
    row.listed = Listed { state: Some(state), since, exit_code, made_at: Some(made_at) };
}

/// Gives a container that the kernel has shown the names that no other evidence gave.
fn join(world: &mut World, ctx: EventContext, it: &Stated) {
    let Some(row) = world.containers.get(&it.id) else { return };
    let hint = Hint {
        role: if row.role.is_none() { Some(it.role) } else { None },
        sandbox: if row.sandbox.is_none() { it.sandbox.clone() } else { None },
        name: if row.name.is_none() { it.described.name.clone() } else { None },
        pod: if row.pod.is_none() { it.described.pod.clone() } else { None },
        ..Hint::new(it.id.clone(), NameSource::Cri)
    };
    if hint.says_anything() {
        identity::learn(world, ctx, &hint);
    }
}

/// Notes that a container's own program begins.
pub(crate) fn kernel_started(world: &mut World, at: Timestamp, id: &ContainerId) {
    let is_unsure = world.lists.is_gapped(List::Processes);
    if let Some(row) = believed(world, at, id).filter(|row| row.started_at.is_none()) {
        (row.started_at, row.is_unsure) = (Some(at), is_unsure);
        world.beliefs.note_reported(id, true);
        arm_statuses_of(world, at, id);
    }
}

/// Notes that a container's own program has ended. `code`: its exit code, if a hook saw the end.
pub(crate) fn kernel_ended(world: &mut World, at: Timestamp, id: &ContainerId, code: Option<u32>) {
    let name = world.containers.get(id).and_then(|row| row.name.clone());
    if let Some(row) = believed(world, at, id).filter(|row| row.ended.is_none()) {
        row.name = name;
        row.ended = Some(KernelEnd { at, code: if row.is_unsure { None } else { code } });
        world.beliefs.note_reported(id, false);
        arm_statuses_of(world, at, id);
    }
}

/// Returns the row of a container that the kernel shows, if a runtime may have it.
fn believed<'a>(world: &'a mut World, at: Timestamp, id: &ContainerId) -> Option<&'a mut Belief> {
    if world.beliefs.is_idle() {
        return None;
    }
    let of_pod = world.containers.get(id).is_some_and(|row| row.pod.is_some());
    if !of_pod && world.beliefs.get(id).is_none() {
        return None;
    }
    let socket = lookup::belief::socket_of(world, id);
    let row = world.beliefs.entry(at, id)?;
    row.socket = row.socket.take().or(socket);
    Some(row)
}

/// As `arm_statuses`, where nothing but this row has changed.
fn arm_statuses_of(world: &mut World, now: Timestamp, id: &ContainerId) {
    if let Some(due) = world.beliefs.get(id).and_then(|row| world.beliefs.wanted_of(row, now)) {
        world.timers.arm_earlier(timer::Name::Statuses, due);
    }
}

fn arm_statuses(world: &mut World, now: Timestamp) {
    if let Some(due) = world.beliefs.wanted(now) {
        world.timers.arm_earlier(timer::Name::Statuses, due);
    }
}

/// Asks the runtimes for their lists, if one may not have noticed something.
pub(crate) fn ask_statuses(world: &mut World, now: Timestamp) {
    let Some(due) = world.beliefs.wanted(now) else { return };
    if due <= now {
        world.beliefs.ask(now);
        world.ask(Question::Statuses);
        // The answer arms the timer for what it does not settle.
        world.timers.arm_earlier(timer::Name::Statuses, now + GRACE);
    } else {
        world.timers.arm_earlier(timer::Name::Statuses, due);
    }
}
