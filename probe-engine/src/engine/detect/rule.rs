//! How a kind is looked for: by a rule that judges one subject at a time, and what it found of each is kept until the
//! subject is marked or due again; or by a scan.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{DetectContext, Detection, index::Marks};
use crate::model::{finding::FindingKind, time::Timestamp};

pub(super) trait Rule {
    /// What is judged: a sandbox, a pod, an address.
    type Subject: Clone + Ord + Send;
    /// What is found of one: a detection, or what several of make one.
    type Part: Part;

    /// Everything that there is to judge.
    fn subjects(ctx: &DetectContext<'_>) -> BTreeSet<Self::Subject>;

    fn marked(marks: &Marks) -> &BTreeSet<Self::Subject>;

    /// Whether what was found of one subject may turn by what changed of others.
    fn leans_on(_marks: &Marks) -> bool {
        false
    }

    fn judge(ctx: &DetectContext<'_>, subject: &Self::Subject, found: &mut Vec<Self::Part>);
}

/// What is found of one subject.
pub(super) trait Part: Send {
    /// When it is to be looked at again though nothing changed.
    fn again(&self) -> Option<Timestamp>;
}

impl Part for Detection {
    fn again(&self) -> Option<Timestamp> {
        self.standing.again()
    }
}

/// Finds what there is of one kind.
pub(super) trait Detector: fmt::Debug + Send {
    fn kind(&self) -> FindingKind;

    /// Judges what is marked or due. True: there may be other detections than before.
    fn look(&mut self, ctx: &DetectContext<'_>, scope: &Scope) -> bool;

    fn gather(&self, ctx: &DetectContext<'_>, found: &mut Vec<Detection>);

    /// When to look again though nothing changes.
    fn again(&self) -> Option<Timestamp>;

    /// How much there is to be put together.
    fn size(&self) -> usize;
}

/// A kind whose subjects are judged one by one.
pub(super) struct BySubject<R: Rule> {
    kind: FindingKind,
    judged: Judged<R>,
    /// `gather` also looks at what belongs to no subject.
    scans: bool,
    gather: fn(&DetectContext<'_>, &Judged<R>, &mut Vec<Detection>),
}

/// A kind that is looked for anew each time: there is little to look at.
#[derive(Debug)]
pub(super) struct ByScan {
    kind: FindingKind,
    detect: fn(&DetectContext<'_>, &mut Vec<Detection>),
}

impl<R: Rule + 'static> BySubject<R> {
    /// `gather` makes detections of the parts.
    pub(super) fn detector(
        kind: FindingKind,
        gather: fn(&DetectContext<'_>, &Judged<R>, &mut Vec<Detection>),
    ) -> Box<dyn Detector> {
        Box::new(Self { kind, judged: Judged::default(), scans: false, gather })
    }

    /// `gather` looks at what belongs to no subject, too.
    pub(super) fn and_scan(
        kind: FindingKind,
        gather: fn(&DetectContext<'_>, &Judged<R>, &mut Vec<Detection>),
    ) -> Box<dyn Detector> {
        Box::new(Self { kind, judged: Judged::default(), scans: true, gather })
    }
}

impl<R: Rule<Part = Detection> + 'static> BySubject<R> {
    /// Each part is a detection.
    pub(super) fn each(kind: FindingKind) -> Box<dyn Detector> {
        Self::detector(kind, |_, judged, found| found.extend(judged.parts().cloned()))
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

    fn look(&mut self, ctx: &DetectContext<'_>, scope: &Scope) -> bool {
        self.judged.look(ctx, scope) || self.scans
    }

    fn gather(&self, ctx: &DetectContext<'_>, found: &mut Vec<Detection>) {
        (self.gather)(ctx, &self.judged, found);
    }

    fn again(&self) -> Option<Timestamp> {
        self.judged.again()
    }

    fn size(&self) -> usize {
        self.judged.len()
    }
}

impl Detector for ByScan {
    fn kind(&self) -> FindingKind {
        self.kind
    }

    fn look(&mut self, _ctx: &DetectContext<'_>, _scope: &Scope) -> bool {
        true
    }

    fn gather(&self, ctx: &DetectContext<'_>, found: &mut Vec<Detection>) {
        (self.detect)(ctx, found);
    }

    /// What it found says itself when to look again.
    fn again(&self) -> Option<Timestamp> {
        None
    }

    fn size(&self) -> usize {
        0
    }
}

/// What a look is about.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) marks: Marks,
    /// Something changed that every verdict may be made of.
    pub(super) everything: bool,
    /// Something changed that can only turn what was found already.
    pub(super) found: bool,
}

/// What a rule has found.
pub(super) struct Judged<R: Rule> {
    subjects: BTreeMap<R::Subject, Found<R>>,
    due: BTreeSet<(Timestamp, R::Subject)>,
}

struct Found<R: Rule> {
    parts: Vec<R::Part>,
    again: Option<Timestamp>,
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
    /// Judges what is marked or due. True: what was found may be other than before.
    pub(super) fn look(&mut self, ctx: &DetectContext<'_>, scope: &Scope) -> bool {
        let mut subjects = if scope.everything { R::subjects(ctx) } else { R::marked(&scope.marks).clone() };
        if scope.everything || scope.found || R::leans_on(&scope.marks) {
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
        let before = self.subjects.remove(&subject);
        if let Some(at) = before.as_ref().and_then(|before| before.again) {
            self.due.remove(&(at, subject.clone()));
        }
        if parts.is_empty() {
            return before.is_some();
        }
        let again = parts.iter().filter_map(Part::again).min();
        self.due.extend(again.map(|at| (at, subject.clone())));
        self.subjects.insert(subject, Found { parts, again });
        true
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = &R::Part> {
        self.subjects.values().flat_map(|found| &found.parts)
    }

    pub(super) fn again(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// How many subjects there is something found of.
    pub(super) fn len(&self) -> usize {
        self.subjects.len()
    }
}
