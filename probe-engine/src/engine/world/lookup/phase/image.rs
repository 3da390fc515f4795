//! Divides the time before a container's first sign by what logs and files say about it.
//!
//! **Invariant:** the parts follow each other without a gap. Time of which nothing is known is a part by
//! itself, and where nothing at all is known there are no parts.

use std::time::Duration;

use super::cut::Cut;
use crate::model::{
    fact::{ImageWork, Span},
    phase::{Part, PartKind, WaitsFor},
    time::Timestamp,
};

/// Whoever waits for a free place has it at most this long after it became free.
pub(crate) const HANDED_ON: Duration = Duration::from_millis(250);

/// The parts of the time from `begin` to `end`.
pub(crate) fn parts(work: &ImageWork, begin: Timestamp, end: Timestamp) -> Vec<Part> {
    let pull =
        work.pulls.iter().rfind(|it| !it.failed && overlaps(&it.span, begin, end) && it.span.ended <= end);
    let created = work.created.filter(|span| overlaps(span, begin, end));
    let has_tried = tries(work, begin, end).is_some();
    if pull.is_none() && created.is_none() && !has_tried {
        return Vec::new();
    }
    let mut cut = Cut::new(begin, end);
    if let Some(pull) = pull {
        cut.wait_until(pull.span.began, held_up(work, begin, pull.span.began));
        cut.until(pull.fetched.unwrap_or(pull.span.ended).min(pull.span.ended), PartKind::Pull);
        cut.until(pull.span.ended, PartKind::Unpack);
    } else if has_tried {
        let until = created.map_or(end, |it| it.began);
        cut.wait_until(until, tries(work, begin, until));
    }
    if let Some(created) = created {
        let from = cut.at;
        let wait = services(work, from, created.began).or_else(|| {
            let (at, ahead, at_once) = queue(&work.other_creates, from, created.began)?;
            Some((at, WaitsFor::Creates { ahead, at_once }))
        });
        cut.wait_until(created.began, wait);
        cut.until(end, PartKind::Create);
    }
    let wait = services(work, cut.at, end);
    cut.wait_until(end, wait);
    cut.parts
}

fn overlaps(span: &Span, begin: Timestamp, end: Timestamp) -> bool {
    span.began < end && span.ended > begin
}

/// The parts of a phase from `begin` to `end`, whose parts were found when its ends were thought to be
/// others.
pub(crate) fn within(parts: &[Part], begin: Timestamp, end: Timestamp) -> Vec<Part> {
    let mut cut = Cut::new(begin, end);
    for part in parts.iter().filter_map(|part| part.within(begin, end)) {
        cut.until(part.begin, PartKind::Unknown);
        cut.push(part.end(), part.kind, part.waits);
    }
    if !cut.parts.is_empty() {
        cut.until(end, PartKind::Unknown);
    }
    cut.parts
}

