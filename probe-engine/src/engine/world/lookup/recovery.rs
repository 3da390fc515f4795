//! Which pods run and which are back, for the report on the node's recovery.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    engine::{
        boot::WINDOW,
        world::{
            World,
            table::{
                self,
                call::Call,
                container::State,
                recovery::{INTERFACES, PODS},
                sandbox::{ContainerRun, Sandbox},
            },
        },
    },
    model::{
        fact::Origin,
        id::{ContainerId, PodUid},
        recovery::{Pod, RecoveredPod, RunningPods, Source, TimedSource},
        time::Timestamp,
    },
};

/// An agent has listed the node by this time after its start.
const FIRST_LISTING: Duration = Duration::from_secs(60);

/// A pod that ended at most this long before the node may have ended with it.
const GONE_WITH: Duration = Duration::from_secs(30);

/// Whether the recovery is over, so that nothing that happens now belongs to it. Where the node was listed
/// and no pod is one of the recovery's, as for an agent that was installed long after the boot, none will be.
pub(crate) fn is_recovered(world: &World, at: Timestamp) -> bool {
    let recovery = &world.boot.recovery;
    at > Timestamp::ZERO + WINDOW
        && (recovery.closed
            || recovery.pods.is_empty()
                && world.node.began_at.is_some_and(|began| at > began + FIRST_LISTING))
        && world.boot.awaited(at).is_empty()
}

/// The pod of a sandbox in which a container runs or ran, and when its first container started.
pub(crate) fn back(world: &World, sandbox: &Sandbox) -> Option<(RecoveredPod, Timestamp)> {
    let row = sandbox.pod.and_then(|pod| world.pods.get(&pod));
    let mut named = row.map(|row| row.named.clone()).unwrap_or_default();
    named.learn(&sandbox.reported.pod);
    let pod = world.boot.pod_named(&named)?;
    let mut runs: Vec<(&ContainerRun, TimedSource)> =
        sandbox.containers().iter().filter_map(|ran| Some((ran, mark_of(world, ran)?))).collect();
    runs.sort_by_key(|(_, mark)| mark.at);
    let mut own = runs.as_slice();
    let first = own.first()?.1.at;
    while let Some(((ran, _), rest)) = own.split_first()
        && let Some((next, started)) = rest.first()
    {
        let ended_well = ran.ended.is_some_and(|end| end.code == Some(0) && end.at <= started.at);
        let again = ran.name.is_some() && ran.name == next.name;
        if !ended_well || again {
            break;
        }
        own = rest;
    }
    let mark = own.first()?.1;
    let listened = own.iter().filter_map(|(ran, _)| ran.listening).map(|it| it.at).min();
    let interfaces = interfaces_of(world, sandbox).into_iter().collect();
    let pod = Pod { listens: listened.is_some(), interfaces, ..pod };
    Some((RecoveredPod { pod, mark, listened }, first))
}

/// When a container's program was executed. For a container that was found running: the date in the runtime's
/// files, or, without one, the time at which the runtime forked the process, which is not later. For a
/// container that was found and has ended: not known.
fn mark_of(world: &World, ran: &ContainerRun) -> Option<TimedSource> {
    let hooked = TimedSource::hooked(ran.started_at);
    let Some(row) = world.containers.get(&ran.id) else { return Some(hooked) };
    match row.state {
        State::Running { process, listed: true, .. } => {
            let forked = TimedSource { at: Timestamp(process.start), source: Source::ProcStart };
            let dated = row.run.dated.filter(|at| *at >= forked.at);
            Some(dated.map_or(forked, |at| TimedSource { at, source: Source::FileTime }))
        }
        State::Running { listed: false, .. } => Some(hooked),
        State::Exited { .. } | State::Created => (row.origin != Origin::Listed).then_some(hooked),
    }
}

