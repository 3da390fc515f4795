//! Splits the time from a start's beginning to its end into phases, in order.

use super::image;
use crate::{
    engine::world::{
        World,
        table::{
            attachment::Runs,
            sandbox::{ContainerRun, Sandbox},
        },
    },
    model::{
        change::ContainerRef,
        fact::Pressure,
        phase::{Cause, Kind, Phase},
        time::Timestamp,
    },
};

/// **Invariant:** the phases follow each other without a gap from the beginning to `at`. `at` is never later
/// than `end`.
pub(super) struct PhaseBuilder {
    at: Timestamp,
    pub(super) end: Timestamp,
    pub(super) phases: Vec<Phase>,
}

/// The ADDs of one plugin for one interface.
struct Add {
    kind: Kind,
    begin: Timestamp,
    end: Timestamp,
    cause: Cause,
}

impl PhaseBuilder {
    pub(super) fn new(begin: Timestamp, end: Timestamp) -> Self {
        Self { at: begin, end: end.max(begin), phases: Vec::new() }
    }

    /// Adds a phase of this kind from `at` to `to`. No phase is added for an empty time, except for a plugin,
    /// because the plugin was called all the same.
    pub(super) fn push_until(
        &mut self,
        to: Timestamp,
        kind: Kind,
        container: Option<&ContainerRun>,
    ) -> Option<&mut Phase> {
        let to = to.min(self.end).max(self.at);
        if to == self.at && !matches!(kind, Kind::Cni { .. }) {
            return None;
        }
        let container = container.map(|ran| ContainerRef::new(ran.id.clone(), ran.name.clone()));
        let begin = self.at;
        let cause = Cause::default();
        self.at = to;
        let parts = Vec::new();
        let pressure = Pressure::default();
        self.phases.push(Phase { kind, container, begin, end: to, gapped: false, cause, pressure, parts });
        self.phases.last_mut()
    }

    /// Adds the phase of the sandboxes that came to nothing. It ends at the first sign of the sandbox that
    /// succeeded.
    pub(super) fn retries(&mut self, world: &World, failed: &[&Sandbox], sign: Timestamp) {
        let Some(phase) = self.push_until(sign, Kind::Retry, None) else { return };
        phase.cause.sandboxes = u32::try_from(failed.len()).unwrap_or(u32::MAX);
        let runs = failed.iter().flat_map(|row| world.attachments.of(&row.id)).flat_map(|row| &row.plugins);
        for plugin in runs {
            let earlier = plugin.failures().saturating_sub(plugin.add.failed);
            phase.cause.adds = phase.cause.adds.saturating_add(plugin.add.begun).saturating_add(earlier);
            phase.cause.failed = phase.cause.failed.saturating_add(plugin.failures());
            phase.cause.wasted = phase.cause.wasted.saturating_add(plugin.wasted());
        }
    }

    /// Adds the phases from the sandbox's first sign until the sandbox is up: its network and its pause
    /// container, in either order.
    pub(super) fn sandbox(
        &mut self,
        world: &World,
        row: &Sandbox,
        next: Option<&ContainerRun>,
        now: Timestamp,
    ) {
        let adds = adds(world, row, next, now);
        let mut before = Kind::Netns;
        for Add { kind, begin, end, cause } in adds {
            self.push_until(begin, before, None);
            before = Kind::Between;
            if let Some(phase) = self.push_until(end, kind, None) {
                phase.cause = cause;
            }
        }
        match (row.up_since, next) {
            (Some(up), None) => self.push_until(up, Kind::Pause, None),
            (Some(up), Some(next)) if up < next.started_at => {
                self.push_until(up.min(next.first_at), Kind::Pause, None)
            }
            // The sandbox has no pause container.
            (Some(_) | None, Some(_)) => None,
            (None, None) => self.push_until(self.end, Kind::Pause, None),
        };
    }