/// What the pull waited for, and since when. A pull that the kubelet had tried before waited for that try's
/// end and for the pause after it.
fn held_up(work: &ImageWork, begin: Timestamp, pulled: Timestamp) -> Option<(Timestamp, WaitsFor)> {
    tries(work, begin, pulled).or_else(|| {
        let (from, ahead, at_once) = queue(&work.other_pulls, begin, pulled)?;
        Some((from, WaitsFor::Pulls { ahead, at_once }))
    })
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The tries that came to nothing, and when the first of them began.
fn tries(work: &ImageWork, begin: Timestamp, until: Timestamp) -> Option<(Timestamp, WaitsFor)> {
    let mut failed = work
        .pulls
        .iter()
        .filter(|it| it.failed && it.span.ended > begin && it.span.began < until)
        .map(|it| it.span.began.max(begin));
    let mut refused = work.refused.iter().filter(|at| (begin..until).contains(at)).copied();
    let by_rate = (refused.clone().min(), WaitsFor::Rate { refused: count(refused.by_ref().count()) });
    let by_failure = (failed.clone().min(), WaitsFor::Retry { failed: count(failed.by_ref().count()) });
    let known = [by_rate, by_failure].into_iter().filter_map(|(at, waits)| Some((at?, waits)));
    known.chain(services(work, begin, until)).min_by_key(|(at, _)| *at)
}

/// The tries to make the container for which the kubelet lacked the Services, and when the first of them was.
fn services(work: &ImageWork, begin: Timestamp, until: Timestamp) -> Option<(Timestamp, WaitsFor)> {
    let failed = work.services_unread.iter().filter(|at| (begin..until).contains(at));
    Some((*failed.clone().min()?, WaitsFor::Services { failed: count(failed.count()) }))
}

/// Since when something waited that began at `began`, because others had all the places: how many ended
/// meanwhile, and how many ran at once. As many as ran when its turn came must have run all the time.
fn queue(others: &[Span], begin: Timestamp, began: Timestamp) -> Option<(Timestamp, u32, u32)> {
    let before: Vec<&Span> = others.iter().filter(|it| it.began < began && it.ended > begin).collect();
    // Somebody made room for it.
    if !before.iter().any(|it| it.ended <= began + HANDED_ON && it.ended + HANDED_ON >= began) {
        return None;
    }
    let ends = before.iter().flat_map(|it| [it.began, it.ended + HANDED_ON]);
    let mut edges: Vec<Timestamp> = ends.filter(|at| (begin..began).contains(at)).chain([begin]).collect();
    edges.sort_unstable();
    edges.dedup();
    let mut from = began;
    let mut at_once = 0;
    for edge in edges.into_iter().rev() {
        let held = before.iter().filter(|it| it.began <= edge && it.ended + HANDED_ON >= from).count();
        if held == 0 || at_once != 0 && held < at_once {
            break;
        }
        if at_once == 0 {
            at_once = held;
        }
        from = edge;
    }
    let ahead = before.iter().filter(|it| it.ended > from && it.ended <= began + HANDED_ON).count();
    (at_once > 0 && ahead > 0 && began.since(from) > HANDED_ON).then(|| (from, count(ahead), count(at_once)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{ImageWork, Part, PartKind, Span, Timestamp, WaitsFor, parts, within};
    use crate::model::{fact::Pull, id::ContainerId};

    fn at(ms: u64) -> Timestamp {
        Timestamp(ms * 1_000_000)
    }

    fn span((began, ended): (u64, u64)) -> Span {
        Span { began: at(began), ended: at(ended) }
    }

    fn pull(span_of: (u64, u64), fetched: Option<u64>) -> Pull {
        Pull { span: span(span_of), failed: false, fetched: fetched.map(at) }
    }

    fn work() -> ImageWork {
        ImageWork {
            container: ContainerId::parse("c0ffee").expect("an id"),
            pulls: Vec::new(),
            other_pulls: Vec::new(),
            refused: Vec::new(),
            services_unread: Vec::new(),
            created: None,
            other_creates: Vec::new(),
        }
    }

    fn told(parts: &[Part]) -> String {
        let told = parts.iter().map(|part| {
            let waits = match part.waits {
                None => String::new(),
                Some(WaitsFor::Pulls { ahead, at_once }) => format!("({ahead} pulls, {at_once} at once)"),
                Some(WaitsFor::Creates { ahead, at_once }) => format!("({ahead} creates, {at_once} at once)"),
                Some(WaitsFor::Rate { refused }) => format!("({refused} refused)"),
                Some(WaitsFor::Retry { failed }) => format!("({failed} failed)"),
                Some(WaitsFor::Services { failed }) => format!("({failed} without Services)"),
                Some(WaitsFor::ApiRate { held_back }) => format!("({held_back} held back)"),
                Some(WaitsFor::Runtime {}) => "(the runtime)".to_owned(),
            };
            format!("{}{waits} {}", part.kind.into_str(), part.took.as_millis())
        });
        told.collect::<Vec<_>>().join(", ")
    }

    fn of(work: &ImageWork) -> String {
        told(&parts(work, at(1000), at(10_000)))
    }

    #[test]
    fn each_part_is_told_as_far_as_something_tells_of_it() {
        assert_eq!(of(&work()), "", "nothing is known");
        let whole = ImageWork {
            pulls: vec![pull((1200, 8000), Some(7000))],
            created: Some(span((9000, 9900))),
            ..work()
        };
        assert_eq!(of(&whole), "unknown 200, pull 5800, unpack 1000, unknown 1000, create 1000");
        let no_layers = ImageWork { pulls: vec![pull((1200, 8000), None)], ..whole.clone() };
        assert_eq!(of(&no_layers), "unknown 200, pull 6800, unknown 1000, create 1000");
        let was_there = ImageWork { pulls: Vec::new(), ..whole.clone() };
        assert_eq!(of(&was_there), "unknown 8000, create 1000");
        // A pull that ends after the container's first sign was not for it.
        let other = ImageWork { pulls: vec![pull((1200, 10_001), None)], created: None, ..whole };
        assert_eq!(of(&other), "");
    }

    #[test]
    fn pulls_one_after_another_are_a_staircase() {
        let stairs = |other_pulls: &[(u64, u64)], own| ImageWork {
            pulls: vec![pull(own, None)],
            other_pulls: other_pulls.iter().copied().map(span).collect(),
            ..work()
        };
        let one = stairs(&[(500, 3000), (3001, 5000), (5002, 6000)], (6003, 10_000));
        assert_eq!(of(&one), "wait(3 pulls, 1 at once) 5003, pull 3997");
        let two = stairs(&[(500, 3000), (600, 5000), (3001, 6000)], (5003, 10_000));
        assert_eq!(of(&two), "wait(2 pulls, 2 at once) 4003, pull 4997");
        // It began while others ran: nothing held it up.
        let beside = stairs(&[(500, 9000), (600, 9500)], (5003, 10_000));
        assert_eq!(of(&beside), "unknown 4003, pull 4997");
        // For a while nobody pulled, so it waited for something else.
        let paused = stairs(&[(500, 2000), (4000, 6000)], (6003, 10_000));
        assert_eq!(of(&paused), "unknown 3000, wait(1 pulls, 1 at once) 2003, pull 3997");
        // There was a second place, which it did not take at once.
        let free = stairs(&[(500, 3000), (2000, 6000), (4000, 6001)], (6003, 10_000));
        assert_eq!(of(&free), "unknown 3000, wait(2 pulls, 2 at once) 2003, pull 3997");
    }

    #[test]
    fn tries_in_vain_are_told_before_a_queue() {
        let failed = |span_of| Pull { failed: true, ..pull(span_of, None) };
        let again = ImageWork {
            pulls: vec![failed((1500, 2000)), failed((4000, 4500)), pull((8000, 9000), None)],
            other_pulls: vec![span((2000, 7999))],
            ..work()
        };
        assert_eq!(of(&again), "unknown 500, wait(2 failed) 6500, pull 1000, unknown 1000");
        let never = ImageWork { pulls: again.pulls.iter().take(2).copied().collect(), ..again };
        assert_eq!(of(&never), "unknown 500, wait(2 failed) 8500");
        let refused = ImageWork {
            pulls: vec![pull((8000, 9000), None)],
            refused: vec![at(900), at(1500), at(3000)],
            ..work()
        };
        assert_eq!(of(&refused), "unknown 500, wait(2 refused) 6500, pull 1000, unknown 1000");
    }

    #[test]
    fn creations_one_after_another_are_a_staircase_too() {
        let created = ImageWork {
            created: Some(span((6003, 9900))),
            other_creates: vec![span((500, 3000)), span((3001, 6000))],
            ..work()
        };
        assert_eq!(of(&created), "wait(2 creates, 1 at once) 5003, create 3997");
    }

    #[test]
    fn a_container_that_the_kubelet_could_not_make_waited_from_the_first_try_on() {
        let unread = ImageWork {
            pulls: vec![pull((1200, 3000), None)],
            services_unread: vec![at(500), at(3100), at(6000)],
            created: Some(span((9000, 9900))),
            other_creates: vec![span((5000, 8999))],
            ..work()
        };
        assert_eq!(
            of(&unread),
            "unknown 200, pull 1800, unknown 100, wait(2 without Services) 5900, create 1000"
        );
        // CRI-O did not log that it made it.
        let unmade = ImageWork { created: None, ..unread.clone() };
        assert_eq!(of(&unmade), "unknown 200, pull 1800, unknown 100, wait(2 without Services) 6900");
        // With imagePullPolicy: Always each try begins with a pull.
        let again =
            ImageWork { pulls: vec![pull((8000, 8500), None)], other_creates: Vec::new(), ..unread.clone() };
        assert_eq!(
            of(&again),
            "unknown 2100, wait(2 without Services) 4900, pull 500, unknown 500, create 1000"
        );
        let was_there = ImageWork { pulls: Vec::new(), ..unread };
        assert_eq!(of(&was_there), "unknown 2100, wait(2 without Services) 5900, create 1000");
    }

    fn spans() -> impl Strategy<Value = Vec<Span>> {
        prop::collection::vec((0..12_000_u64, 0..6000_u64), 0..12)
            .prop_map(|all| all.into_iter().map(|(began, took)| span((began, began + took))).collect())
    }

    proptest! {
        #[test]
        fn parts_are_the_whole(
            own in spans(), other_pulls in spans(), other_creates in spans(),
            created in prop::option::of((0..12_000_u64, 0..6000_u64)),
            refused in prop::collection::vec(0..12_000_u64, 0..4),
            services_unread in prop::collection::vec(0..12_000_u64, 0..4),
            bits: u16, (from, to) in (0..12_000_u64, 0..12_000_u64),
        ) {
            let pulls = own.iter().enumerate().map(|(place, span)| Pull {
                span: *span,
                failed: bits >> place & 1 == 1,
                fetched: (place % 2 == 0).then_some(at(from)),
            });
            let work = ImageWork {
                pulls: pulls.collect(),
                other_pulls,
                refused: refused.into_iter().map(at).collect(),
                services_unread: services_unread.into_iter().map(at).collect(),
                created: created.map(|(began, took)| span((began, began + took))),
                other_creates,
                ..work()
            };
            let whole = parts(&work, at(1000), at(10_000));
            let again = within(&whole, at(from), at(to));
            for (parts, begin, end) in [(&whole, at(1000), at(10_000)), (&again, at(from), at(to))] {
                let Some(first) = parts.first() else { continue };
                prop_assert_eq!(first.begin, begin);
                prop_assert_eq!(parts.last().map(Part::end), Some(end));
                prop_assert!(parts.iter().all(|part| !part.took.is_zero()));
                prop_assert!(parts.windows(2).all(|two| two[0].end() == two[1].begin));
                prop_assert!(parts.iter().all(|part| part.waits.is_some() == (part.kind == PartKind::Wait)));
            }
            prop_assert_eq!(within(&whole, at(1000), at(10_000)), whole);
        }
    }
}
