//! How the detections of a kind are made. A rule judges one subject at a time, and its result is kept until
//! the subject is marked or due again. A scan looks at everything each time.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{
    DetectContext, Detection, Verdict,
    index::{Marks, Subjects},
};
use crate::model::{
    finding::{FindingKind, Kind},
    time::Timestamp,
};

pub(super) trait Rule {
    /// The type of the judged things: a sandbox, a pod, an address.
    type Subject: Clone + Ord + Send;
    /// The result for one subject: a detection, or a part of one.
    type Part: Part;
    const SUBJECTS: Subjects<Self::Subject>;

    /// Whether these changes may change the verdicts on other subjects that have a result.
    fn depends_on_others(_marks: &Marks) -> bool {
        false
    }

    fn judge(ctx: &DetectContext<'_>, subject: &Self::Subject, found: &mut Vec<Self::Part>);
}

/// A result for one subject.
pub(super) trait Part: Send {
    /// Returns when the subject must be judged again if nothing changes.
    fn due_at(&self) -> Option<Timestamp>;

    /// Whether this part makes the same detections as the other one, if no other part changed. `false` if
    /// that also depends on more than the part.
    fn makes_same(&self, _other: &Self) -> bool {
        false
    }
}

impl Part for Detection {
    fn due_at(&self) -> Option<Timestamp> {
        self.verdict.due_at()
    }

    fn makes_same(&self, other: &Self) -> bool {
        self == other
    }
}

/// The result of a rule whose subjects go through steps. Each step has a limit of its own.
#[derive(PartialEq)]
pub(super) enum Step {
    Detected(Box<Detection>),
    /// The open finding is about an earlier step, which is over, so it closes. This step is judged again at
    /// `until`.
    Begins {
        until: Option<Timestamp>,
    },
}

impl Step {
    /// Makes the step of a detection. `is_same`: whether an open finding is about the detected step.
    pub(super) fn of(ctx: &DetectContext<'_>, it: Detection, is_same: fn(&Kind, &Kind) -> bool) -> Self {
        let is_over = ctx.open_finding(&it.key).is_some_and(|open| !is_same(&open.kind, &it.kind));
        match it.verdict {
            Verdict::Watched { until } if is_over => Self::Begins { until },
            Verdict::Watched { .. }
            | Verdict::Candidate { .. }
            | Verdict::Unsure
            | Verdict::Unverified
            | Verdict::Unlisted
            | Verdict::Confirmed
            | Verdict::Passing { .. } => Self::Detected(Box::new(it)),
        }
    }

    pub(super) fn detection(&self) -> Option<&Detection> {
        match self {
            Self::Detected(it) => Some(it),
            Self::Begins { .. } => None,
        }
    }
}

impl Part for Step {
    fn due_at(&self) -> Option<Timestamp> {
        match self {
            Self::Detected(it) => it.due_at(),
            Self::Begins { until } => *until,
        }
    }

    fn makes_same(&self, other: &Self) -> bool {
        self == other
    }
}

/// Detects the problems of one kind.
pub(super) trait Detector: fmt::Debug + Send {
    fn kind(&self) -> FindingKind;

