//! Asks what a slow `image` phase was spent on, and keeps the answer with the container. Also asks whether a pull is under
//! way while a sandbox waits for a container: the log of a runtime does not tell for whom it pulls.

use std::time::Duration;

use super::{World, phase, sandbox::Sandbox};
use crate::{
    engine::timer,
    model::{change::Question, fact::ImageWork, id::ContainerId, phase::Kind, time::Timestamp},
};

/// A phase that took less is not asked about, since each answer is a search through the node's logs.
pub(in crate::engine) const LONG: Duration = Duration::from_secs(1);
/// A sandbox that waits for a container for so long is asked about. It is longer than the kubelet's longest back-off, after
/// which a pull may begin, and shorter than the limits after which the wait is a finding.
pub(in crate::engine) const WAITED: Duration = Duration::from_secs(5 * 60 + 30);
/// How often it is asked about again.
const AGAIN: Duration = Duration::from_secs(3 * 60);
/// A wait of more than this is a problem, whatever is pulled.
pub(in crate::engine) const LONGEST: Duration = Duration::from_secs(60 * 60);

impl World {
    /// A container of a start began. If its first sign was long in coming, the logs are searched for the reason.
    pub(super) fn ask_image_work(&mut self, sandbox: &ContainerId, id: &ContainerId) {
        let Some(row) = self.sandboxes.recall(sandbox).filter(|row| row.work.started_at.is_none()) else {
            return;
        };
        let Some(until) = first_sign(row, id) else { return };
        let Some(from) = idle_since(row, until).filter(|from| until.since(*from) >= LONG) else { return };
        self.ask(Question::ImageWork { container: id.clone(), from, until });
    }

    /// A sandbox waits for a container from now on.
    pub(super) fn await_pulls(&mut self, at: Timestamp) {
        self.timers.arm_earlier(timer::Name::Pulls, at + WAITED);
    }

    /// Asks about the sandboxes that have waited for a container for long.
    pub(super) fn ask_pulls(&mut self, now: Timestamp) {
        if !self.has_kubelet() {
            return;
        }
        let (mut asked, mut next) = (Vec::new(), None);
        for row in self.sandboxes.values() {
            let Some(since) = row.idle_since().filter(|since| now < *since + LONGEST) else { continue };
            let again = row.work.pulls_asked_at.map_or(Timestamp::ZERO, |at| at + AGAIN);
            let mut due = again.max(since + WAITED);
            if due <= now {
                asked.push((row.id.clone(), since));
                due = now + AGAIN;
            }
            next = Some(next.map_or(due, |next: Timestamp| next.min(due)));
        }
        for (container, from) in asked {
            self.sandboxes.pulls_asked(&container, now);
            self.ask(Question::ImageWork { container, from, until: now });
        }
        if let Some(next) = next {
            self.timers.arm_earlier(timer::Name::Pulls, next);
        }
    }

    /// A pull is under way if it lasted until the question.
    fn pulls_found(&mut self, asked_at: Timestamp, it: &ImageWork) {
        let is_under_way = it.other_pulls.iter().any(|pull| pull.ended >= asked_at);
        // The kubelet says that it does not wait for a pull.
        if is_under_way && it.refused.is_empty() {
            self.sandboxes.pulls(&it.container, asked_at);
        }
    }

    /// The logs were searched.
    pub(super) fn image_work(&mut self, it: &ImageWork) {
        if let Some(row) = self.sandboxes.recall(&it.container) {
            if let Some(asked_at) = row.work.pulls_asked_at {
                self.pulls_found(asked_at, it);
            }
            return;
        }
        let Some(sandbox) = self.sandbox_for(&it.container) else { return };
        let Some(row) = self.sandboxes.recall(&sandbox) else { return };
        let Some(until) = first_sign(row, &it.container) else { return };
        let Some(from) = idle_since(row, until) else { return };
        let parts = phase::image::parts(it, from, until);
        self.sandboxes.run_divided(&sandbox, &it.container, parts.clone());
        self.starts.divide(&sandbox, |phase| {
            let is_its = phase.container.as_ref().is_some_and(|of| of.id == it.container);
            if is_its && phase.kind == Kind::Image {
                phase.parts = phase::image::within(&parts, phase.begin, phase.end);
            }
        });
    }
}

fn first_sign(row: &Sandbox, id: &ContainerId) -> Option<Timestamp> {
    row.containers().iter().find(|ran| ran.id == *id && !ran.listed).map(|ran| ran.first_at)
}

/// When the last thing before this time was there that an `image` phase follows: the sandbox itself, or a container that
/// began or ended.
fn idle_since(row: &Sandbox, at: Timestamp) -> Option<Timestamp> {
    let ran = row.containers().iter().flat_map(|ran| [Some(ran.started_at), ran.ended.map(|end| end.at)]);
    ran.chain([row.up_since]).flatten().filter(|before| *before <= at).max()
}
