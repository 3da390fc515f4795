//! How long each phase takes on this node: half of the starts, nine in ten, 99 in a hundred.

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
    /// So many starts had it.
    pub starts: u32,
    #[serde_as(as = "Nanoseconds")]
    pub p50: Duration,
    #[serde_as(as = "Nanoseconds")]
    pub p90: Duration,
    #[serde_as(as = "Nanoseconds")]
    pub p99: Duration,
}

/// Of those that are whole, and, if there are any such, of which it is known that no container was still to come: phase by phase, then the whole start, then what is beyond it. What several containers, or interfaces, of one pod
/// take for it counts together; of those that listen, the one that took longest counts, for they do so side by side.
#[must_use]
pub fn shares<'a>(starts: impl Iterator<Item = &'a Start>) -> Vec<Share> {
    let (mut whole, mut listening) = (Vec::new(), Vec::new());
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
    phases.chain(beyond).filter_map(|(kind, spans)| share(kind, spans)).collect()
}

fn share(kind: Option<Kind>, mut spans: Vec<Duration>) -> Option<Share> {
    spans.sort_unstable();
    let starts = u32::try_from(spans.len()).unwrap_or(u32::MAX);
    Some(Share { kind, starts, p50: rank(&spans, 50)?, p90: rank(&spans, 90)?, p99: rank(&spans, 99)? })
}

/// The nearest rank: the least of them that so many in a hundred do not exceed.
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
