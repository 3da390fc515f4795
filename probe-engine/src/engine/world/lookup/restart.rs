//! The pods that a restart holds up: those whose start was under way at the daemon's end or began before it
//! was ready again, and those whose sandboxes the new process had replaced.

use std::time::Duration;

use super::pod;
use crate::{
    engine::world::{
        World,
        table::sandbox::{ContainerRun, Group, LastStarted, Sandbox},
    },
    model::{
        fact::Origin,
        recovery::{FirstPod, HeldPod, Pod, Restart},
        time::Timestamp,
    },
};

/// A start that has lasted for longer at the daemon's end waits for something else: an image that does not
/// exist, say.
pub(crate) const YOUNG: Duration = Duration::from_secs(5 * 60);

/// The restart that ended with this start of a daemon.
pub(crate) fn ended_by<'a>(world: &'a World, daemon: &LastStarted) -> Option<&'a Restart> {
    let restarts = &world.boot.recovery.restarts;
    restarts
        .open
        .iter()
        .chain(&restarts.past)
        .find(|it| it.comm == daemon.comm && it.process.is_some_and(|key| Timestamp(key.start) == daemon.at))
}

/// The pods whose start was under way at the daemon's end, or began before it was ready again.
pub(crate) fn held(world: &World, restart: &Restart, now: Timestamp) -> Vec<HeldPod> {
    let zero = restart.zero();
    let until = restart.ready().map_or(now, |ready| ready.at);
    let young = zero.saturating_sub(YOUNG)..=until.max(zero);
    world
        .pods
        .values()
        .filter_map(|row| {
            let sign = row.start.made_at.unwrap_or(row.first_at);
            if !row.is_present() || row.origin == Origin::Listed || !young.contains(&sign) {
                return None;
            }
            let pod = world.boot.pod_named(&row.named)?;
            let sandboxes = pod::sandboxes(world, row.id);
            let runs: Vec<&ContainerRun> =
                sandboxes.iter().flat_map(|it| it.containers()).filter(|ran| !ran.listed).collect();
            let expected = &row.start.expected;
            let was_through = if expected.is_empty() {
                runs.iter().any(|ran| ran.started_at <= zero)
            } else {
                expected.iter().all(|name| {
                    runs.iter().any(|ran| ran.started_at <= zero && ran.name.as_ref() == Some(name))
                })
            };
            let since = zero.max(sign);
            let until = first_after(runs.into_iter(), since);
            (!was_through).then_some(HeldPod { pod, replaced: false, since, until })
        })
        .collect()
}

/// The pods whose sandboxes were stopped with nothing wrong in them after the new process had started, and
/// that got others.
pub(crate) fn replaced(world: &World, restart: &Restart) -> Vec<HeldPod> {
    let Some(process) = restart.process else { return Vec::new() };
    world
        .sandboxes
        .all()
        .filter_map(|row| {
            let (by, since) = row.replaced_by()?;
            let uid = row.reported.pod.uid.clone()?;
            let is_its = by.comm == restart.comm && by.at == Timestamp(process.start);
            let mut later =
                world.sandboxes.all_of(Group::Uid(uid)).filter(|it| it.first_at > since).peekable();
            if !is_its || later.peek().is_none() {
                return None;
            }
            let until = first_after(later.flat_map(Sandbox::containers).filter(|ran| !ran.listed), since);
            Some(HeldPod { pod: world.boot.pod_named(&row.reported.pod)?, replaced: true, since, until })
        })
        .collect()
}

/// The first pod of which a container started after the daemon.
pub(crate) fn first_pod(world: &World, restart: &Restart) -> Option<FirstPod> {
    let started = restart.started?.at;
    let runs = world.sandboxes.all().flat_map(|row| row.containers().iter().map(move |ran| (row, ran)));
    let later = runs.filter(|(_, ran)| !ran.listed && ran.started_at >= started);
    let (row, ran) = later.min_by_key(|(row, ran)| (ran.started_at, &row.id))?;
    let pod = row.pod.and_then(|pod| world.pods.get(&pod)).map_or(&row.reported.pod, |pod| &pod.named);
    Some(FirstPod { pod: world.boot.pod_named(pod)?, at: ran.started_at })
}

/// Whether the pod is still on the node.
pub(crate) fn is_here(world: &World, pod: &Pod) -> bool {
    world
        .pods
        .values()
        .any(|row| row.is_present() && world.boot.pod_named(&row.named).is_some_and(|it| it.is(pod)))
}

/// When the first of these containers started after then.
fn first_after<'a>(runs: impl Iterator<Item = &'a ContainerRun>, since: Timestamp) -> Option<Timestamp> {
    runs.map(|ran| ran.started_at).filter(|at| *at > since).min()
}
