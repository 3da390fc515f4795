//! Asks what a slow `image` phase was spent on, and keeps the answer with the container.

use std::time::Duration;

use super::{World, phase, sandbox::Sandbox};
use crate::model::{change::Question, fact::ImageWork, id::ContainerId, phase::Kind, time::Timestamp};

/// A phase that took less is not asked about, since each answer is a search through the node's logs.
pub(in crate::engine) const LONG: Duration = Duration::from_secs(1);

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

    /// The logs were searched.
    pub(super) fn image_work(&mut self, it: &ImageWork) {
        let Some(sandbox) = self.sandbox_for(&it.container) else { return };
        let Some(row) = self.sandboxes.recall(&sandbox) else { return };
        let Some(until) = first_sign(row, &it.container) else { return };
        let Some(from) = idle_since(row, until) else { return };
        let parts = phase::image::parts(it, from, until);
        self.run_divided(&sandbox, &it.container, parts.clone());
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
