//! Takes in what a search through the node's logs found. Starts that were reported already are divided as
//! well.

use super::{
    log_search::{first_sign, idle_since},
    recovery, run,
};
use crate::{
    engine::world::{World, lookup::phase},
    model::{
        fact::{HeldRequests, ImageWork, Span},
        phase::{Kind, WaitsFor},
        time::Timestamp,
    },
};

/// Keeps when the kubelet held requests back, as its log shows.
pub(crate) fn held_requests(world: &mut World, it: HeldRequests) {
    world.sandboxes.waited(&it.sandbox, it.held.clone());
    world.starts.divide(&it.sandbox, |phase| {
        let parts = phase::held::parts(&it.held, phase.begin, phase.end);
        if phase.kind == Kind::Prepare && !parts.is_empty() {
            phase.parts = parts;
        }
    });
}

/// Notes that a pull is under way if it lasted until the question.
fn pulls_found(world: &mut World, asked_at: Timestamp, it: &ImageWork) {
    let is_under_way = it.other_pulls.iter().any(|pull| pull.ended >= asked_at);
    // The kubelet says that it does not wait for a pull.
    if is_under_way && it.refused.is_empty() {
        world.sandboxes.pulls(&it.container, asked_at);
    }
}

/// Keeps what the logs say about the time before a container's first sign.
pub(crate) fn image_work(world: &mut World, it: &ImageWork) {
    if let Some(row) = world.sandboxes.recall(&it.container) {
        if let Some(asked_at) = row.work.pulls_asked_at {
            pulls_found(world, asked_at, it);
        }
        return;
    }
    let Some(sandbox) = run::sandbox_for(world, &it.container) else { return };
    let Some(row) = world.sandboxes.recall(&sandbox) else { return };
    let Some(until) = first_sign(row, &it.container) else { return };
    let Some(from) = idle_since(row, until) else { return };
    let parts = phase::image::parts(it, from, until);
    world.sandboxes.run_divided(&sandbox, &it.container, parts.clone());
    for part in &parts {
        if matches!(part.waits, Some(WaitsFor::Services { .. })) {
            recovery::services_unread(world, Span { began: part.begin, ended: part.end() });
        }
    }
    world.starts.divide(&sandbox, |phase| {
        let is_its = phase.container.as_ref().is_some_and(|of| of.id == it.container);
        if is_its && phase.kind == Kind::Image {
            phase.parts = phase::image::within(&parts, phase.begin, phase.end);
        }
    });
}
