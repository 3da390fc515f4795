//! The daemons that clean up after pods, the runtimes and the kubelet: when they started, and their versions.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use probe_common::runtime::CRIO;

use super::process;
use crate::{
    engine::world::{
        World,
        daemon::{at_socket, is_kubelet, is_runtime, is_trusted},
        path::may_be_of_node,
        table::{process::Process, sandbox::LastStarted},
    },
    model::{
        change,
        fact::{List, RuntimeKind},
        recovery::{Daemon, Restart},
        time::Timestamp,
    },
};

/// How long a process must have run to be a daemon. One that was asked for its version, or that fails at
/// once, has not.
pub(crate) const RESIDENT: Duration = Duration::from_secs(10);

/// The process that serves a runtime's socket, by its name. None: it is none of those that are known, or may
/// be one of several.
pub(crate) fn serving(world: &World, socket: &str) -> Option<change::Process> {
    let mut all = named(world, |comm| may_serve(comm, socket));
    let row = all.next()?;
    let is_only = all.next().is_none();
    is_only.then(|| change::Process { key: row.key, parent: row.parent, comm: row.comm.clone() })
}

/// Whether a program of this name can be the one that serves a runtime's socket.
fn may_serve(comm: &str, socket: &str) -> bool {
    match at_socket(socket) {
        Some(row) => comm == row.cri_server.unwrap_or(row.daemon),
        None => is_runtime(comm),
    }
}

/// Whether a known runtime serves this socket itself, and no server beside it, as cri-dockerd does for
/// Docker.
pub(crate) fn is_runtime_itself(socket: &str) -> bool {
    at_socket(socket).is_some_and(|row| row.cri_server.is_none())
}

/// When the latest process started of those that may serve a runtime's socket.
pub(crate) fn serving_since(world: &World, socket: &str) -> Option<Timestamp> {
    latest(named(world, |comm| may_serve(comm, socket)))
}

/// Since when the daemons that clean up have all been running: the runtimes that are used and, where the node
/// needs one, the kubelet. None: one of them does not run. A runtime that is installed but not used has
/// nothing to clean up, so it does not count.
pub(crate) fn cleaners_since(world: &World) -> Option<Timestamp> {
    let used = world.records.used_runtimes();
    let runtime = latest(named(world, |comm| used.contains(&comm)))?;
    match latest(kubelets(world)) {
        Some(kubelet) => Some(runtime.max(kubelet)),
        None if world.records.kubelet_expected => None,
        None => Some(runtime),
    }
}

/// When the earliest of the used runtimes that run now started. A sandbox whose making began before that time
/// is not being made any more.
pub(crate) fn runtimes_since(world: &World) -> Option<Timestamp> {
    let used = world.records.used_runtimes();
    named(world, |comm| used.contains(&comm)).map(|row| Timestamp(row.key.start)).min()
}

/// Whether CRI-O is a runtime of this node. That holds also while CRI-O restarts, if it ran a moment ago or
/// its sandboxes are on record.
pub(crate) fn has_crio(world: &World) -> bool {
    let ended = world.processes.ended_daemons().map(|(_, row)| row);
    world.records.of_kind(RuntimeKind::Crio).any(|row| !row.sandboxes.is_empty())
        || world
            .processes
            .daemons()
            .chain(ended)
            .any(|row| row.comm == CRIO.daemon && !process::is_contained(world, row))
}

/// When a runtime last started or ended, while one runs. What ran for a moment only was asked for its
/// version, say.
pub(crate) fn runtimes_turned_at(world: &World) -> Option<Timestamp> {
    let started = latest(runtimes(world))?;
    let ended = world.processes.ended_daemons().filter(|(at, row)| {
        is_runtime(&row.comm)
            && !process::is_contained(world, row)
            && at.since(Timestamp(row.key.start)) >= RESIDENT
    });
    Some(ended.map(|(at, _)| at).fold(started, Timestamp::max))
}

/// The runtimes that run now.
pub(crate) fn runtimes(world: &World) -> impl Iterator<Item = &Process> {
    named(world, is_runtime)
}

/// The kubelets that run now.
pub(crate) fn kubelets(world: &World) -> impl Iterator<Item = &Process> {
    named(world, is_kubelet)
}

/// When each runtime and kubelet that runs started, by the name of its program.
pub(crate) fn since(world: &World) -> BTreeMap<&str, Timestamp> {
    let mut since = BTreeMap::new();
    for row in runtimes(world).chain(kubelets(world)) {
        let at = Timestamp(row.key.start);
        since.entry(row.comm.as_str()).and_modify(|it: &mut Timestamp| *it = at.max(*it)).or_insert(at);
    }
    since
}

/// The runtime or kubelet that started last by then, of those that run.
pub(crate) fn last_started(world: &World, by: Timestamp) -> Option<LastStarted> {
    let all = runtimes(world).chain(kubelets(world)).filter(|row| Timestamp(row.key.start) <= by);
    let last = all.max_by(|one, other| (one.key.start, &one.comm).cmp(&(other.key.start, &other.comm)))?;
    // k3s starts its containerd itself: the two are one start.
    let row = kubelets(world).find(|row| row.key == last.parent).unwrap_or(last);
    Some(LastStarted { comm: row.comm.clone(), at: Timestamp(row.key.start) })
}

/// Whether a kubelet runs. Only the kubelet removes the cgroups of pods.
pub(crate) fn has_kubelet(world: &World) -> bool {
    kubelets(world).next().is_some()
}

