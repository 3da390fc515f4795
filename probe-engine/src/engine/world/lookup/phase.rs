//! Splits the time of a pod's start into phases. Each phase begins where the one before it ends, so the
//! phases add up to the whole time. `docs/phases.md` names the events at which each phase begins and ends.
//!
//! **Invariant:** phases are computed from the world's rows alone, and change nothing. Whatever the rows
//! contain, the phases follow each other from the beginning to the end, with no gap and no overlap, and none
//! is negative.

mod builder;
mod cause;
mod cut;
pub(crate) mod held;
pub(crate) mod image;
mod member;

use std::{cmp::Ordering, collections::BTreeMap, time::Duration};

use builder::PhaseBuilder;
use member::Members;

use crate::{
    engine::world::{World, lookup, table::sandbox::Sandbox},
    model::{
        change::ContainerRef,
        fact::Origin,
        id::ContainerId,
        phase::{Kind, Listening, Start},
        time::Timestamp,
    },
};

/// A start whose containers are known is reported this long after the last of them began.
pub(crate) const SETTLED: Duration = Duration::from_secs(1);

/// If a container is known to be missing, it is waited for this long after the last sign of any container. It
/// is the time after which Kubernetes reports that a Deployment makes no progress
/// (`progressDeadlineSeconds`).
pub(crate) const WAIT: Duration = Duration::from_secs(10 * 60);

/// If the pod's containers are not known, its start counts as complete once no new container has come for
/// this long.
pub(crate) const QUIET: Duration = Duration::from_secs(30);

/// The start of the pod in this sandbox, as known at `now`. None if all of it was there before the agent.
pub(crate) fn of(world: &World, sandbox: &ContainerId, now: Timestamp) -> Option<Start> {
    let row = world.sandboxes.recall(sandbox)?;
    let pod = world.pods.of_sandbox(row);
    let same = pod.map(|pod| lookup::pod::sandboxes(world, pod)).unwrap_or_default();
    among(world, row, same.into_iter(), now)
}

/// The starts that are not over and not reported yet, as known at `now`. A sandbox that came to nothing
/// before a later try of the same pod is part of that try's start.
pub(crate) fn open(world: &World, now: Timestamp) -> Vec<Start> {
    let mut by_pod: BTreeMap<u64, Vec<&Sandbox>> = BTreeMap::new();
    for row in world.sandboxes.all() {
        if let Some(pod) = world.pods.of_sandbox(row) {
            by_pod.entry(pod).or_default().push(row);
        }
    }
    let open = world.sandboxes.all().filter(|row| row.work.started_at.is_none() && !row.is_stopped());
    open.filter_map(|row| {
        let same = world.pods.of_sandbox(row).and_then(|pod| by_pod.get(&pod)).map_or(&[][..], Vec::as_slice);
        if row.containers().is_empty()
            && same.iter().any(|it| earlier(sign(row), &row.id, sign(it), &it.id).is_lt())
        {
            return None;
        }
        among(world, row, same.iter().copied(), now)
    })
    .collect()
}

/// The start in this sandbox. `same` are all sandboxes of its pod, with this one.
fn among<'a>(
    world: &World,
    row: &Sandbox,
    same: impl Iterator<Item = &'a Sandbox>,
    now: Timestamp,
) -> Option<Start> {
    let Members { parts, known, missing } = Members::of(world, row);
    let was_there = matches!(row.origin, Origin::Listed | Origin::Cri);
    if was_there && parts.iter().all(|part| part.listed) {
        return None;
    }
    let pod = world.pods.of_sandbox(row);
    let mut before: Vec<&Sandbox> =
        same.filter(|it| pod.is_some_and(|pod| is_before(world, it, row, pod))).collect();
    before.sort_by(|one, other| earlier(sign(one), &one.id, sign(other), &other.id));
    let rebuilt = before.iter().any(|it| !it.containers().is_empty());
    let failed = if rebuilt { Vec::new() } else { before };

    let made = pod.map_or(Made::Unseen, |pod| made(world, pod));
    let first = failed.first().map_or(sign(row), |it| sign(it));
    let begin = match made {
        Made::At(at) if !rebuilt => at.min(first),
        Made::At(_) | Made::Never | Made::Unseen => first,
    };
    let reported = row.work.started_at.is_some();
    // A start that waits for further containers lasts until now.
    let is_long_enough =
        missing.is_empty() && (reported || known || lookup::start::announced_at(world, row).is_none());
    let last = if is_long_enough { parts.last().map(|part| part.started_at) } else { None };
    let mut cut = PhaseBuilder::new(begin, last.unwrap_or(now));
    if let Some(phase) = cut.push_until(first, Kind::Prepare, None) {
        phase.parts = held::parts(&row.work.requests_held, phase.begin, phase.end);
    }
    if !failed.is_empty() {
        cut.retries(world, &failed, sign(row));
    }
    cut.sandbox(world, row, parts.first().copied(), now);
    cut.containers(row.containers(), &parts);

    let mut start = Start {
        pod: pod
            .and_then(|pod| world.pods.get(&pod))
            .map_or_else(|| row.reported.pod.clone(), |pod| pod.named.clone()),
        sandbox: row.id.clone(),
        begin,
        end: cut.end,
        phases: cut.phases,
        plugins: lookup::program::plugins_of(world, &row.id),
        listening: listening(world, row),
        complete: reported && missing.is_empty(),
        containers_known: known,
        missing,
        revised: row.work.is_revised,
        rebuilt,
        listed: was_there || made == Made::Unseen && !rebuilt || parts.iter().any(|part| part.listed),
        suspended: world.node.woke_at > begin,
        waits: last.is_none() && !reported && !row.is_stopped(),
    };
    cause::attribute(world, pod, row, &mut start);
    Some(start)
}

