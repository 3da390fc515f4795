//! The runs of a sandbox's containers. Verdicts and starts need them for longer than the containers' own rows
//! are kept.

use super::{log_search, recovery, start};
use crate::{
    engine::world::{
        World, lookup,
        table::{
            container::{Hook, Listening},
            sandbox::{
                Group, MOMENTS,
                run::{ContainerRun, Ended, EndedBy},
            },
        },
    },
    model::{fact::Role, id::ContainerId, time::Timestamp},
};

/// At most this many containers of one sandbox are remembered. If there are more, the first are forgotten.
const CONTAINERS: usize = 64;

/// Returns the sandbox of a container: the one that the runtime names, or the only live one of its pod.
pub(crate) fn sandbox_for(world: &mut World, id: &ContainerId) -> Option<ContainerId> {
    let row = world.containers.get(id)?;
    if let Some(sandbox) = &row.sandbox {
        return Some(sandbox.clone());
    }
    let pod = row.pod?;
    let mut live = world.sandboxes.group(Group::Pod(pod)).filter(|sandbox| !sandbox.is_stopped());
    let only = live.next()?.id.clone();
    if live.next().is_some() {
        return None;
    }
    world.containers.lives_in(id, &only);
    Some(only)
}

/// Adds the run of a container that started. Its sandbox may become known only later.
pub(crate) fn began(world: &mut World, id: &ContainerId) {
    let Some(began) = world.containers.get(id).and_then(|row| row.run.began) else { return };
    recovery::pod_may_be_back(world, began.at);
    let Some(sandbox) = sandbox_for(world, id) else { return };
    let Some(container) = world.containers.get(id) else { return };
    let cgroup = container.cgroup.and_then(|key| world.cgroups.get(&key));
    let ran = ContainerRun {
        id: id.clone(),
        name: container.name.clone(),
        first_at: container.first_at.min(began.at),
        cgroup_at: cgroup.and_then(|row| row.created_at).filter(|at| *at <= began.at),
        started_at: began.at,
        listed: began.listed,
        listening: container.run.listening,
        hook: container.run.hook,
        ended: None,
        ended_by: None,
        parts: Vec::new(),
    };
    let expected = world
        .sandboxes
        .recall(&sandbox)
        .map(|row| lookup::start::expected_in(world, row).to_vec())
        .unwrap_or_default();
    let Some(row) = world.sandboxes.recall_mut(&sandbox) else { return };
    let work = &mut row.work;
    if let Some(known) = work.run_of(id) {
        known.name = ran.name.or_else(|| known.name.take());
        start::turns(world, &sandbox);
        return;
    }
    let goes_on = work.started_at.is_some() && work.is_continued_by(&ran, &expected);
    if work.containers.len() >= CONTAINERS {
        work.containers.remove(0);
    }
    work.containers.push(ran);
    if goes_on {
        start::goes_on(world, &sandbox);
    }
    start::ask_expected(world, &sandbox);
    log_search::ask_held_requests(world, &sandbox, began.at);
    log_search::ask_image_work(world, &sandbox, id);
    start::turns(world, &sandbox);
}

/// Notes that a container first listens on a socket.
pub(crate) fn listens(world: &mut World, id: &ContainerId, listening: Listening) {
    recovery::pod_may_be_back(world, listening.at);
    let Some(sandbox) = sandbox_for(world, id) else { return };
    if let Some(row) = world.sandboxes.recall_mut(&sandbox)
        && let Some(ran) = row.work.run_of(id)
    {
        ran.listening = Some(listening);
        start::listens(world, &sandbox);
    }
}

/// Notes that a program was executed into a container right after the container's start, or that that
/// program has ended.
pub(crate) fn hooked(world: &mut World, id: &ContainerId, hook: Hook) {
    let Some(sandbox) = sandbox_for(world, id) else { return };
    if let Some(ran) = world.sandboxes.recall_mut(&sandbox).and_then(|row| row.work.run_of(id)) {
        ran.hook = Some(hook);
    }
}

/// Ends the run of a container whose own program has ended.
pub(crate) fn ended(world: &mut World, at: Timestamp, id: &ContainerId, code: Option<u32>) {
    recovery::pod_may_be_back(world, at);
    let Some(sandbox) = sandbox_for(world, id) else { return };
    let container = world.containers.get(id);
    let run = container.map(|row| row.run).unwrap_or_default();
    let is_container = container.is_some_and(|row| row.role != Some(Role::Sandbox));
    let ended_by = match run.stopped_at {
        Some(stopped_at) => lookup::daemons::last_started(world, stopped_at)
            .filter(|daemon| stopped_at <= daemon.at + MOMENTS)
            .map(EndedBy::Daemon),
        None => container.and_then(|row| row.killer.clone()).map(EndedBy::Process),
    };
    let Some(row) = world.sandboxes.recall_mut(&sandbox) else { return };
    match row.work.run_of(id) {
        Some(ran) if ran.ended.is_none() => {
            ran.ended = Some(Ended { at, code, stopped_at: run.stopped_at, oom: run.oom });
            ran.ended_by = ended_by;
            log_search::await_pulls(world, at);
            start::turns(world, &sandbox);
        }
        Some(_) => {}
        None if is_container => row.work.tried_at = row.work.tried_at.max(Some(at)),
        None => {}
    }
}
