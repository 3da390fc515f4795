//! Divides a time by when something was waited for: the kubelet, which held requests back before a sandbox's
//! first sign, or a runtime that did not answer.

use super::cut::Cut;
use crate::model::{
    fact::Span,
    phase::{Part, PartKind, WaitsFor},
    time::Timestamp,
};

/// The parts of the time from `begin` to `end`. Requests that were held back at the same time make one wait.
/// None, if none was held back.
pub(crate) fn parts(held: &[Span], begin: Timestamp, end: Timestamp) -> Vec<Part> {
    waits(held, begin, end, |held_back| WaitsFor::ApiRate { held_back })
}

/// Like above, for waits that are named by how many of these times make one wait.
pub(super) fn waits(held: &[Span], begin: Timestamp, end: Timestamp, what: fn(u32) -> WaitsFor) -> Vec<Part> {
    let within = held.iter().map(|it| Span { began: it.began.max(begin), ended: it.ended.min(end) });
    let mut within: Vec<Span> = within.filter(|it| it.began < it.ended).collect();
    within.sort_unstable();
    let mut waits: Vec<(Span, u32)> = Vec::new();
    for it in within {
        match waits.last_mut().filter(|(wait, _)| it.began <= wait.ended) {
            Some((wait, held_back)) => {
                wait.ended = wait.ended.max(it.ended);
                *held_back = held_back.saturating_add(1);
            }
            None => waits.push((it, 1)),
        }
    }
    let mut cut = Cut::new(begin, end);
    for (wait, held_back) in &waits {
        cut.wait_until(wait.ended, Some((wait.began, what(*held_back))));
    }
    if !waits.is_empty() {
        cut.until(end, PartKind::Unknown);
    }
    cut.parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Part, Span, Timestamp, WaitsFor, parts};

    fn of(held: &[(u64, u64)]) -> Vec<(u64, Option<WaitsFor>)> {
        let held: Vec<Span> = held
            .iter()
            .map(|(began, ended)| Span { began: Timestamp(*began), ended: Timestamp(*ended) })
            .collect();
        parts(&held, Timestamp(10), Timestamp(100)).iter().map(|part| (part.end().0, part.waits)).collect()
    }

    fn wait(held_back: u32) -> Option<WaitsFor> {
        Some(WaitsFor::ApiRate { held_back })
    }

    #[test]
    fn requests_that_were_held_back_at_once_are_one_wait() {
        assert_eq!(of(&[]), []);
        assert_eq!(of(&[(1, 10), (100, 120)]), [], "none of them was held back in this time");
        assert_eq!(of(&[(1, 40)]), [(40, wait(1)), (100, None)]);
        assert_eq!(
            of(&[(50, 90), (20, 40), (35, 45)]),
            [(20, None), (45, wait(2)), (50, None), (90, wait(1)), (100, None)]
        );
        assert_eq!(of(&[(1, 200), (20, 30)]), [(100, wait(2))]);
    }

    proptest! {
        #[test]
        fn the_parts_are_the_whole(held in prop::collection::vec((0_u64..120, 0_u64..120), 0..9)) {
            let held: Vec<Span> = held
                .iter()
                .map(|(began, ended)| Span { began: Timestamp(*began), ended: Timestamp(*ended) })
                .collect();
            let parts = parts(&held, Timestamp(10), Timestamp(100));
            let ends = parts.iter().map(Part::end);
            let begins: Vec<Timestamp> = [Timestamp(10)].into_iter().chain(ends).take(parts.len()).collect();
            prop_assert_eq!(parts.iter().map(|part| part.begin).collect::<Vec<_>>(), begins);
            prop_assert!(parts.last().is_none_or(|last: &Part| last.end() == Timestamp(100)));
            prop_assert!(parts.iter().all(|part| !part.took.is_zero()));
        }
    }
}
