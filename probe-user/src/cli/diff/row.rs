//! The rows of the comparison: two numbers, how far they are apart, and whether that is worse.

use std::{cmp::Ordering, collections::BTreeSet};

use serde::Serialize;

use super::{
    interval::{self, Interval, Statistic, mean, median},
    recorded::{Found, Orders, Pod, Recorded},
};
use crate::{
    model::{
        finding::{FindingKind, Severity},
        phase::Kind,
    },
    sink::render::phase,
};

/// A number of both recordings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) of: Of,
    pub(super) name: String,
    pub(super) a: Side,
    pub(super) b: Side,
    /// B less A, and within what that lies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) difference: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) interval: Option<[f64; 2]>,
    pub(super) verdict: Verdict,
}

/// The number of one recording.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Side {
    /// The starts, pods or attachments that it is computed from; of findings: how many there are.
    pub(super) count: usize,
    /// The median of starts in seconds; the mean of each pod, or of each ADD. `None`: there is nothing, or it
    /// is not about pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<f64>,
}

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Of {
    Start,
    Pod,
    Finding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// Worse by more than the limit.
    Worse,
    /// A finding of a kind that A has not, or not as severe.
    New,
    WithinLimit,
    Same,
    Better,
    /// Too few starts or pods to tell.
    TooFew,
    /// It would be worse, but a recording has gaps or was cut off; of findings only A, which may have missed
    /// some, also with too few pods. Or B sees less.
    Unknown,
    /// A finding that needs nobody.
    NotJudged,
}

/// What may be worse in B, and what a recording must have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) percent: u32,
    pub(super) pods: usize,
    /// The rows among which no one is worse by chance. [`rows`] counts them.
    pub(super) rows: usize,
}

impl Limits {
    /// Returns whether B has more of something than the limit allows.
    fn exceeds(self, b: usize, a: usize) -> bool {
        let allowed = usize::try_from(self.percent).map_or(usize::MAX, |percent| percent.saturating_add(100));
        b.saturating_mul(100) > a.saturating_mul(allowed)
    }
}

/// Two samples of one number.
struct Samples<'a> {
    a: &'a [f64],
    b: &'a [f64],
    of: Statistic,
    is_more_worse: bool,
}

impl Verdict {
    pub(super) fn is_worse(self) -> bool {
        matches!(self, Self::Worse | Self::New)
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Worse => "worse",
            Self::New => "new",
            Self::WithinLimit => "within limit",
            Self::Same => "same",
            Self::Better => "better",
            Self::TooFew => "too few",
            Self::Unknown => "unknown",
            Self::NotJudged => "-",
        }
    }
}

/// Returns the rows: the phases of starts, what was ordered for each pod, and the findings.
pub(super) fn rows(a: &Recorded, b: &Recorded, limits: Limits) -> Vec<Row> {
    let count = phases(a, b).len() + ORDERS.len() + 1 + kinds(a, b).len();
    let limits = Limits { rows: count, ..limits };
    let mut rows = starts(a, b, limits);
    rows.extend(orders(a, b, limits));
    if a.is_partial() || b.is_partial() {
        let worse = rows.iter_mut().filter(|row| row.verdict == Verdict::Worse);
        worse.for_each(|row| row.verdict = Verdict::Unknown);
    }
    rows.extend(findings(a, b, limits));
    rows
}

/// Compares the phases that either recording has, in their order. The limit is a part of A's whole start, so
/// that a phase of a millisecond may double.
fn starts(a: &Recorded, b: &Recorded, limits: Limits) -> Vec<Row> {
    let whole = median(&mut a.seconds(None).to_vec());
    phases(a, b)
        .into_iter()
        .map(|kind| {
            let name = phase::of_start(kind);
            let samples = Samples { a: a.seconds(kind), b: b.seconds(kind), of: median, is_more_worse: true };
            samples.row(Of::Start, name, limits, whole)
        })
        .collect()
}

/// Returns the phases of either recording, then the whole start.
fn phases<'a>(a: &'a Recorded, b: &'a Recorded) -> Vec<Option<&'a Kind>> {
    let all = a.starts.iter().chain(&b.starts).filter(|(_, seconds)| !seconds.is_empty());
    let kinds: BTreeSet<&Kind> = all.filter_map(|(kind, _)| kind.as_ref()).collect();
    kinds.into_iter().map(Some).chain([None]).collect()
}

/// The rows without which nothing can be said: a phase may be one of a few starts only.
pub(super) const NEEDED: [&str; 2] = [phase::WHOLE, STARTED];
const STARTED: &str = "started / pod";

