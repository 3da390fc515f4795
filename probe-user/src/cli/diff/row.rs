//! The rows of the comparison: two numbers, how far they are apart, and whether that is worse.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{
    interval::{self, Interval, Statistic, mean, median},
    recorded::{Found, Orders, Pod, Recorded},
};
use crate::{
    model::{finding::Severity, phase::Kind},
    sink::render::phase,
};

/// A number of both recordings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) of: Of,
    pub(super) name: String,
    pub(super) a: Side,
    pub(super) b: Side,
    /// B less A, and within what that lies in 95 of 100 cases.
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
    /// A finding of a kind that A has not.
    New,
    WithinLimit,
    Same,
    Better,
    /// Too few starts or pods to tell.
    TooFew,
    /// A finding that needs nobody, or one that is not about a pod and that both recordings have.
    NotJudged,
}

/// What may be worse in B, and what a recording must have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) percent: u32,
    pub(super) pods: usize,
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
            Self::NotJudged => "-",
        }
    }
}

/// Returns the rows: the phases of starts, what was ordered for each pod, and the findings.
pub(super) fn rows(a: &Recorded, b: &Recorded, limits: Limits) -> Vec<Row> {
    let mut rows = starts(a, b, limits);
    rows.extend(orders(a, b, limits));
    rows.extend(findings(a, b, limits));
    rows
}

/// Compares the phases that either recording has, in their order. The limit is a part of A's whole start, so
/// that a phase of a millisecond may double.
fn starts(a: &Recorded, b: &Recorded, limits: Limits) -> Vec<Row> {
    let all = a.starts.iter().chain(&b.starts).filter(|(_, seconds)| !seconds.is_empty());
    let kinds: BTreeSet<&Kind> = all.filter_map(|(kind, _)| kind.as_ref()).collect();
    let whole = median(&mut a.seconds(None).to_vec());
    let of_start = kinds.into_iter().map(Some).chain([None]);
    of_start
        .map(|kind| {
            let name = phase::of_start(kind);
            let samples = Samples { a: a.seconds(kind), b: b.seconds(kind), of: median, is_more_worse: true };
            samples.row(Of::Start, name, limits, whole)
        })
        .collect()
}

/// The rows without which nothing can be said: a phase may be one of a few starts only.
pub(super) const NEEDED: [&str; 2] = [phase::WHOLE, SANDBOXES];
const SANDBOXES: &str = "sandboxes / pod";

/// The name of an order, and how many of it a pod has. More is worse.
type Order = (&'static str, fn(&Orders) -> u32);

const ORDERS: [Order; 4] = [
    (SANDBOXES, |it| it.sandboxes),
    ("ADDs / pod", |it| it.adds),
    ("failed ADDs / pod", |it| it.failed_adds),
    ("failed DELs / pod", |it| it.failed_dels),
];

fn orders(a: &Recorded, b: &Recorded, limits: Limits) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (name, of) in ORDERS {
        let [a, b] =
            [a, b].map(|it| it.pods.iter().map(|pod| f64::from(of(&pod.orders))).collect::<Vec<_>>());
        rows.push(per_pod(&a, &b, true).row(Of::Pod, name.to_owned(), limits, mean(&mut a.clone())));
    }
    let samples = per_pod(&a.released, &b.released, false);
    rows.push(samples.row(Of::Pod, "releases / ADD".to_owned(), limits, mean(&mut a.released.clone())));
    rows
}

fn per_pod<'a>(a: &'a [f64], b: &'a [f64], is_more_worse: bool) -> Samples<'a> {
    Samples { a, b, of: mean, is_more_worse }
}

fn findings(a: &Recorded, b: &Recorded, limits: Limits) -> Vec<Row> {
    let kinds: BTreeSet<&'static str> = a.findings.keys().chain(b.findings.keys()).copied().collect();
    kinds.into_iter().map(|kind| finding(kind, a, b, limits)).collect()
}

/// Compares the findings of a kind. One that A has not needs no statistics: it was confirmed.
fn finding(kind: &'static str, a: &Recorded, b: &Recorded, limits: Limits) -> Row {
    let [of_a, of_b] = [a, b].map(|it| it.pods.iter().map(|pod| of_kind(pod, kind)).collect::<Vec<f64>>());
    let mut row =
        per_pod(&of_a, &of_b, true).row(Of::Finding, kind.to_owned(), limits, mean(&mut of_a.clone()));
    let before = a.findings.get(kind);
    let after = b.findings.get(kind);
    row.a.count = before.map_or(0, |it| it.count);
    row.b.count = after.map_or(0, |it| it.count);
    let both: Vec<&Found> = before.into_iter().chain(after).collect();
    if !both.iter().all(|it| it.is_of_pods) {
        row.a.value = None;
        row.b.value = None;
        row.difference = None;
        row.interval = None;
        row.verdict = Verdict::NotJudged;
    }
    if both.iter().all(|it| it.worst == Severity::Info) {
        row.verdict = Verdict::NotJudged;
    } else if before.is_none() {
        row.verdict = Verdict::New;
    } else if after.is_none() {
        row.verdict = Verdict::Better;
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
        let interval = is_enough.then(|| interval::difference(self.a, self.b, self.of));
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