/// Whether this ADD is one of the recovery's: any while pods come back, and later only that of a pod that is
/// still awaited. A pod that went to another node meanwhile is awaited for ever.
pub(crate) fn is_try(world: &World, id: &ContainerId, call: &Call) -> bool {
    if call.at <= Timestamp::ZERO + WINDOW {
        return true;
    }
    let mut named = call.pod.clone();
    if let Some(row) = world.sandboxes.get(id) {
        named.learn(&row.reported.pod);
        row.pod.and_then(|pod| world.pods.get(&pod)).into_iter().for_each(|pod| named.learn(&pod.named));
    }
    world.boot.is_awaited(&named, call.at)
}

/// The sandbox's interfaces: those that a plugin made, and those that have an address, whoever made them.
fn interfaces_of(world: &World, row: &Sandbox) -> BTreeSet<String> {
    let added = world.attachments.of(&row.id).filter(|it| it.is_added()).map(|it| &it.ifname);
    let netns = row.network.netns.and_then(|key| world.netns.get(key));
    let addressed = netns.into_iter().flat_map(|netns| &netns.addresses).map(|it| &it.ifname);
    let names: BTreeSet<&String> = added.chain(addressed).filter(|name| *name != "lo").collect();
    names.into_iter().take(INTERFACES).cloned().collect()
}

fn containers_of(world: &World, pod: u64) -> impl Iterator<Item = &table::container::Container> {
    world.containers.group(table::container::Group::Pod(pod))
}

/// The pods of which a container runs now, or ran until a moment ago.
pub(crate) fn running_pods(world: &World, now: Timestamp) -> RunningPods {
    let since = now.saturating_sub(GONE_WITH);
    let mut pods: Vec<Pod> = Vec::new();
    for row in world.pods.values() {
        let stands = world.sandboxes.group(table::sandbox::Group::Pod(row.id)).any(|it| match it.state {
            table::sandbox::State::Ready { .. } => true,
            table::sandbox::State::Created => false,
            table::sandbox::State::Stopped { at, .. } => at >= since,
            table::sandbox::State::Remembered { .. } => false,
        });
        let Some(mut pod) = world.boot.pod_named(&row.named) else { continue };
        if !stands && !containers_of(world, row.id).any(table::container::Container::is_running) {
            continue;
        }
        let mut interfaces = BTreeSet::new();
        for it in world
            .sandboxes
            .group(table::sandbox::Group::Pod(row.id))
            .filter(|it| it.over_at().is_none_or(|at| at >= since))
        {
            interfaces.extend(interfaces_of(world, it));
        }
        pod.interfaces = interfaces.into_iter().collect();
        // If an earlier run of the agent saw the container listen, only the recovery's pods still show that.
        let mut back = world.boot.recovery.pods.iter();
        pod.listens = containers_of(world, row.id).any(|it| it.run.listening.is_some())
            || back.any(|it| it.pod.listens && it.pod.is(&pod));
        pods.push(pod);
    }
    let pods_left_out = only_once(&mut pods);
    RunningPods { pods, pods_left_out }
}

/// Keeps each pod once, in the order of their names, and as many as there is room for. Gives the number of
/// the others.
fn only_once(pods: &mut Vec<Pod>) -> u32 {
    fn name(pod: &Pod) -> (&Option<String>, &Option<String>, &Option<PodUid>) {
        (&pod.namespace, &pod.name, &pod.uid)
    }
    pods.sort_by(|one, other| name(one).cmp(&name(other)));
    pods.dedup_by(|later, first| later.is(first));
    // One without a name may be one of those with a name.
    let known: BTreeSet<PodUid> =
        pods.iter().filter(|pod| pod.name.is_some()).filter_map(|pod| pod.uid.clone()).collect();
    pods.retain(|pod| pod.name.is_some() || pod.uid.as_ref().is_none_or(|uid| !known.contains(uid)));
    let left_out = pods.len().saturating_sub(PODS);
    pods.truncate(PODS);
    u32::try_from(left_out).unwrap_or(u32::MAX)
}
