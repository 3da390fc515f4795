//! A rule judges one subject at a time, and what it found of each is kept until the subject is marked or due again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{DetectContext, index::Marks};
use crate::model::time::Timestamp;

pub(super) trait Rule {
    /// What is judged: a sandbox, a pod, an address.
    type Subject: Clone + Ord;
    /// What is found of one: a detection, or what several of make one.
    type Part;

    /// Everything that there is to judge.
    fn subjects(ctx: &DetectContext<'_>) -> BTreeSet<Self::Subject>;

    fn marked(marks: &Marks) -> &BTreeSet<Self::Subject>;

    /// Whether what was found of one subject may turn by what changed of others.
    fn leans_on(_marks: &Marks) -> bool {
        false
    }

    fn judge(ctx: &DetectContext<'_>, subject: &Self::Subject, found: &mut Vec<Self::Part>);

    /// When the part is to be looked at again though nothing changed.
    fn again(part: &Self::Part) -> Option<Timestamp>;
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
        let again = parts.iter().filter_map(R::again).min();
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
