//! Incidents: the findings that one cause led to, with the chain from the cause to its last effect.
//!
//! A finding is an effect of another one if a row of the table of [`relation`] says so and both name the same
//! sandbox, plugin, network or address. A finding without a cause that is about one sandbox belongs to the
//! first finding about that sandbox. If the causes of a finding lie in several incidents, it begins an
//! incident of its own and names them.
//!
//! What is not one incident: findings that merely happen at the same time, and those of one pod or one node
//! that share nothing more.
//!
//! **Invariant:** incidents follow from the findings alone, in whatever order they come. Each finding is in
//! exactly one incident, whose key is that of its first finding. A cause comes before its effect in one order
//! of all findings ([`relation::order`]), so no chain has a cycle.

mod relation;
mod thing;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use relation::{RELATIONS, Relation};
use thing::By;

use crate::model::{
    change::Finding,
    fact::PodName,
    finding::{FindingKind, Key, Severity, Stage, Thing},
    id::ContainerId,
};

/// A wait for a failed service of the node may have begun at most this long before the failure.
const MOMENT: Duration = Duration::from_secs(60);

/// All findings as incidents.
#[derive(Debug)]
pub struct Incidents<'a> {
    /// Causes before effects.
    rows: Vec<Row<'a>>,
    places: BTreeMap<&'a Key, usize>,
}

/// A finding, with the places of the findings that it depends on.
#[derive(Debug)]
struct Row<'a> {
    finding: &'a Finding,
    causes: Vec<(usize, &'static str)>,
    effects: Vec<usize>,
    /// The first finding about the same sandbox, if no cause is known.
    with: Option<usize>,
    root: usize,
}

/// The findings that one cause led to.
#[derive(Debug)]
pub struct Incident<'a> {
    /// The root first; each effect below its cause.
    pub members: Vec<Member<'a>>,
}

/// A finding as a part of its incident.
#[derive(Debug)]
pub struct Member<'a> {
    pub finding: &'a Finding,
    /// The number of steps from the root.
    pub depth: usize,
    pub causes: Vec<Cause<'a>>,
    /// A finding about the same sandbox, if no cause is known.
    pub with: Option<&'a Finding>,
}

/// What led to a finding.
#[derive(Clone, Copy, Debug)]
pub struct Cause<'a> {
    pub finding: &'a Finding,
    /// How it led to the effect, in one clause.
    pub why: &'static str,
}

/// The place of a finding among the incidents.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    /// The first finding of its incident.
    pub root: &'a Finding,
    pub causes: Vec<Cause<'a>>,
    pub effects: Vec<&'a Finding>,
    pub with: Option<&'a Finding>,
}

impl Place<'_> {
    /// Whether the finding is an effect of another one, or belongs to one about the same sandbox.
    #[must_use]
    pub fn is_effect(&self) -> bool {
        !self.causes.is_empty() || self.with.is_some()
    }
}

impl<'a> Incidents<'a> {
    #[must_use]
    pub fn of(findings: impl IntoIterator<Item = &'a Finding>) -> Self {
        let mut findings: Vec<&Finding> = findings.into_iter().collect();
        findings.sort_by_cached_key(|it| relation::order(it));
        let index = Index::of(&findings);
        let mut rows: Vec<Row<'a>> = Vec::with_capacity(findings.len());
        for (at, finding) in findings.iter().copied().enumerate() {
            let causes = nearest(&rows, index.causes(&findings, at));
            let with = index.with(finding).filter(|with| *with < at && causes.is_empty());
            let mut roots: BTreeSet<usize> =
                causes.iter().map(|(cause, _)| *cause).chain(with).map(|it| rows[it].root).collect();
            let root = match roots.pop_first() {
                Some(only) if roots.is_empty() => only,
                Some(_) | None => at,
            };
            for (cause, _) in &causes {
                rows[*cause].effects.push(at);
            }
            rows.push(Row { finding, causes, effects: Vec::new(), with, root });
        }
        let places = rows.iter().enumerate().map(|(at, row)| (&row.finding.key, at)).collect();
        Self { rows, places }
    }

    /// Returns the place of a finding; `None` if it is not one of these.
    #[must_use]
    pub fn place(&self, key: &Key) -> Option<Place<'a>> {
        let row = &self.rows[*self.places.get(key)?];
        Some(Place {
            root: self.rows[row.root].finding,
            causes: self.causes(row),
            effects: row.effects.iter().map(|at| self.rows[*at].finding).collect(),
            with: row.with.map(|at| self.rows[at].finding),
        })
    }

    /// Returns all incidents, sorted by their keys.
    #[must_use]
    pub fn all(&self) -> Vec<Incident<'a>> {
        // For each finding, the findings that are shown below it.
        let mut below: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut roots: BTreeMap<&Key, usize> = BTreeMap::new();
        for (at, row) in self.rows.iter().enumerate() {
            if row.root == at {
                roots.insert(&row.finding.key, at);
            } else if let Some(above) = row.above() {
                below.entry(above).or_default().push(at);
            }
        }
        roots.into_values().map(|root| self.incident(root, &below)).collect()
    }

    fn incident(&self, root: usize, below: &BTreeMap<usize, Vec<usize>>) -> Incident<'a> {
        let mut members = Vec::new();
        let mut next = vec![(root, 0)];
        while let Some((at, depth)) = next.pop() {
            let row = &self.rows[at];
            members.push(Member {
                finding: row.finding,
                depth,
                causes: self.causes(row),
                with: row.with.map(|at| self.rows[at].finding),
            });
            let effects = below.get(&at).into_iter().flatten().rev();
            // An effect of several incidents is not in `below`.
            next.extend(effects.map(|effect| (*effect, depth + 1)));
        }
        Incident { members }
    }

    fn causes(&self, row: &Row<'a>) -> Vec<Cause<'a>> {
        row.causes.iter().map(|(at, why)| Cause { finding: self.rows[*at].finding, why }).collect()
    }
}

