//! Adds the possible causes of a slow start to the phases that they affected.

use std::time::Duration;

use super::held;
use crate::{
    engine::world::{
        World,
        table::{netns, sandbox::Sandbox},
    },
    model::{
        fact::{Pressure, Signal},
        phase::{Kind, Phase, Start, WaitsFor},
        time::Timestamp,
    },
};

/// A loss of records is noticed at most this long after it happened.
const NOTICED: Duration = Duration::from_secs(1);

pub(super) fn attribute(world: &World, pod: Option<u64>, row: &Sandbox, start: &mut Start) {
    losses(world, start);
    silences(world, start);
    teardowns(world, row, start);
    if let Some(pod) = pod {
        pressure(world, pod, start);
    }
}

fn losses(world: &World, start: &mut Start) {
    for phase in &mut start.phases {
        phase.gapped = is_gapped(world, phase.begin, phase.end);
    }
}

/// Whether records of that time were lost, or may have been.
pub(super) fn is_gapped(world: &World, begin: Timestamp, end: Timestamp) -> bool {
    let mut spans = world.coverage.losses.iter().flat_map(|losses| &losses.spans);
    spans.any(|(first, last)| first.saturating_sub(NOTICED) <= end && *last >= begin)
}

/// Divides the phases in which the runtime was to do something by when it answered nothing. This applies to
/// an `image` phase only while the start goes on: of a complete start, all of that phase counts as the
/// image's where nothing else is known.
fn silences(world: &World, start: &mut Start) {
    let hung = world.beliefs.hung(start.end);
    let is_open = start.waits;
    for phase in start.phases.iter_mut().filter(|phase| phase.parts.is_empty()) {
        let is_runtimes = match phase.kind {
            Kind::Prepare | Kind::Netns | Kind::Between | Kind::Pause | Kind::Runtime => true,
            Kind::Image => is_open,
            Kind::Retry
            | Kind::Cni { .. }
            | Kind::Cgroup
            | Kind::PostStart
            | Kind::Init
            | Kind::Listening => false,
        };
        if is_runtimes {
            phase.parts = held::waits(&hung, phase.begin, phase.end, |_| WaitsFor::Runtime {});
        }
    }
}

/// How much of each phase was spent while another network namespace was torn down. The kernel makes and tears
/// down namespaces under shared locks (`pernet_ops_rwsem`, and the RTNL, which every plugin needs). It is not
/// known whether the phase waited for the teardown. If no hook reports the end of teardowns, a teardown that
/// is under way does not count.
fn teardowns(world: &World, row: &Sandbox, start: &mut Start) {
    let is_end_seen = world.coverage.is_hooked(Signal::NetnsFreed);
    let mut spans: Vec<(Timestamp, Timestamp)> = world
        .netns
        .group(netns::Group::Over)
        .filter(|netns| netns.sandbox.as_ref() != Some(&row.id))
        .filter_map(|netns| match netns.state {
            netns::State::Dropped { .. } if is_end_seen => netns.ending_since().map(|at| (at, start.end)),
            netns::State::Freed { at } if !netns.end_inferred => netns.dropped_at.map(|from| (from, at)),
            netns::State::Live | netns::State::Dropped { .. } | netns::State::Freed { .. } => None,
        })
        .collect();
    spans.sort_unstable();
    for phase in start.phases.iter_mut().filter(|phase| is_networks(phase)) {
        phase.cause.teardown = covered(&spans, phase.begin, phase.end);
    }
}

fn is_networks(phase: &Phase) -> bool {
    matches!(phase.kind, Kind::Prepare | Kind::Netns | Kind::Cni { .. } | Kind::Between)
}

/// How much of a time the spans cover. They are sorted by their beginnings.
fn covered(spans: &[(Timestamp, Timestamp)], begin: Timestamp, end: Timestamp) -> Duration {
    let mut at = begin;
    let mut sum = Duration::ZERO;
    for (from, to) in spans {
        let from = (*from).max(at);
        let to = (*to).min(end);
        if to > from {
            sum += to.since(from);
            at = to;
        }
    }
    sum
}

/// Adds the cgroup's counts between two readings to the phase that had most of the time between the readings.
fn pressure(world: &World, pod: u64, start: &mut Start) {
    let Some(row) = world.pods.get(&pod) else { return };
    let Some(mut from) = row.start.made_at else { return };
    let mut before = None;
    for (at, reading) in row.start.readings.iter() {
        if let Some(phase) = longest_within(&mut start.phases, from, *at) {
            phase.pressure = phase.pressure.and(&reading.since(before));
        }
        (from, before) = (*at, Some(reading));
    }
    // In the others the runtime does something else for the pod, or nothing.
    for phase in start.phases.iter_mut().filter(|phase| phase.kind != Kind::Image) {
        phase.pressure.runtime_io = None;
    }
}

/// What the pod's cgroup counted in this time: from its first reading, which was asked for at the beginning,
/// or else the last one before, to the first one afterwards. Nothing until there is that one.
pub(super) fn counted(world: &World, pod: u64, from: Timestamp, to: Timestamp) -> Pressure {
    let Some(row) = world.pods.get(&pod).filter(|row| row.start.made_at.is_some()) else {
        return Pressure::default();
    };
    let readings = &row.start.readings;
    let Some((_, after)) = readings.iter().find(|(at, _)| *at >= to) else { return Pressure::default() };
    let first = readings.iter().find(|(at, _)| (from..to).contains(at));
    let before = first.or_else(|| readings.iter().take_while(|(at, _)| *at < from).last());
    Pressure { runtime_io: None, ..after.since(before.map(|(_, reading)| reading)) }
}

fn longest_within(phases: &mut [Phase], from: Timestamp, to: Timestamp) -> Option<&mut Phase> {
    let hit = phases.iter_mut().rev().max_by_key(|phase| phase.end.min(to).since(phase.begin.max(from)))?;
    (hit.end.min(to) > hit.begin.max(from)).then_some(hit)
}
