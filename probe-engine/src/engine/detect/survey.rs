//! A single look at a node that no agent has watched. It returns the findings that a `FindingTracker` would
//! have by now.
//!
//! **Invariant:** a state that is too new for a `FindingTracker` to report is not reported here.

use std::collections::BTreeSet;

use super::{
    Detection, Limits, Verdict,
    judge::{Judge, Situation},
};
use crate::{
    engine::world::World,
    model::{
        change::Finding,
        finding::{Blind, Kind, Stage},
        time::Timestamp,
    },
};

/// How the look knows whether the runtime and the kubelet have had time to clean up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Daemons {
    /// By their processes: both have been up since these started. While one is missing, nothing is cleaned
    /// up.
    Observed,
    /// No processes can be seen, as on a disk that was taken out. A record that is old by its own date counts
    /// as old enough.
    Assumed,
}

pub(in crate::engine) fn survey(
    world: &World,
    limits: &Limits,
    now: Timestamp,
    cleaners: Daemons,
) -> Vec<Finding> {
    let mut it = Situation::of(world, limits, now);
    if cleaners == Daemons::Assumed {
        it.up = Some(Timestamp::ZERO);
    }
    let (_, found) = Judge::judge_everything(it);
    let mut detections: Vec<Detection> = found.into_iter().flat_map(|(_, all)| all).collect();
    if cleaners == Daemons::Assumed {
        // No process runs from a disk that was taken out, so a missing list of processes is not a blind spot.
        detections.retain(
            |it| !matches!(&it.kind, Kind::BlindSpot(it) if matches!(it.spot, Blind::Listing { .. })),
        );
    }
    let mut seen = BTreeSet::new();
    detections.retain(|it| seen.insert(it.key.clone()));
    detections.into_iter().filter_map(|it| finding(it, world, limits, now)).collect()
}

fn finding(it: Detection, world: &World, limits: &Limits, now: Timestamp) -> Option<Finding> {
    let stage = match it.verdict {
        Verdict::Confirmed | Verdict::Passing { .. } => Stage::Confirmed,
        Verdict::Candidate { .. } | Verdict::Unverified | Verdict::Unlisted => Stage::Candidate,
        // The state is old enough, but the runtime and the kubelet have not had time to clean it up.
        Verdict::Watched { .. } if now >= it.since + limits.leak_grace / 4 => Stage::Candidate,
        Verdict::Watched { .. } | Verdict::Unsure => return None,
    };
    Some(Finding {
        key: it.key,
        kind: it.kind,
        severity: it.severity,
        stage,
        since: it.since,
        opened_at: now,
        confirmed_at: (stage == Stage::Confirmed).then_some(now),
        closed_at: None,
        pod: it.pod,
        runtimes: world.records.sockets_of(&it.sandboxes),
        folders: world.records.folders(),
        worst: None,
        sandboxes: it.sandboxes,
        gapped: it.gapped,
        evidence: Vec::new(),
        programs: Vec::new(),
    })
}