/// Since when no kubelet has run though the node needs one: the node has pods, and shows that a kubelet made
/// them. None where the agent has not listed the node, as in a replay of single facts.
pub(crate) fn kubelet_missing_since(world: &World) -> Option<Timestamp> {
    let began = world.node.began_at?;
    let is_listed = world.records.networks.is_some() && !world.lists.partial.contains_key(&List::Processes);
    if !is_listed || has_kubelet(world) {
        return None;
    }
    // A cgroup without processes may be left over from a pod that is gone.
    let of_kubelet =
        world.cgroups.values().any(|row| row.is_live() && row.is_pod() && row.populated != Some(false))
            || world.records.kubelet_expected && !world.sandboxes.is_empty();
    if !of_kubelet {
        return None;
    }
    let ended = world.processes.ended_daemons().filter(|(_, row)| is_kubelet(&row.comm));
    Some(ended.map(|(at, _)| at).max().map_or(began, |ended| ended.max(began)))
}

/// The runtimes and kubelets that ended while an agent watched, of which none has run since. A runtime is
/// left out if another one serves the pods, or no kubelet runs.
pub(crate) fn down(world: &World) -> impl Iterator<Item = &Restart> {
    let restarts = &world.boot.recovery.restarts;
    let mut all: Vec<&Restart> = Vec::new();
    // The last one of each program counts.
    for it in restarts.open.iter().chain(restarts.past.iter().rev()) {
        if !all.iter().any(|known| known.comm == it.comm) {
            all.push(it);
        }
    }
    let used = world.records.used_runtimes();
    let is_served = named(world, |comm| used.contains(&comm)).next().is_some();
    all.retain(|it| match it.daemon {
        _ if it.started.is_some() || named(world, |comm| comm == it.comm).next().is_some() => false,
        Daemon::Runtime => has_kubelet(world) && !is_served && used.contains(&it.comm.as_str()),
        Daemon::Kubelet => !has_kubelet(world),
    });
    all.into_iter()
}

/// The executables of the daemons of this name that ended a moment ago or are down.
pub(crate) fn ended<'a>(world: &'a World, comm: &str) -> impl Iterator<Item = &'a str> {
    let ended = world.processes.ended_daemons().map(|(_, row)| row);
    let ended = ended.filter(move |row| row.comm == comm && is_of_node(world, row));
    let down = down(world).filter(move |it| it.comm == comm).map(|it| it.path.as_str());
    ended.map(|row| row.program.filename.as_str()).chain(down)
}

/// The node's own daemons that run now and have one of these names.
pub(crate) fn named(world: &World, is_named: impl Fn(&str) -> bool) -> impl Iterator<Item = &Process> {
    world.processes.daemons().filter(move |row| is_named(&row.comm) && is_of_node(world, row))
}

/// Whether a process with the name of a daemon is the node's own.
pub(crate) fn is_of_node(world: &World, row: &Process) -> bool {
    !process::is_contained(world, row) || is_contained_kubelet(world, row)
}

/// Whether a process in a container is the node's kubelet, as in RKE1. The process must be root's and in the
/// node's own pid and network namespaces, and its container may be of the node.
pub(crate) fn is_contained_kubelet(world: &World, row: &Process) -> bool {
    is_kubelet(&row.comm)
        && is_trusted(row.program.class)
        && world.cgroups.get(&row.cgroup).is_some_and(|cgroup| may_be_of_node(&cgroup.path))
        && row.program.ns_pid == row.key.pid
        && row.netns == world.node.host_netns
}

/// The runtimes that are used, and the kubelets, which were started by then, by name and version.
pub(crate) fn with_versions(world: &World, by: Timestamp) -> [Option<String>; 2] {
    let used = world.records.used_runtimes();
    let runtimes = named(world, |comm| used.contains(&comm));
    [joined_versions(world, runtimes, by), joined_versions(world, kubelets(world), by)]
}

/// Whether a daemon of this name serves the node's pods: it is a kubelet, or a runtime that is used.
pub(crate) fn serves_pods(world: &World, comm: &str) -> bool {
    is_kubelet(comm) || world.records.used_runtimes().contains(&comm)
}

/// The daemons that were started by then, by name and version.
fn joined_versions<'a>(
    world: &World,
    daemons: impl Iterator<Item = &'a Process>,
    by: Timestamp,
) -> Option<String> {
    let started = daemons.filter(|row| row.executed_at.unwrap_or(Timestamp(row.key.start)) <= by);
    let names: BTreeSet<String> = started.map(|row| world.records.with_version(row)).collect();
    let names: Vec<String> = names.into_iter().collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// When the latest of these daemons started.
fn latest<'a>(daemons: impl Iterator<Item = &'a Process>) -> Option<Timestamp> {
    daemons.map(|row| Timestamp(row.key.start)).max()
}

#[cfg(test)]
mod tests {
    use probe_common::event::class;

    use super::{Process, Timestamp, World, last_started};
    use crate::{engine::world::table::process::Program, model::id::TaskKey};

    /// A k3s that starts also starts its containerd, a moment later. One that is a service of its own does
    /// not belong to the kubelet.
    #[test]
    fn a_runtime_that_the_kubelet_starts_is_no_start_of_its_own() {
        for (parent, expected) in [(10, "k3s-server"), (1, "containerd")] {
            let mut world = World::default();
            for (pid, comm, parent) in [(10, "k3s-server", 1), (11, "containerd", parent)] {
                let key = TaskKey::new(pid, u64::from(pid));
                let parent = TaskKey::new(parent, u64::from(parent));
                let program = Program { class: class::CALLER, ..Program::default() };
                let comm = comm.to_owned();
                world.processes.insert(Process { key, parent, comm, program, ..Process::default() });
            }
            let last = last_started(&world, Timestamp(20)).expect("both run");
            assert_eq!(last.comm, expected);
        }
    }
}
