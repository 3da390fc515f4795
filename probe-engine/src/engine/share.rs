//! How long each phase takes on this node: percentiles over the starts.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use crate::model::{
    phase::{Kind, Listening, Start},
    time::Nanoseconds,
};

#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// None: the whole start.
    pub kind: Option<Kind>,
    /// The number of starts that had it.
    pub starts: u32,
    #[serde_as(as = "Nanoseconds")]
    pub p50: Duration,
    #[serde_as(as = "Nanoseconds")]
    pub p90: Duration,
    #[serde_as(as = "Nanoseconds")]
    pub p99: Duration,
}

/// Returns the percentiles of each phase, then of the whole start, then of the time until the containers
/// listen.
#[must_use]
pub fn shares<'a>(starts: impl Iterator<Item = &'a Start>) -> Vec<Share> {
    durations(starts).into_iter().filter_map(|(kind, spans)| share(kind, spans)).collect()
}

/// Returns how long each phase took, in each start that had it; then the whole start, then the time until the
/// containers listen.
///
/// Only whole starts count, and, if there are any, only those of which all containers are known. The times of
/// several containers or interfaces of one pod in the same phase are added. Of the containers that listen,
/// the slowest counts, because they start to listen in parallel.
#[must_use]
pub fn durations<'a>(starts: impl Iterator<Item = &'a Start>) -> Vec<(Option<Kind>, Vec<Duration>)> {
    let mut whole = Vec::new();
    let mut listening = Vec::new();
    let mut by_kind: BTreeMap<Kind, Vec<Duration>> = BTreeMap::new();
    let mut compared: Vec<&Start> = starts.filter(|start| start.is_whole()).collect();
    if compared.iter().any(|start| start.containers_known) {
        compared.retain(|start| start.containers_known);
    }
    for start in compared {
        whole.push(start.total());
        if start.listening.iter().all(|it| !it.gapped && !it.suspended) {
            listening.extend(start.listens().map(Listening::took));
        }
        let mut sums: BTreeMap<Kind, Duration> = BTreeMap::new();
        for phase in &start.phases {
            *sums.entry(phase.kind.of_any()).or_default() += phase.took();
        }
        for (kind, sum) in sums {
            by_kind.entry(kind).or_default().push(sum);
        }
    }
    let phases = by_kind.into_iter().map(|(kind, spans)| (Some(kind), spans));
    let beyond = [(None, whole), (Some(Kind::Listening), listening)];
    phases.chain(beyond).collect()
}

fn share(kind: Option<Kind>, mut spans: Vec<Duration>) -> Option<Share> {
    spans.sort_unstable();
    let starts = u32::try_from(spans.len()).unwrap_or(u32::MAX);
    Some(Share { kind, starts, p50: rank(&spans, 50)?, p90: rank(&spans, 90)?, p99: rank(&spans, 99)? })
}

/// Returns the value at this percentile (nearest rank).
pub(super) fn rank<T: Copy>(sorted: &[T], percent: usize) -> Option<T> {
    let rank = sorted.len().saturating_mul(percent).div_ceil(100);
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::rank;

    #[test]
    fn a_percentile_is_one_of_them() {
        let all: Vec<Duration> = (1..=10).map(Duration::from_millis).collect();
        let of = |count: usize, percent| rank(&all[..count], percent).map(|it| it.as_millis());
        assert_eq!([of(10, 50), of(10, 90), of(10, 99)], [Some(5), Some(9), Some(10)]);
        assert_eq!([of(1, 50), of(1, 99), of(0, 50)], [Some(1), Some(1), None]);
    }
}