    /// Judges the marked and due subjects. Returns whether the detections may have changed.
    fn update(&mut self, ctx: &DetectContext<'_>, scope: &Scope) -> bool;

    fn gather(&self, ctx: &DetectContext<'_>, found: &mut Vec<Detection>);

    /// Returns when to judge again if nothing changes.
    fn due_at(&self) -> Option<Timestamp>;

    /// Returns how many subjects have a result.
    fn size(&self) -> usize;
}

/// A kind whose subjects are judged one by one.
pub(super) struct BySubject<R: Rule> {
    kind: FindingKind,
    judged: Judged<R>,
    /// `gather` also looks at state that belongs to no subject.
    scans: bool,
    gather: fn(&DetectContext<'_>, &Judged<R>, &mut Vec<Detection>),
}

/// A kind that is scanned each time, because there is little to scan.
#[derive(Debug)]
pub(super) struct ByScan {
    kind: FindingKind,
    detect: fn(&DetectContext<'_>, &mut Vec<Detection>),
}

impl<R: Rule + 'static> BySubject<R> {
    /// Makes a detector whose `gather` makes detections of the results.
    pub(super) fn detector(
        kind: FindingKind,
        gather: fn(&DetectContext<'_>, &Judged<R>, &mut Vec<Detection>),
    ) -> Box<dyn Detector> {
        Box::new(Self { kind, judged: Judged::default(), scans: false, gather })
    }

    /// Makes a detector whose `gather` also looks at state that belongs to no subject.
    pub(super) fn and_scan(
        kind: FindingKind,
        gather: fn(&DetectContext<'_>, &Judged<R>, &mut Vec<Detection>),
    ) -> Box<dyn Detector> {
        Box::new(Self { kind, judged: Judged::default(), scans: true, gather })
    }
}

impl<R: Rule<Part = Detection> + 'static> BySubject<R> {
    /// Makes a detector of which each result is a detection.
    pub(super) fn each(kind: FindingKind) -> Box<dyn Detector> {
        Self::detector(kind, |_, judged, found| found.extend(judged.parts().cloned()))
    }
}

impl<R: Rule<Part = Step> + 'static> BySubject<R> {
    /// Makes a detector of which each detected step of a subject is a detection.
    pub(super) fn each_step(kind: FindingKind) -> Box<dyn Detector> {
        Self::detector(kind, |_, judged, found| {
            found.extend(judged.parts().filter_map(Step::detection).cloned());
        })
    }
}

impl ByScan {
    pub(super) fn detector(
        kind: FindingKind,
        detect: fn(&DetectContext<'_>, &mut Vec<Detection>),
    ) -> Box<dyn Detector> {
        Box::new(Self { kind, detect })
    }
}

impl<R: Rule> fmt::Debug for BySubject<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BySubject")
            .field("kind", &self.kind)
            .field("judged", &self.judged)
            .finish_non_exhaustive()
    }
}

impl<R: Rule> Detector for BySubject<R> {
    fn kind(&self) -> FindingKind {
        self.kind
    }

    fn update(&mut self, ctx: &DetectContext<'_>, scope: &Scope) -> bool {
        self.judged.update(ctx, scope) || self.scans
    }

    fn gather(&self, ctx: &DetectContext<'_>, found: &mut Vec<Detection>) {
        (self.gather)(ctx, &self.judged, found);
    }

    fn due_at(&self) -> Option<Timestamp> {
        self.judged.due_at()
    }

    fn size(&self) -> usize {
        self.judged.len()
    }
}

impl Detector for ByScan {
    fn kind(&self) -> FindingKind {
        self.kind
    }

    fn update(&mut self, _ctx: &DetectContext<'_>, _scope: &Scope) -> bool {
        true
    }

    fn gather(&self, ctx: &DetectContext<'_>, found: &mut Vec<Detection>) {
        (self.detect)(ctx, found);
    }

    /// The detections themselves determine when to judge again.
    fn due_at(&self) -> Option<Timestamp> {
        None
    }

    fn size(&self) -> usize {
        0
    }
}

/// The subjects that a look must judge.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) marks: Marks,
    /// The state of the whole node, on which any verdict may depend, changed.
    pub(super) everything: bool,
    /// Records were read, which can change only verdicts that have a detection.
    pub(super) records: bool,
}

/// The results of a rule.
pub(super) struct Judged<R: Rule> {
    subjects: BTreeMap<R::Subject, Found<R>>,
    due: BTreeSet<(Timestamp, R::Subject)>,
}

struct Found<R: Rule> {
    parts: Vec<R::Part>,
    due_at: Option<Timestamp>,
}

impl<R: Rule> fmt::Debug for Judged<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judged").field("subjects", &self.subjects.len()).finish_non_exhaustive()
    }
}

impl<R: Rule> Default for Judged<R> {
    fn default() -> Self {
        Self { subjects: BTreeMap::new(), due: BTreeSet::new() }
    }
}

impl<R: Rule> Judged<R> {
    /// Judges the marked and due subjects. Returns whether the results may have changed.
    pub(super) fn update(&mut self, ctx: &DetectContext<'_>, scope: &Scope) -> bool {
        let Subjects { all, marked } = R::SUBJECTS;
        let mut subjects = if scope.everything { all(ctx) } else { marked(&scope.marks).clone() };
        if scope.everything || scope.records || R::depends_on_others(&scope.marks) {
            subjects.extend(self.subjects.keys().cloned());
        }
        let due = self.due.iter().take_while(|(at, _)| *at <= ctx.now);
        subjects.extend(due.map(|(_, subject)| subject.clone()));
        let mut is_changed = false;
        for subject in subjects {
            is_changed |= self.judge(ctx, subject);
        }
        is_changed
    }

    fn judge(&mut self, ctx: &DetectContext<'_>, subject: R::Subject) -> bool {
        let mut parts = Vec::new();
        R::judge(ctx, &subject, &mut parts);
        let before = self.subjects.get(&subject);
        if before.is_none() && parts.is_empty() {
            return false;
        }
        let is_same = before.is_some_and(|before| {
            before.parts.len() == parts.len()
                && before.parts.iter().zip(&parts).all(|(one, other)| one.makes_same(other))
        });
        if is_same {
            return false;
        }
        if let Some(at) = before.and_then(|before| before.due_at) {
            self.due.remove(&(at, subject.clone()));
        }
        if parts.is_empty() {
            self.subjects.remove(&subject);
            return true;
        }
        let due_at = parts.iter().filter_map(Part::due_at).min();
        self.due.extend(due_at.map(|at| (at, subject.clone())));
        // Most subjects have one part, and a vector begins with room for four.
        parts.shrink_to_fit();
        self.subjects.insert(subject, Found { parts, due_at });
        true
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = &R::Part> {
        self.subjects.values().flat_map(|found| &found.parts)
    }

    pub(super) fn due_at(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Returns how many subjects have a result.
    pub(super) fn len(&self) -> usize {
        self.subjects.len()
    }
}
