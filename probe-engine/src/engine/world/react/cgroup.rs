//! Cgroup directories are made, used and removed.

use super::{container, identity, pod, sandbox, start};
use crate::{
    engine::{
        queued_change::Subject,
        world::{EventContext, World, lookup, process_of},
    },
    model::{
        change::ChangeKind,
        fact::{self, NameSource, PodName, Task},
        id::{CgroupKey, TaskKey},
    },
};

/// Adds a cgroup directory that was made.
pub(crate) fn created(world: &mut World, ctx: EventContext, it: fact::Cgroup, by: &Task) {
    if world.cgroups.get(&it.key).is_some_and(|row| row.created_at.is_some() || !row.is_live()) {
        return;
    }
    let key = it.key;
    let Some(row) = world.cgroups.row(it) else { return };
    row.created_at = Some(ctx.at);
    let nested = row.nested;
    shows(world, ctx, key);
    if nested {
        return;
    }
    pod_made(world, ctx, key);
    let subject = subject(world, key);
    let wait = lookup::context::wait_of(world, &subject);
    world.report(ctx, subject, wait, ChangeKind::CgroupCreated { by: process_of(by) });
}

/// Ends a cgroup whose directory was removed.
pub(crate) fn removed(world: &mut World, ctx: EventContext, it: fact::Cgroup, by: &Task) {
    let key = it.key;
    if world.cgroups.leave_crowd(key) {
        return;
    }
    let Some(row) = world.cgroups.row(it) else { return };
    let Some(removed) = row.state.step(ctx.at) else { return };
    row.state = removed;
    row.populated = Some(false);
    let nested = row.nested;
    world.schedule_reap(ctx.at);
    if nested {
        return;
    }
    let subject = subject(world, key);
    let wait = lookup::context::wait_of(world, &subject);
    world.report(ctx, subject, wait, ChangeKind::CgroupRemoved { by: process_of(by) });
    gone(world, ctx, key);
}

/// Ends a cgroup whose object the kernel has freed. Nothing can refer to the cgroup any more, so the row can
/// be forgotten.
pub(crate) fn released(world: &mut World, ctx: EventContext, it: fact::Cgroup) {
    let key = it.key;
    if world.cgroups.leave_crowd(key) {
        return;
    }
    let Some(row) = world.cgroups.row(it) else { return };
    if let Some(removed) = row.state.step(ctx.at) {
        row.state = removed;
        let nested = row.nested;
        world.schedule_reap(ctx.at);
        if !nested {
            gone(world, ctx, key);
        }
    }
}

/// Moves a process into the cgroup.
pub(crate) fn entered(world: &mut World, ctx: EventContext, it: fact::Cgroup, member: TaskKey) {
    let key = it.key;
    let known = world.cgroups.contains_key(&key);
    let Some(row) = world.cgroups.row(it) else {
        world.processes.enters(member, key);
        return;
    };
    if !row.is_live() {
        return;
    }
    row.populated = Some(true);
    world.processes.enters(member, key);
    if !known {
        shows(world, ctx, key);
    }
}

/// Notes that the last process left the cgroup and all cgroups below it.
pub(crate) fn emptied(world: &mut World, ctx: EventContext, it: fact::Cgroup) {
    let key = it.key;
    let Some(row) = world.cgroups.row(it) else { return };
    if row.emptied_at >= Some(ctx.at) {
        return;
    }
    row.emptied_at = Some(ctx.at);
    row.populated = Some(false);
    // The kernel reports each level up to the root. Only the directories of pods and containers matter.
    let own = row.is_container().then(|| row.container.clone()).flatten();
    if own.is_none() && !row.is_pod() {
        return;
    }
    let subject = subject(world, key);
    let wait = lookup::context::wait_of(world, &subject);
    world.report(ctx, subject, wait, ChangeKind::CgroupEmptied);
    if let Some(id) = own {
        container::emptied(world, ctx, &id);
    }
}

/// Adds a cgroup that a listing found.
pub(crate) fn found(world: &mut World, ctx: EventContext, it: fact::Cgroup, populated: bool) {
    let key = it.key;
    let Some(row) = world.cgroups.row(it) else { return };
    if !row.is_live() {
        return;
    }
    row.found_at = Some(ctx.at);
    if row.emptied_at.is_none_or(|emptied| emptied < ctx.at) {
        row.populated = Some(populated);
    }
    shows(world, ctx, key);
}

/// Adds the cgroup that the listing of a process names, perhaps before the listing of cgroups has it.
pub(crate) fn named(world: &mut World, ctx: EventContext, key: CgroupKey, path: &str) {
    if key != CgroupKey::default() && !path.is_empty() && !world.cgroups.contains_key(&key) {
        let it = fact::Cgroup { key, path: path.to_owned(), level: 0, nested: false };
        found(world, ctx, it, true);
    }
}

/// Adds the pod and the container in the path of a cgroup that exists.
fn shows(world: &mut World, ctx: EventContext, key: CgroupKey) {
    let Some(row) = world.cgroups.get(&key).filter(|row| !row.nested) else { return };
    let uid = row.pod.clone();
    let id = row.container.clone();
    let is_pod = row.is_pod();
    let pod = uid.and_then(|uid| {
        let name = PodName { uid: Some(uid), ..PodName::default() };
        pod::lives(world, ctx, &name, NameSource::CgroupPath)
    });
    if let Some(pod) = pod {
        world.pods.has_cgroup(pod, if is_pod { key } else { CgroupKey::default() });
    }
    if let Some(id) = id {
        identity::container_seen(world, ctx, &id, pod, Some(key));
    }
}

/// Notes that a pod's own cgroup, or a cgroup in it, was made.
fn pod_made(world: &mut World, ctx: EventContext, key: CgroupKey) {
    let Some(row) = world.cgroups.get(&key) else { return };
    let is_pod = row.is_pod();
    let uid = row.pod.clone();
    let Some(id) = uid.and_then(|uid| world.pods.by_uid(&uid)) else { return };
    if is_pod {
        world.pods.made(id, ctx.at);
    } else {
        start::phase_turns(world, Some(id));
    }
}

/// Ends the container or the pod whose cgroup was removed, if nothing else shows it.
pub(crate) fn gone(world: &mut World, ctx: EventContext, key: CgroupKey) {
    let Some(row) = world.cgroups.get(&key) else { return };
    let own = world.cgroups.own_container(key);
    let pod = row.pod.clone();
    let is_pod = row.is_pod();
    if let Some(id) = own {
        world.cgroups.drop_crowd(&id);
        container::cgroup_gone(world, ctx, &id);
    }
    let pod = pod.and_then(|uid| world.pods.by_uid(&uid));
    if let Some(pod) = pod {
        if is_pod {
            world.pods.lost_cgroup(pod, key);
            sandbox::stop_unvouched(world, ctx, pod);
        }
        pod::may_be_gone(world, ctx, pod);
    }
}

fn subject(world: &World, key: CgroupKey) -> Subject {
    let row = world.cgroups.get(&key);
    Subject {
        cgroup: Some(key),
        container: row.and_then(|row| row.container.clone()),
        pod: row.and_then(|row| row.pod.as_ref()).and_then(|uid| world.pods.by_uid(uid)),
        ..Subject::default()
    }
}
