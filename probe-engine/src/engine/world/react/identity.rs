//! The identity of a container: its role, its sandbox, its pod and its name.
//!
//! A container and its sandbox may each become known by the other, and facts that were kept as a hint may
//! then name both. So these functions call each other.

use std::mem;

use super::{claim, pod, run, sandbox, start};
use crate::{
    engine::{
        queued_change::{Subject, Wait},
        world::{
            EventContext, World,
            argv::Made,
            lookup,
            table::{
                container::{Container, RoleQuestion, Run, State},
                hint::Hint,
                presence::Voucher,
            },
        },
    },
    model::{
        change::{ChangeKind, Question, StopReason},
        fact::{ContainerFound, NameSource, Origin, Role},
        id::{CgroupKey, ContainerId},
    },
};

/// A container's role is asked for at most this often: when its id is first seen, when its cgroup is made,
/// and when its program runs.
const ASKS: u32 = 3;

/// Adds a container or sandbox that evidence shows to exist.
pub(crate) fn container_seen(
    world: &mut World,
    ctx: EventContext,
    id: &ContainerId,
    pod: Option<u64>,
    cgroup: Option<CgroupKey>,
) {
    let is_new = !world.containers.contains_key(id);
    let is_sandbox = world.sandboxes.contains_key(id);
    let row = world.containers.rows.entry(id.clone()).or_insert_with(|| Container {
        id: id.clone(),
        role: is_sandbox.then_some(Role::Sandbox),
        name: None,
        sandbox: None,
        pod: None,
        cgroup: None,
        first_at: ctx.at,
        origin: ctx.origin,
        hides_programs: false,
        question: RoleQuestion::default(),
        run: Run::default(),
        killer: None,
        state: State::Created,
    });
    row.pod = row.pod.or(pod);
    row.cgroup = row.cgroup.or(cgroup);
    pod_of_sandbox(world, ctx, id);
    if is_new && let Some(hint) = world.hints.remove(id) {
        learn(world, ctx, &hint);
    }
    if cgroup.is_some() {
        world.sandboxes.vouch(id, Voucher::Cgroupfs, ctx.at);
    }
    if let Some(pod) = world.containers.get(id).and_then(|row| row.pod)
        && is_new
    {
        pod::ask_name(world, ctx, pod);
    }
    if is_new && world.containers.get(id).is_some_and(|row| row.role.is_none()) {
        // The role becomes known a moment later. If it is a sandbox, its `sandbox.created` belongs here in
        // the stream.
        if let Some(row) = world.containers.rows.get_mut(id) {
            row.question.is_awaited = true;
        }
        let subject = Subject { container: Some(id.clone()), ..Subject::default() };
        world.report(ctx, subject, Wait::Role(Role::Sandbox), ChangeKind::SandboxCreated);
    }
    ask_role(world, id);
}

/// Gives a sandbox and its pause container the same pod. Either of the two may have become known first.
fn pod_of_sandbox(world: &mut World, ctx: EventContext, id: &ContainerId) {
    let Some(row) = world.containers.rows.get_mut(id) else { return };
    let Some(sandbox) = world.sandboxes.get(id) else { return };
    let of_row = row.pod;
    let of_sandbox = sandbox.pod;
    row.pod = of_row.or(of_sandbox);
    world.sandboxes.set_pod(id, of_sandbox.or(of_row));
    if let (Some(one), Some(other)) = (of_row, of_sandbox) {
        pod::are_one(world, ctx, one, other);
    }
}

/// Asks for a container's role, unless that was asked often enough.
pub(crate) fn ask_role(world: &mut World, id: &ContainerId) {
    if let Some(row) = world.containers.rows.get_mut(id)
        && row.role.is_none()
        && !row.question.is_open
        && row.question.asked < ASKS
    {
        row.question.asked += 1;
        row.question.is_open = true;
        world.ask(Question::Container { id: id.clone() });
    }
}

/// Asks a new agent for the roles that the last one was asked for.
pub(crate) fn ask_roles_again(world: &mut World) {
    let mut lost = Vec::new();
    world.containers.rows.update(|id, row| {
        let is_lost = mem::take(&mut row.question.is_open);
        if is_lost {
            row.question.asked = row.question.asked.saturating_sub(1);
            lost.push(id.clone());
        }
        is_lost
    });
    lost.iter().for_each(|id| ask_role(world, id));
}

