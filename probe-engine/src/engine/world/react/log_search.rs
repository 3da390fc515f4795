//! Asks for a search through the node's logs: what a slow phase of a start was spent on, whether the kubelet
//! held requests back, and whether a pull is under way while a sandbox waits for a container. The log of a
//! runtime does not name the container for which it pulls.

use std::time::Duration;

use crate::{
    engine::{
        timer,
        world::{
            World,
            lookup::{self, phase},
            table::sandbox::Sandbox,
        },
    },
    model::{
        change::Question,
        id::ContainerId,
        phase::{Kind, Phase},
        time::Timestamp,
    },
};

/// A phase that took less is not asked about, since each answer is a search through the node's logs.
pub(crate) const LONG: Duration = Duration::from_secs(1);

/// A sandbox that waits for a container for this long is asked about. It is longer than the kubelet's longest
/// back-off, after which a pull may begin, and shorter than the limits after which the wait is a finding.
pub(crate) const WAITED: Duration = Duration::from_secs(5 * 60 + 30);

/// How often it is asked about again.
const AGAIN: Duration = Duration::from_secs(3 * 60);

/// A wait of more than this is a problem, whatever is pulled.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60 * 60);

/// Returns when the first sign of this container was, if that was seen.
pub(crate) fn first_sign(row: &Sandbox, id: &ContainerId) -> Option<Timestamp> {
    row.containers().iter().find(|ran| ran.id == *id && !ran.listed).map(|ran| ran.first_at)
}

/// Returns the latest time up to `at` after which an `image` phase can begin: the sandbox was up, or a
/// container began or ended.
pub(crate) fn idle_since(row: &Sandbox, at: Timestamp) -> Option<Timestamp> {
    let ran = row.containers().iter().flat_map(|ran| [Some(ran.started_at), ran.ended.map(|end| end.at)]);
    ran.chain([row.up_since]).flatten().filter(|before| *before <= at).max()
}

/// Asks for the kubelet's log if the sandbox of a start's first container was long in coming.
pub(crate) fn ask_held_requests(world: &mut World, sandbox: &ContainerId, now: Timestamp) {
    let row = world.sandboxes.recall(sandbox).filter(|row| row.work.started_at.is_none());
    if row.is_none_or(|row| row.containers().len() != 1 || !phase::may_be_late(world, row, LONG)) {
        return;
    }
    let Some(start) = phase::of(world, sandbox, now) else { return };
    if let Some(&Phase { begin: from, end: until, .. }) =
        start.phases.first().filter(|it| it.kind == Kind::Prepare && it.took() >= LONG)
    {
        world.ask(Question::HeldRequests { sandbox: sandbox.clone(), from, until });
    }
}

/// Asks for the logs if the first sign of a start's container was long in coming.
pub(crate) fn ask_image_work(world: &mut World, sandbox: &ContainerId, id: &ContainerId) {
    let Some(row) = world.sandboxes.recall(sandbox).filter(|row| row.work.started_at.is_none()) else {
        return;
    };
    let Some(until) = first_sign(row, id) else { return };
    let Some(from) = idle_since(row, until).filter(|from| until.since(*from) >= LONG) else { return };
    world.ask(Question::ImageWork { container: id.clone(), from, until });
}

/// Arms the timer for a sandbox that waits for a container from now on.
pub(crate) fn await_pulls(world: &mut World, at: Timestamp) {
    world.timers.arm_earlier(timer::Name::Pulls, at + WAITED);
}

/// Asks about the sandboxes that have waited for a container for long.
pub(crate) fn ask_pulls(world: &mut World, now: Timestamp) {
    if !lookup::daemons::has_kubelet(world) {
        return;
    }
    let mut asked = Vec::new();
    let mut next = None;
    for row in world.sandboxes.values() {
        let Some(since) = row.idle_since().filter(|since| now < *since + MAX_WAIT) else { continue };
        let again = row.work.pulls_asked_at.map_or(Timestamp::ZERO, |at| at + AGAIN);
        let mut due = again.max(since + WAITED);
        if due <= now {
            asked.push((row.id.clone(), since));
            due = now + AGAIN;
        }
        next = Some(next.map_or(due, |next: Timestamp| next.min(due)));
    }
    for (container, from) in asked {
        world.sandboxes.pulls_asked(&container, now);
        world.ask(Question::ImageWork { container, from, until: now });
    }
    if let Some(next) = next {
        world.timers.arm_earlier(timer::Name::Pulls, next);
    }
}
