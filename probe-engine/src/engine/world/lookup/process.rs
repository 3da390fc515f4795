//! Whether a process is in a container or belongs to a runtime.

use probe_common::{
    event::class,
    runtime::{CONTAINERD, Form, Helper, Runtime},
};

use crate::{
    engine::world::{
        World, argv,
        daemon::runtime_named,
        table::process::{Process, State},
    },
    model::{
        change,
        fact::{SIGKILL, SIGTERM},
        id::TaskKey,
        time::Timestamp,
    },
};

/// At most this many ancestors or descendants of a process are looked at.
const ANCESTORS: usize = 8;

/// When a runtime was first seen to send it a fatal signal.
pub(crate) fn stopped_at(world: &World, key: TaskKey) -> Option<Timestamp> {
    let heard = world.processes.signals.get(&key).into_iter().flatten();
    heard.filter(|heard| !heard.oom && is_of_runtime(world, &heard.sender)).map(|heard| heard.at).min()
}

/// The process that sent the last of the signals that ask a process to end, if it belongs to no runtime. None
/// also if the OOM killer chose the process. A program may catch SIGTERM, and then end by itself.
pub(crate) fn killer(world: &World, key: TaskKey) -> Option<change::Process> {
    let heard = world.processes.signals.get(&key)?;
    if heard.iter().any(|heard| heard.oom) {
        return None;
    }
    let asked = heard.iter().filter(|heard| matches!(heard.signal, SIGKILL | SIGTERM));
    let sender = &asked.max_by_key(|heard| heard.at)?.sender;
    (!is_of_runtime(world, sender)).then(|| sender.clone())
}

/// Whether a process is in a container: by its cgroup, or by the hook that reported its program.
pub(crate) fn is_contained(world: &World, row: &Process) -> bool {
    row.program.class & class::IN_CONTAINER != 0 || world.cgroups.is_in_container(row.cgroup)
}

/// The runtime that this process is or works for. None: that is not known.
pub(crate) fn runtime_of(world: &World, process: TaskKey) -> Option<&'static Runtime> {
    let comm = &world.processes.get(process)?.comm;
    match Helper::of(comm) {
        Some(helper) => (helper.form == Some(Form::Shim)).then_some(&CONTAINERD),
        None => runtime_named(comm),
    }
}

/// Returns the latest program that a process has started and that still runs.
pub(crate) fn latest_child(world: &World, parent: TaskKey) -> Option<change::Process> {
    let running = world.processes.values().filter(|row| row.state == State::Running);
    let started = running.filter(|row| row.parent == parent && row.key != parent);
    let row = started.max_by_key(|row| (row.executed_at, row.key))?;
    Some(change::Process { key: row.key, comm: row.comm.clone(), parent: row.parent })
}

/// Whether a process belongs to a runtime: it or one of its ancestors makes, monitors or ends containers. A
/// process in a container does not.
pub(crate) fn is_of_runtime(world: &World, it: &change::Process) -> bool {
    let known = world.processes.get(it.key);
    if known.is_some_and(|row| is_contained(world, row)) {
        return false;
    }
    if argv::ends_containers(&it.comm) {
        return true;
    }
    let mut next = known.or_else(|| world.processes.get(it.parent));
    for _ in 0..ANCESTORS {
        let Some(row) = next else { return false };
        if argv::ends_containers(&row.comm) {
            return true;
        }
        next = world.processes.get(row.parent);
    }
    false
}