impl Row<'_> {
    /// Returns the finding below which this one is shown: the last of its causes, or the one about the same
    /// sandbox.
    fn above(&self) -> Option<usize> {
        self.causes.last().map(|(cause, _)| *cause).or(self.with)
    }
}

impl<'a> Incident<'a> {
    /// Returns the first finding. Its key is that of the incident.
    #[must_use]
    pub fn root(&self) -> Option<&'a Finding> {
        self.members.first().map(|it| it.finding)
    }

    /// Returns the first pod that its findings name.
    #[must_use]
    pub fn pod(&self) -> Option<&'a PodName> {
        self.members.iter().find_map(|it| it.finding.pod.as_ref())
    }

    /// Returns the members that count: the open ones, or all if none is open.
    fn counted(&self) -> impl Iterator<Item = &'a Finding> {
        let is_over = self.members.iter().all(|it| it.finding.stage == Stage::Closed);
        let all = self.members.iter().map(|it| it.finding);
        all.filter(move |it| is_over || it.stage != Stage::Closed)
    }

    /// Returns the worst severity of its open findings.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.counted().map(|it| it.severity).max().unwrap_or(Severity::Info)
    }

    /// Returns `Confirmed` if one of its findings is, `Closed` if none is open.
    #[must_use]
    pub fn stage(&self) -> Stage {
        let mut stage = Stage::Closed;
        for it in &self.members {
            match it.finding.stage {
                Stage::Confirmed => return Stage::Confirmed,
                Stage::Candidate => stage = Stage::Candidate,
                Stage::Closed => {}
            }
        }
        stage
    }
}

/// The findings by what they share.
struct Index<'a> {
    causes: BTreeMap<(FindingKind, Thing<'a>), Vec<usize>>,
    /// The first finding about each sandbox, of the findings about exactly one.
    first: BTreeMap<&'a ContainerId, usize>,
}

impl<'a> Index<'a> {
    /// `findings` must be in the order of [`relation::order`].
    fn of(findings: &[&'a Finding]) -> Self {
        let mut index = Self { causes: BTreeMap::new(), first: BTreeMap::new() };
        for (at, finding) in findings.iter().copied().enumerate() {
            let kind = FindingKind::from(&finding.kind);
            let led = RELATIONS.iter().filter(|it| it.cause == kind);
            let things: BTreeSet<Thing<'_>> = led.flat_map(|it| thing::shared(finding, it.by)).collect();
            for thing in things {
                index.causes.entry((kind, thing)).or_default().push(at);
            }
            if let Some(sandbox) = thing::only_sandbox(finding) {
                index.first.entry(sandbox).or_insert(at);
            }
        }
        index
    }

    /// Returns the findings that led to this one, in order, each once.
    fn causes(&self, findings: &[&'a Finding], effect: usize) -> BTreeMap<usize, &'static str> {
        let mut causes = BTreeMap::new();
        let finding = findings[effect];
        let kind = FindingKind::from(&finding.kind);
        for relation in RELATIONS.iter().filter(|it| it.effect == kind) {
            for thing in thing::shared(finding, relation.by) {
                let all = self.causes.get(&(relation.cause, thing)).into_iter().flatten();
                let led = all.filter(|at| **at < effect && relation.leads(findings[**at], finding));
                // The first row of the table counts.
                led.for_each(|at| {
                    causes.entry(*at).or_insert(relation.why);
                });
            }
        }
        causes
    }

    fn with(&self, finding: &Finding) -> Option<usize> {
        self.first.get(thing::only_sandbox(finding)?).copied()
    }
}

/// Returns the causes that led to a finding directly, not through another one of them.
fn nearest(rows: &[Row<'_>], causes: BTreeMap<usize, &'static str>) -> Vec<(usize, &'static str)> {
    let mut far = BTreeSet::new();
    let mut next: Vec<usize> = causes.keys().copied().collect();
    while let Some(at) = next.pop() {
        for (cause, _) in &rows[at].causes {
            if far.insert(*cause) {
                next.push(*cause);
            }
        }
    }
    causes.into_iter().filter(|(cause, _)| !far.contains(cause)).collect()
}

impl Relation {
    /// Whether one led to the other. They share a thing.
    fn leads(&self, cause: &Finding, effect: &Finding) -> bool {
        // A finding of several calls names the time of one of them, which may be later than its opening.
        let began_before = cause.since.min(cause.opened_at) <= effect.opened_at;
        let lasted = cause.closed_at.is_none_or(|closed| effect.since <= closed);
        // An effect that began long before, or was found long after, waited for something else.
        let is_near = self.by != By::Node
            || cause.since <= effect.since + MOMENT
                && cause.closed_at.is_none_or(|closed| effect.opened_at <= closed);
        began_before && is_near && (lasted || !self.lasts) && (self.holds)(cause, effect)
    }
}

#[cfg(test)]
mod tests;