/// When the containers of a start first listened, in the order in which their programs began.
pub(crate) fn listening(world: &World, row: &Sandbox) -> Vec<Listening> {
    let pod = world.pods.of_sandbox(row);
    Members::of(world, row)
        .parts
        .iter()
        .filter_map(|part| {
            if part.listed {
                return None;
            }
            let first = part.listening?;
            let pressure = pod.map(|pod| cause::counted(world, pod, part.started_at, first.at));
            Some(Listening {
                container: ContainerRef::new(part.id.clone(), part.name.clone()),
                begin: part.started_at,
                end: first.at,
                socket: first.socket,
                gapped: cause::is_gapped(world, part.started_at, first.at),
                suspended: world.node.woke_at > part.started_at,
                pressure: pressure.unwrap_or_default(),
            })
        })
        .collect()
}

/// When a start is reported if nothing more happens. If the sandbox is over: at once, or, if it is not
/// answered yet what one of its containers was, [`QUIET`] later. If the pod's containers are known and have
/// begun: [`SETTLED`] after the last one began. If one is missing: [`WAIT`] after the last sign. If the
/// containers are not known: [`QUIET`] after the last one began, or, if none runs, after the last one ended,
/// because that one may have been an init container.
pub(crate) fn settles_at(world: &World, row: &Sandbox) -> Option<Timestamp> {
    let Members { parts, known, missing } = Members::of(world, row);
    let last = parts.last()?.started_at;
    if let Some(over) = row.over_at() {
        let wait = if lookup::start::has_unanswered(world, row) { QUIET } else { Duration::ZERO };
        return Some(over.max(last) + wait);
    }
    if known && missing.is_empty() {
        return Some(last + SETTLED);
    }
    let runs = row.containers().iter().any(|ran| ran.ended.is_none());
    let ended = row.containers().iter().filter_map(|ran| ran.ended).map(|ended| ended.at).max();
    let base = if runs && !known { last } else { last.max(ended.unwrap_or(last)) };
    let announced = lookup::start::announced_at(world, row).unwrap_or(base);
    Some(base.max(announced) + if known { WAIT } else { QUIET })
}

/// Whether another sandbox of the same pod began earlier, within the pod's present life. A static pod keeps
/// its UID, so it can have several lives.
fn is_before(world: &World, it: &Sandbox, row: &Sandbox, pod: u64) -> bool {
    it.id != row.id
        && world.pods.get(&pod).is_some_and(|pod| it.first_at >= pod.first_at)
        && earlier(sign(it), &it.id, sign(row), &row.id).is_lt()
}

/// Whether at least this time passed between the making of the pod's cgroup and the sandbox's first sign.
/// This costs less than to find the phases.
pub(crate) fn may_be_late(world: &World, row: &Sandbox, least: Duration) -> bool {
    let made = world.pods.of_sandbox(row).map(|pod| made(world, pod));
    matches!(made, Some(Made::At(at)) if sign(row) >= at + least)
}

/// The first sign of a sandbox. Its network namespace may be made before anything names the sandbox.
fn sign(row: &Sandbox) -> Timestamp {
    row.network.netns_created_at.map_or(row.first_at, |at| at.min(row.first_at))
}

fn earlier(at: Timestamp, id: &ContainerId, other: Timestamp, other_id: &ContainerId) -> Ordering {
    (at, id).cmp(&(other, other_id))
}

/// When a pod's cgroup was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    At(Timestamp),
    /// Pods have no cgroup on this node, or this one needed none.
    Never,
    /// The pod has a cgroup. It was made before the agent started, or its making was missed.
    Unseen,
}

fn made(world: &World, pod: u64) -> Made {
    let Some(row) = world.pods.get(&pod) else { return Made::Unseen };
    if let Some(at) = row.start.made_at {
        return Made::At(at);
    }
    if row.cgroups.is_empty() && row.origin != Origin::Listed { Made::Never } else { Made::Unseen }
}

/// The start in this sandbox: as it was reported, or else as it is now.
pub(crate) fn start_of(world: &World, sandbox: &ContainerId, now: Timestamp) -> Option<Start> {
    world.starts.of(sandbox).cloned().or_else(|| of(world, sandbox, now))
}