/// Adds a container that a runtime, shim or monitor is about to make or hold.
pub(crate) fn made(world: &mut World, ctx: EventContext, made: Made) {
    let Made { id, pod, name } = made;
    container_seen(world, ctx, &id, None, None);
    if pod.is_some() {
        let role = if name.as_deref() == Some("POD") { Role::Sandbox } else { Role::Container };
        let source = NameSource::Argv;
        learn(world, ctx, &Hint { at: ctx.at, role: Some(role), name, pod, ..Hint::new(id, source) });
    }
}

/// Takes in a source's answer about a container.
pub(crate) fn container_found(world: &mut World, ctx: EventContext, it: ContainerFound) {
    if let Some(row) = world.containers.rows.get_mut(&it.id) {
        row.question.is_open = false;
    }
    let ContainerFound { id, role, sandbox, name, pod, source, started } = it;
    let role = Some(role);
    let hint = Hint { at: ctx.at, role, sandbox, name, pod, started, ..Hint::new(id.clone(), source) };
    hinted(world, ctx, hint);
    answered(world, ctx, &id);
}

/// Notes that no source knows the container.
pub(crate) fn container_unknown(world: &mut World, ctx: EventContext, id: &ContainerId) {
    if let Some(row) = world.containers.rows.get_mut(id) {
        row.question.is_open = false;
    }
    infer_role(world, id);
    answered(world, ctx, id);
}

/// Completes the start of a sandbox that is over and may have waited for this answer.
fn answered(world: &mut World, ctx: EventContext, id: &ContainerId) {
    let sandbox = world.containers.get(id).and_then(|row| row.sandbox.clone());
    if let Some(sandbox) =
        sandbox.filter(|id| world.sandboxes.recall(id).is_some_and(|row| row.over_at().is_some()))
    {
        start::over(world, ctx, &sandbox);
    }
}

/// Infers the role of a container that ended before anybody could read what it is, so no later answer will
/// say it. If its pod had just one sandbox when its program began, it was a container of that sandbox: a
/// sandbox is known as one before its own program begins, by its CNI calls, its namespace or the name of
/// that program.
pub(crate) fn infer_role(world: &mut World, id: &ContainerId) {
    let Some(row) = world.containers.get(id) else { return };
    let State::Exited { at } = row.state else { return };
    let Some(began) = row.run.began.filter(|began| !began.listed) else { return };
    if row.role.is_some() || row.question.is_open {
        return;
    }
    let sandbox = row.sandbox.clone().or_else(|| lookup::pod::only_sandbox_at(world, row.pod?, began.at));
    let Some(sandbox) = sandbox else { return };
    let code = row.run.code;
    if let Some(row) = world.containers.rows.get_mut(id) {
        row.role = Some(Role::Container);
        row.sandbox = Some(sandbox);
    }
    run::began(world, id);
    run::ended(world, at, id, code);
}

/// Stores the facts of a hint about a container that is known to exist.
pub(crate) fn learn(world: &mut World, ctx: EventContext, hint: &Hint) {
    // An answer can come after the container has ended.
    let lives = world.containers.get(&hint.id).is_some_and(|row| !matches!(row.state, State::Exited { .. }))
        || world.sandboxes.get(&hint.id).is_some_and(|row| !row.is_stopped());
    let known = world.containers.get(&hint.id).and_then(|row| row.pod);
    let known = known.or_else(|| world.sandboxes.get(&hint.id).and_then(|row| row.pod));
    let pod = hint.pod.as_ref().and_then(|name| match known {
        Some(id) if world.pods.is(id, name) => {
            world.pods.learn(id, name, hint.source);
            let by_uid = name.uid.as_ref().and_then(|uid| world.pods.by_uid(uid)).unwrap_or(id);
            pod::are_one(world, ctx, by_uid, id);
            Some(by_uid)
        }
        Some(_) | None if lives => pod::lives(world, ctx, name, hint.source),
        Some(_) | None => world.pods.learn_if_known(name, hint.source),
    });
    let sandbox = hint.sandbox.as_ref().filter(|sandbox| **sandbox != hint.id);
    if world.containers.get(&hint.id).is_some_and(|row| {
        pod.is_some() && row.pod != pod
            || hint.name.is_some() && row.name != hint.name
            || hint.started.is_some() && row.run.dated != hint.started
            || sandbox.is_some() && row.sandbox.as_ref() != sandbox
    }) && let Some(row) = world.containers.rows.get_mut(&hint.id)
    {
        row.pod = pod.or(row.pod);
        row.name = hint.name.clone().or_else(|| row.name.take());
        row.run.dated = hint.started.or(row.run.dated);
        row.sandbox = sandbox.cloned().or_else(|| row.sandbox.take());
    }
    world.sandboxes.set_pod(&hint.id, pod);
    if matches!(hint.source, NameSource::Bundle | NameSource::Cri) {
        world.sandboxes.vouch(&hint.id, Voucher::Runtime, ctx.at);
    }
    if let Some(role) = hint.role {
        has_role(world, ctx, &hint.id, role);
    }
    if let Some(path) = &hint.netns_path {
        claim::by_path(world, ctx, &hint.id, path);
    }
}

