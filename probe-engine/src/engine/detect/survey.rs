//! One look at a node that no agent has watched: the findings that a `FindingTracker` would have by now.
//!
//! **Invariant:** a state that is too young for a `FindingTracker` to report is not reported here.

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

/// How the look knows whether runtime and kubelet have had their time to clean up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Daemons {
    /// By their processes: both are up since these started. While one is missing, nothing is cleaned up.
    Seen,
    /// There are no processes to see, as on a disk that was taken out. A record that is old by its own date has had its
    /// time.
    Supposed,
}

pub(in crate::engine) fn survey(
    world: &World,
    limits: &Limits,
    now: Timestamp,
    cleaners: Daemons,
) -> Vec<Finding> {
    let mut it = Situation::of(world, limits, now);
    if cleaners == Daemons::Supposed {
        it.up = Some(Timestamp::ZERO);
    }
    let (_, found) = Judge::anew(it);
    let mut sighted: Vec<Detection> = found.into_iter().flat_map(|(_, all)| all).collect();
    if cleaners == Daemons::Supposed {
        // On a disk no process runs, so a missing list of what runs is no blind spot.
        sighted.retain(
            |it| !matches!(&it.kind, Kind::BlindSpot(it) if matches!(it.spot, Blind::Listing { .. })),
        );
    }
    let mut seen = BTreeSet::new();
    sighted.retain(|it| seen.insert(it.key.clone()));
    sighted.into_iter().filter_map(|it| finding(it, world, limits, now)).collect()
}

fn finding(it: Detection, world: &World, limits: &Limits, now: Timestamp) -> Option<Finding> {
    let stage = match it.standing {
        Verdict::Confirmed | Verdict::Passing { .. } => Stage::Confirmed,
        Verdict::Candidate { .. } | Verdict::Unverified | Verdict::Unlisted => Stage::Candidate,
        // Old enough in itself: only those who are to clean it up have had no time yet.
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
        sandboxes: it.sandboxes,
        gapped: it.gapped,
        evidence: Vec::new(),
        programs: Vec::new(),
        runtimes: world.records.sockets(),
    })
}
