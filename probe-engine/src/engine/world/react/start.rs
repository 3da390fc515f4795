//! Decides when a pod's cgroup is read during the pod's start, and when the start is complete.

use super::log_search;
use crate::{
    engine::{
        queued_change::{Subject, Wait},
        timer,
        world::{
            EventContext, World,
            lookup::{self, phase},
            table::{self, sandbox::Sandbox},
        },
    },
    model::{
        change::{ChangeKind, Question},
        fact::{Origin, PressureRead},
        id::{ContainerId, PodUid},
        time::Timestamp,
    },
};

/// Has the cgroup of a starting pod read, since a phase may have ended.
pub(crate) fn phase_turns(world: &mut World, pod: Option<u64>) {
    if let Some(pod) = pod.filter(|pod| world.pods.get(pod).is_some_and(|row| !row.start.is_complete)) {
        ask_pressure(world, pod);
    }
}

/// Has the pod's cgroup read, if its counters are those of this start.
pub(crate) fn ask_pressure(world: &mut World, pod: u64) {
    let Some(row) = world.pods.get(&pod).filter(|row| row.start.made_at.is_some() && row.is_present()) else {
        return;
    };
    let Some(cgroup) = row
        .cgroups
        .iter()
        .find_map(|key| world.cgroups.get(key).filter(|row| row.is_live() && row.created_at.is_some()))
    else {
        return;
    };
    let question = Question::Pressure { cgroup: cgroup.key, path: cgroup.path.clone() };
    world.ask(question);
}

/// Takes in the counters of a pod's cgroup.
pub(crate) fn pressure_read(world: &mut World, ctx: EventContext, it: PressureRead) {
    let pod = world.cgroups.get(&it.cgroup).and_then(|row| world.pods.by_uid(row.pod.as_ref()?));
    let Some(pod) = pod else { return };
    world.pods.counted(pod, ctx.at, it.pressure);
    let listening: Vec<ContainerId> = lookup::pod::sandboxes(world, pod)
        .into_iter()
        .filter(|row| row.containers().iter().any(|ran| ran.listening.is_some()))
        .map(|row| row.id.clone())
        .collect();
    listening.iter().for_each(|id| listens(world, id));
}

/// Arms the timer for a start that may be complete after a while, since a container of the sandbox began or
/// ended.
pub(crate) fn turns(world: &mut World, id: &ContainerId) {
    let due = world.sandboxes.recall(id).filter(|row| row.work.started_at.is_none());
    if let Some(due) = due.and_then(|row| phase::settles_at(world, row)) {
        world.timers.arm_earlier(timer::Name::Starts, due);
    }
}

/// Takes in the containers that the pod will have, as the kubelet's record names them.
pub(crate) fn containers_expected(world: &mut World, uid: &PodUid, names: Vec<String>) {
    let Some(pod) = world.pods.by_uid(uid) else { return };
    world.pods.expect(pod, names);
    let open: Vec<ContainerId> = lookup::pod::sandboxes(world, pod)
        .into_iter()
        .filter(|row| row.work.started_at.is_none())
        .map(|row| row.id.clone())
        .collect();
    open.iter().for_each(|id| turns(world, id));
}

/// Asks for the containers that the pod of this sandbox will have, while they are not known and the pod is
/// starting.
pub(crate) fn ask_expected(world: &mut World, sandbox: &ContainerId) {
    let Some(row) = world.sandboxes.recall(sandbox).filter(|row| row.work.started_at.is_none()) else {
        return;
    };
    let pod = world.pods.of_sandbox(row).and_then(|pod| world.pods.get(&pod));
    if let Some(pod) = pod.filter(|pod| pod.start.expected.is_empty())
        && let Some(uid) = pod.named.uid.clone()
    {
        world.ask(Question::Expected { uid });
    }
}

/// Asks a new agent about the starts that go on, unless the last one was answered.
pub(crate) fn ask_again(world: &mut World, now: Timestamp) {
    let open =
        world.sandboxes.all_of(table::sandbox::Group::Starting).filter(|row| !row.containers().is_empty());
    let open: Vec<ContainerId> = open.map(|row| row.id.clone()).collect();
    for sandbox in open {
        ask_expected(world, &sandbox);
        log_search::ask_held_requests(world, &sandbox, now);
        let ran = world.sandboxes.recall(&sandbox).map_or(&[][..], Sandbox::containers);
        let unexplained = ran.iter().filter(|ran| ran.parts.is_empty()).map(|ran| ran.id.clone());
        for id in unexplained.collect::<Vec<_>>() {
            log_search::ask_image_work(world, &sandbox, &id);
        }
    }
}

/// Reports the starts that are complete by now.
pub(crate) fn due(world: &mut World, now: Timestamp) {
    let open = world.sandboxes.all_of(table::sandbox::Group::Starting);
    let mut due: Vec<(Timestamp, ContainerId)> =
        open.filter_map(|row| Some((phase::settles_at(world, row)?, row.id.clone()))).collect();
    due.sort_unstable();
    for (at, id) in due {
        if at > now {
            world.timers.arm_earlier(timer::Name::Starts, at);
            break;
        }
        started_in(world, EventContext { at, origin: Origin::Agent, late: false }, &id);
    }
}

/// Completes the start of a sandbox that is over, since no further container can come. One that has come may
/// still be without an answer to what it is.
pub(crate) fn over(world: &mut World, ctx: EventContext, id: &ContainerId) {
    let Some(row) = world
        .sandboxes
        .recall(id)
        .filter(|row| row.work.started_at.is_none() && !row.containers().is_empty())
    else {
        return;
    };
    if lookup::start::has_unanswered(world, row) {
        turns(world, id);
    } else {
        started_in(world, EventContext { origin: Origin::Agent, ..ctx }, id);
    }
}

fn started_in(world: &mut World, ctx: EventContext, id: &ContainerId) {
    world.sandboxes.start_reported(id, ctx.at);
    let Some(start) = phase::of(world, id, ctx.at) else { return };
    let pod = world.sandboxes.recall(id).and_then(|row| world.pods.of_sandbox(row));
    if let Some(pod) = pod {
        world.pods.set_started(pod, true);
    }
    world.starts.push(start.clone());
    let subject = Subject { pod, ..lookup::sandbox::subject(world, id) };
    world.report(ctx, subject, Wait::Name, ChangeKind::PodStarted(Box::new(start)));
}

/// Shows a container's socket in the start's row, if the start was reported as complete.
pub(crate) fn listens(world: &mut World, id: &ContainerId) {
    if world.starts.of(id).is_some() {
        let listening =
            world.sandboxes.recall(id).map(|row| phase::listening(world, row)).unwrap_or_default();
        world.starts.listens(id, listening);
    }
}

/// Continues a start that counted as complete, since a container came that belongs to it.
pub(crate) fn goes_on(world: &mut World, id: &ContainerId) {
    world.sandboxes.start_revised(id);
    world.starts.forget(id);
    let pod = world.sandboxes.recall(id).and_then(|row| world.pods.of_sandbox(row));
    if let Some(pod) = pod {
        world.pods.set_started(pod, false);
    }
}
