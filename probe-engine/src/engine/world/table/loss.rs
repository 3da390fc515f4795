//! The recent losses of records, and how each kernel signal is seen. A verdict on the time of a loss is less
//! certain.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

use crate::{
    engine::world::table::attachment::LATELY,
    model::{
        fact::{Attached, Loss, Mechanism, Signal},
        time::Timestamp,
    },
};

/// Losses that follow each other within `LATELY`.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    #[serde_as(as = "DisplayFromStr")]
    pub(crate) count: u64,
    pub(crate) since: Timestamp,
    pub(crate) last_at: Timestamp,
    /// The times of the losses. Losses less than a second apart are one span.
    pub(crate) spans: Vec<(Timestamp, Timestamp)>,
    /// When no agent ran: the last such time.
    #[serde(default)]
    pub(crate) away: Option<(Timestamp, Timestamp)>,
    /// The last time for which the state of the agent was lost.
    #[serde(default)]
    pub(crate) state: Option<(Timestamp, Timestamp)>,
}

/// How many spans are kept apart. If there are more, the oldest are joined.
const SPANS: usize = 32;

const TOGETHER: Duration = Duration::from_secs(1);

/// The signals that netlink can report.
pub(crate) const NETLINK_SIGNALS: [Signal; 3] = [Signal::NetnsDropped, Signal::AddressV4, Signal::AddressV6];

/// What the agent can see of the node.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    /// How each kernel signal is seen, where a source has reported it.
    pub(crate) attached: BTreeMap<Signal, Attached>,
    pub(crate) losses: Option<Losses>,
    /// The files at which reading hangs, and since when.
    pub(crate) hanging: BTreeMap<String, Timestamp>,
}

pub(crate) fn with(
    mut spans: Vec<(Timestamp, Timestamp)>,
    from: Timestamp,
    to: Timestamp,
) -> Vec<(Timestamp, Timestamp)> {
    match spans.last_mut() {
        Some((first, last)) if *first <= to + TOGETHER && from <= *last + TOGETHER => {
            (*first, *last) = (from.min(*first), to.max(*last));
        }
        Some(_) | None => spans.push((from, to)),
    }
    if spans.len() > SPANS {
        let (first, last) = spans.remove(0);
        if let Some((next, end)) = spans.first_mut() {
            (*next, *end) = (first.min(*next), last.max(*end));
        }
    }
    spans
}

impl Coverage {
    /// No agent ran in this time, or what it kept of it was lost.
    pub(in crate::engine::world) fn missed(&mut self, what: Loss, since: Timestamp, at: Timestamp) {
        self.lost_within(since, at, 0);
        if let Some(losses) = &mut self.losses {
            let missed = if what == Loss::State { &mut losses.state } else { &mut losses.away };
            *missed = Some((since, at));
        }
    }

    /// The end of the last time in which no agent ran, if this was in it; else this.
    pub(crate) fn seen_at(&self, at: Timestamp) -> Timestamp {
        let away = self.losses.as_ref().and_then(|losses| losses.away);
        away.filter(|(since, until)| *since < at && at < *until).map_or(at, |(_, until)| until)
    }

    /// This many records were lost in this time.
    pub(in crate::engine::world) fn lost_within(&mut self, from: Timestamp, at: Timestamp, count: u64) {
        let before = self.losses.take();
        let spans = before.as_ref().map(|it| it.spans.clone()).unwrap_or_default();
        let before = before.filter(|it| from < it.last_at + LATELY);
        let (known, since, last_at) =
            before.as_ref().map_or((0, from, at), |it| (it.count, it.since, it.last_at.max(at)));
        let count = known.saturating_add(count);
        let (away, state) = before.map_or((None, None), |it| (it.away, it.state));
        self.losses = Some(Losses { count, since, last_at, spans: with(spans, from, at), away, state });
    }

    /// Whether netlink must report the end or the addresses of all namespaces. It reports only namespaces
    /// that have an id in the agent's own namespace.
    pub(crate) fn needs_netlink(&self) -> bool {
        let unseen = matches!(self.mechanism(Signal::NetnsDropped), Some(None));
        unseen || NETLINK_SIGNALS.iter().any(|signal| self.is_by_netlink(*signal))
    }

    pub(crate) fn is_by_netlink(&self, signal: Signal) -> bool {
        self.mechanism(signal) == Some(Some(Mechanism::Netlink))
    }

    /// Whether the addresses of a namespace are known by netlink alone.
    pub(crate) fn hears_addresses(&self) -> bool {
        [Signal::AddressV4, Signal::AddressV6].iter().any(|signal| self.is_by_netlink(*signal))
    }

    /// Whether a hook reports this signal.
    pub(crate) fn is_hooked(&self, signal: Signal) -> bool {
        matches!(self.mechanism(signal), Some(Some(mechanism)) if mechanism != Mechanism::Netlink)
    }

    /// How this signal is seen. None: no source has reported it.
    pub(crate) fn mechanism(&self, signal: Signal) -> Option<Option<Mechanism>> {
        self.attached.get(&signal).map(|attached| attached.mechanism)
    }
}

#[cfg(test)]
mod tests {
    use super::{SPANS, Timestamp, with};

    #[test]
    fn spans_are_bounded_and_cover_every_loss() {
        let second = |n: u64| Timestamp(n * 1_000_000_000);
        let mut spans = Vec::new();
        for n in 0..500 {
            spans = with(spans, second(3 * n), second(3 * n));
            spans = with(spans, second(3 * n + 1), second(3 * n + 1));
        }
        assert_eq!(spans.len(), SPANS);
        assert_eq!(spans.first().map(|(first, _)| *first), Some(second(0)));
        assert_eq!(spans.last(), Some(&(second(1497), second(1498))));
        let covers = |at| spans.iter().any(|(first, last)| (*first..=*last).contains(&at));
        assert!((0..500).all(|n| covers(second(3 * n))));
    }
}