/// The name of an order, how many of it a pod has, and whether more is worse.
type Order = (&'static str, fn(&Orders) -> u32, bool);

const ORDERS: [Order; 5] = [
    (STARTED, |it| it.started, false),
    ("sandboxes / pod", |it| it.sandboxes, true),
    ("ADDs / pod", |it| it.adds, true),
    ("failed ADDs / pod", |it| it.failed_adds, true),
    ("failed DELs / pod", |it| it.failed_dels, true),
];

fn orders(a: &Recorded, b: &Recorded, limits: Limits) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (name, of, is_more_worse) in ORDERS {
        let [a, b] =
            [a, b].map(|it| it.pods.iter().map(|pod| f64::from(of(&pod.orders))).collect::<Vec<_>>());
        let samples = per_pod(&a, &b, is_more_worse);
        rows.push(samples.row(Of::Pod, name.to_owned(), limits, mean(&mut a.clone())));
    }
    let samples = per_pod(&a.released, &b.released, false);
    rows.push(samples.row(Of::Pod, "releases / ADD".to_owned(), limits, mean(&mut a.released.clone())));
    rows
}

fn per_pod<'a>(a: &'a [f64], b: &'a [f64], is_more_worse: bool) -> Samples<'a> {
    Samples { a, b, of: mean, is_more_worse }
}

fn findings(a: &Recorded, b: &Recorded, limits: Limits) -> Vec<Row> {
    kinds(a, b).into_iter().map(|kind| finding(kind, a, b, limits)).collect()
}

/// Returns the kinds of findings that either recording has.
fn kinds(a: &Recorded, b: &Recorded) -> BTreeSet<&'static str> {
    a.findings.keys().chain(b.findings.keys()).copied().collect()
}

/// Compares the findings of a kind. One that A has not needs no statistics, because it was confirmed, and
/// those that are about no pod are only counted.
fn finding(kind: &'static str, a: &Recorded, b: &Recorded, limits: Limits) -> Row {
    let [of_a, of_b] = [a, b].map(|it| it.pods.iter().map(|pod| of_kind(pod, kind)).collect::<Vec<f64>>());
    let mut row =
        per_pod(&of_a, &of_b, true).row(Of::Finding, kind.to_owned(), limits, mean(&mut of_a.clone()));
    let nothing = Found { count: 0, others: 0, worst: Severity::Info };
    let [before, after] = [a, b].map(|it| it.findings.get(kind).copied().unwrap_or(nothing));
    row.a.count = before.count;
    row.b.count = after.count;
    if before.others == before.count && after.others == after.count {
        row.a.value = None;
        row.b.value = None;
        row.difference = None;
        row.interval = None;
        row.verdict = match after.count.cmp(&before.count) {
            Ordering::Less => Verdict::Better,
            Ordering::Equal => Verdict::Same,
            Ordering::Greater => Verdict::WithinLimit,
        };
    }
    if before.worst.max(after.worst) == Severity::Info {
        row.verdict = Verdict::NotJudged;
    } else if after.worst > before.worst {
        row.verdict = Verdict::New;
    } else if after.count == 0 && before.count > 0 {
        // One from before B that is still open is in no number.
        let is_gone = !b.findings.contains_key(kind);
        row.verdict = if is_gone { Verdict::Better } else { Verdict::Same };
    } else if limits.exceeds(after.others, before.others) && limits.exceeds(after.count, before.count) {
        // Many leaks are joined and then have no pod: not each of them is a further one.
        row.verdict = Verdict::Worse;
    }
    let may_be_missing = a.is_partial() || a.pods.len() < limits.pods;
    if row.verdict.is_worse() && (may_be_missing || kind == FindingKind::BlindSpot.into_str()) {
        row.verdict = Verdict::Unknown;
    }
    row
}

fn of_kind(pod: &Pod, kind: &str) -> f64 {
    f64::from(pod.findings.get(kind).copied().unwrap_or_default())
}

impl Samples<'_> {
    /// `whole`: that of which the limit is a part.
    fn row(&self, of: Of, name: String, limits: Limits, whole: f64) -> Row {
        let a = side(self.a, self.of);
        let b = side(self.b, self.of);
        let is_enough = a.count >= limits.pods && b.count >= limits.pods;
        let interval = is_enough.then(|| interval::difference(self.a, self.b, self.of, limits.rows));
        let difference = a.value.zip(b.value).map(|(a, b)| b - a);
        let verdict = match interval.zip(difference) {
            Some((interval, difference)) => {
                let (interval, difference) = if self.is_more_worse {
                    (interval, difference)
                } else {
                    (interval.negated(), -difference)
                };
                verdict(interval, difference, whole.abs() * f64::from(limits.percent) / 100.0)
            }
            None => Verdict::TooFew,
        };
        Row { of, name, a, b, difference, interval: interval.map(|it| [it.low, it.high]), verdict }
    }
}

fn side(sample: &[f64], of: Statistic) -> Side {
    let value = if sample.is_empty() { None } else { Some(of(&mut sample.to_vec())) };
    Side { count: sample.len(), value }
}

/// Judges a difference of which more is worse.
fn verdict(interval: Interval, difference: f64, limit: f64) -> Verdict {
    if interval.low > 0.0 {
        if difference > limit { Verdict::Worse } else { Verdict::WithinLimit }
    } else if interval.high < 0.0 {
        Verdict::Better
    } else {
        Verdict::Same
    }
}