    /// Adds the phases of each container. They end when the container's program runs, or, for an init
    /// container, when that program has ended.
    pub(super) fn containers(&mut self, all: &[ContainerRun], parts: &[&ContainerRun]) {
        for (place, part) in parts.iter().enumerate() {
            let cgroup = part.cgroup_at.unwrap_or(part.started_at);
            if let Some(phase) = self.push_until(part.first_at, Kind::Image, Some(part)) {
                phase.parts = image::within(&part.parts, phase.begin, phase.end);
            }
            self.push_until(cgroup, Kind::Runtime, Some(part));
            self.push_until(part.started_at, Kind::Cgroup, Some(part));
            let later = parts.get(place + 1).map(|next| next.first_at);
            self.hook(part, later);
            if let Some((ended, runs)) = later.and_then(|next| init(all, part, next))
                && let Some(phase) = self.push_until(ended, Kind::Init, Some(part))
            {
                phase.cause.runs = runs;
            }
        }
        // If the start is not complete, the rest of the time is spent waiting for a further container.
        self.push_until(self.end, Kind::Image, None);
    }

    /// Adds the phase of the program that was executed into a container right after its start, if the next
    /// container came only after that program ended.
    fn hook(&mut self, part: &ContainerRun, next: Option<Timestamp>) {
        let Some(hook) = part.hook else { return };
        let limit = next.unwrap_or(self.end);
        match hook.ended_at {
            Some(ended) if ended <= limit => self.push_until(ended, Kind::PostStart, Some(part)),
            None if next.is_none() => self.push_until(limit, Kind::PostStart, Some(part)),
            Some(_) | None => None,
        };
    }
}

/// When an init container was done, and how often it had run. It counts as one if all its runs ended before
/// the first sign of the next container, and the last run is not known to have failed.
fn init(all: &[ContainerRun], part: &ContainerRun, next: Timestamp) -> Option<(Timestamp, u32)> {
    let before = all
        .iter()
        .filter(|ran| ran.id == part.id || part.name.is_some() && ran.name == part.name)
        .filter(|ran| ran.started_at <= next);
    let mut runs = 0_u32;
    let mut last = None;
    for ran in before {
        let ended = ran.ended.filter(|ended| ended.at <= next)?;
        runs = runs.saturating_add(1);
        last = last.max(Some((ended.at, ended.code)));
    }
    let (at, code) = last?;
    (code.unwrap_or(0) == 0).then_some((at, runs))
}

fn cause_of(runs: &Runs, now: Timestamp) -> Cause {
    let last = if runs.is_open() { now.since(runs.last_at) } else { runs.longest };
    Cause {
        adds: runs.begun,
        failed: runs.failed,
        wasted: runs.wasted,
        took: last.saturating_add(runs.wasted),
        ..Cause::default()
    }
}

/// The plugins that the runtime called before the first container, in the order of their calls.
fn adds(world: &World, row: &Sandbox, next: Option<&ContainerRun>, now: Timestamp) -> Vec<Add> {
    let mut adds: Vec<Add> = world
        .attachments
        .of(&row.id)
        .flat_map(|row| row.plugins.iter().map(move |plugin| (&row.ifname, plugin)))
        .filter(|(_, plugin)| {
            plugin.add.begun > 0 && next.is_none_or(|next| plugin.add.first_at < next.first_at)
        })
        .map(|(ifname, plugin)| Add {
            kind: Kind::Cni { plugin: plugin.name.clone(), ifname: ifname.clone() },
            begin: plugin.add.first_at,
            end: if plugin.add.is_open() { now } else { plugin.add.last_at },
            cause: cause_of(&plugin.add, now),
        })
        .collect();
    adds.sort_by(|one, other| (one.begin, &one.kind).cmp(&(other.begin, &other.kind)));
    side_by_side(&mut adds);
    adds
}

/// A runtime may call plugins at the same time. Then the time belongs to the plugin that ends last: the
/// others were done before it.
fn side_by_side(adds: &mut [Add]) {
    let mut last: Option<(usize, Timestamp)> = None;
    for place in 0..adds.len() {
        let Some((begin, end)) = adds.get(place).map(|add| (add.begin, add.end)) else { return };
        match last.and_then(|(before, latest)| Some((adds.get_mut(before)?, latest))) {
            Some((_, latest)) if end <= latest => {
                if let Some(add) = adds.get_mut(place) {
                    add.end = begin;
                }
            }
            Some((before, _)) => {
                before.end = before.end.min(begin);
                last = Some((place, end));
            }
            None => last = Some((place, end)),
        }
    }
}