/// Applies a container's role that became known.
pub(crate) fn has_role(world: &mut World, ctx: EventContext, id: &ContainerId, role: Role) {
    if world.containers.get(id).is_none_or(|row| row.role.is_some()) {
        return;
    }
    let Some(row) = world.containers.rows.get_mut(id) else { return };
    row.role = Some(role);
    let first = ctx.back_at(row.first_at);
    let pod = row.pod;
    let running = row.state;
    let code = row.run.code;
    let origin = row.origin;
    match role {
        Role::Sandbox => sandbox_seen(world, EventContext { origin, ..first }, id, pod),
        Role::Container => {
            sandbox_of(world, ctx, id);
            run::began(world, id);
            // The container may have ended before its role was answered.
            if let State::Exited { at } = running {
                run::ended(world, at, id, code);
            }
        }
    }
    match running {
        State::Created => {}
        State::Running { since, .. } => {
            sandbox::is_up(world, EventContext { origin, ..ctx.back_at(since) }, id)
        }
        State::Exited { .. } if lookup::sandbox::hides_programs(world, id) => {}
        State::Exited { at } => {
            sandbox::stop(world, EventContext { origin, ..ctx.back_at(at) }, id, StopReason::PauseExited)
        }
    }
}

/// Adds the sandbox of a container, which proves that it exists.
fn sandbox_of(world: &mut World, ctx: EventContext, id: &ContainerId) {
    let Some(row) = world.containers.get(id) else { return };
    let sandbox = row.sandbox.clone();
    let pod = row.pod;
    // If the agent saw the making of the pod's cgroup, the sandbox is not from before the agent. It existed
    // by the time of this container's first sign. Otherwise its age is not known.
    let is_young = pod.is_some_and(|pod| lookup::pod::is_seen_from_birth(world, pod));
    let first = if is_young { EventContext { origin: row.origin, ..ctx.back_at(row.first_at) } } else { ctx };
    let Some(sandbox) = sandbox else { return };
    if !world.sandboxes.contains_key(&sandbox) {
        sandbox_seen(world, first, &sandbox, pod);
    }
    world.sandboxes.vouch(&sandbox, Voucher::Runtime, ctx.at);
}

/// Gives the hint to the container that it names, or keeps it until that container is known.
pub(crate) fn hinted(world: &mut World, ctx: EventContext, hint: Hint) {
    if world.containers.contains_key(&hint.id) || world.sandboxes.contains_key(&hint.id) {
        learn(world, ctx, &hint);
        return;
    }
    world.schedule_reap(ctx.at);
    match world.hints.get_mut(&hint.id) {
        Some(known) => known.join(hint),
        None => {
            world.hints.insert(hint.id.clone(), hint);
        }
    }
}

/// Adds a sandbox that evidence shows to exist.
pub(crate) fn sandbox_seen(world: &mut World, ctx: EventContext, id: &ContainerId, pod: Option<u64>) {
    if let Some(row) = world.sandboxes.get_mut(id) {
        row.pod = row.pod.or(pod);
        return;
    }
    let container = world.containers.get(id);
    let tentative = container.is_some_and(|row| row.question.is_awaited);
    let first = container
        .map_or(ctx, |row| EventContext { origin: row.origin, ..ctx.back_at(row.first_at.min(ctx.at)) });
    let cgroup = container.is_some_and(|row| row.cgroup.is_some());
    let hides_programs = container.is_some_and(|row| row.hides_programs);
    world.containers.holds_sandbox(id, pod);
    let is_gapped = first.origin == Origin::Listed && world.lists.is_marked();
    let row = world.sandboxes.begin(first, id, is_gapped);
    row.pod = pod;
    row.hides_programs |= hides_programs;
    if cgroup {
        row.presence.vouch(Voucher::Cgroupfs, first.at);
    }
    if !tentative {
        world.report(first, lookup::sandbox::subject(world, id), Wait::Name, ChangeKind::SandboxCreated);
    }
    if let Some(hint) = world.hints.remove(id) {
        container_seen(world, ctx, id, pod, None);
        learn(world, ctx, &hint);
    }
}
