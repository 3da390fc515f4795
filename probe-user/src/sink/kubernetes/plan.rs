//! Which Events the API server is to have, by the findings as they are now.
//!
//! An incident has one Event on each pod that its findings name, and one on the node. The Event is that of the first
//! finding in the chain of causes which is about that object. It ends with its finding; if the incident goes on, the
//! next finding of it gets an Event.
//!
//! What gets none: candidates, which may come right by themselves, and findings to be merely known (severity `info`).
//!
//! **Invariant:** what is to be told follows from the findings and from what was told. So nothing is queued while the API
//! server is away: once it is back, what is wrong by then is told, and what came and went meanwhile is not. An Event ends only
//! if it was told.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use serde::{Deserialize, Serialize};

use crate::{
    engine::incident::{Incident, Incidents},
    model::{
        change::Finding,
        fact::PodName,
        finding::{FindingKind, Key, Severity, Stage},
        id::PodUid,
        time::Timestamp,
    },
};

/// The most Events of one kind that stand on the node at one time. A thousand leaked addresses are one problem.
const ON_NODE: usize = 10;
/// The same on one pod.
const ON_POD: usize = 3;

/// What an Event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Object {
    Node,
    Pod { namespace: String, name: String, uid: PodUid },
}

/// A finding as the subject of an Event on an object. An object has one Event for each finding at most.
pub(super) type Subject = (Object, Key);

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) subject: Subject,
    pub(super) reason: FindingKind,
    /// What the Event says.
    pub(super) text: String,
    /// When the finding was opened.
    opened_at: Timestamp,
    pub(super) deed: Deed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// It is told for the first time.
    Begin,
    /// It was over, and is back. So many times it was told before.
    Again { count: i32 },
    /// It is over.
    End,
}

/// What was told.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ledger {
    told: BTreeMap<Subject, Told>,
    /// What failed when it was last tried. It is tried after the others, so that it does not keep them from being told.
    failed: BTreeSet<Subject>,
}

/// An Event that was told, as the next agent of the same boot reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    object: Object,
    key: Key,
    #[serde(flatten)]
    told: Told,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Told {
    opened_at: Timestamp,
    reason: FindingKind,
    text: String,
    is_over: bool,
    /// How many times the finding came.
    count: i32,
}

/// The steps that are due, and how many Events are withheld because too many of their kind stand.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) withheld: usize,
}

impl Ledger {
    /// What the last agent told.
    pub(super) fn of(entries: Vec<Entry>) -> Self {
        let told = entries.into_iter().map(|Entry { object, key, told }| ((object, key), told)).collect();
        Self { told, failed: BTreeSet::new() }
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        let entry = |((object, key), told): (&Subject, &Told)| Entry {
            object: object.clone(),
            key: key.clone(),
            told: told.clone(),
        };
        self.told.iter().map(entry).collect()
    }

    /// What is to be done, in order.
    pub(super) fn plan(&mut self, findings: &[Finding]) -> Plan {
        let by_key: BTreeMap<&Key, &Finding> = findings.iter().map(|it| (&it.key, it)).collect();
        self.told.retain(|(_, key), told| !told.is_over || by_key.contains_key(key));
        self.failed.retain(|(_, key)| by_key.contains_key(key));
        let (standing, over): (Vec<_>, Vec<_>) = self
            .told
            .iter()
            .filter(|(_, told)| !told.is_over)
            .partition(|((_, key), _)| by_key.get(key).is_some_and(|it| is_open(it)));
        let mut steps: Vec<Step> =
            over.into_iter().map(|(subject, told)| told.end(subject.clone())).collect();
        let mut stand: BTreeMap<(Object, FindingKind), usize> = BTreeMap::new();
        for ((object, _), told) in standing {
            *stand.entry((object.clone(), told.reason)).or_default() += 1;
        }
        let mut lacking = self.lacking(&Incidents::of(findings).all());
        lacking.sort_by_key(|(_, finding, _)| (Reverse(finding.severity), finding.confirmed_at));
        let mut withheld = 0;
        for (object, finding, deed) in lacking {
            let most = if object == Object::Node { ON_NODE } else { ON_POD };
            let stand = stand.entry((object.clone(), FindingKind::from(&finding.kind))).or_default();
            // One that stands already is only counted anew.
            let stands = self.told.get(&(object.clone(), finding.key.clone())).is_some_and(|it| !it.is_over);
            if stands || *stand < most {
                *stand += usize::from(!stands);
                steps.push(Step::of(object, finding, deed));
            } else {
                withheld += 1;
            }
        }
        steps.sort_by_key(|step| self.failed.contains(&step.subject));
        Plan { steps, withheld }
    }

    /// The Events that incidents lack: of which object, with which finding.
    fn lacking<'a>(&self, incidents: &[Incident<'a>]) -> Vec<(Object, &'a Finding, Deed)> {
        let mut lacking = Vec::new();
        for incident in incidents {
            // The root first.
            let open: Vec<&Finding> =
                incident.members.iter().map(|it| it.finding).filter(|it| is_open(it)).collect();
            // Of each object the finding that has an Event already, else the first one.
            let mut subjects: BTreeMap<Object, (&Finding, Option<&Told>)> = BTreeMap::new();
            for finding in &open {
                for object in objects(finding) {
                    let told = self.told.get(&(object.clone(), finding.key.clone()));
                    let subject = subjects.entry(object).or_insert((finding, told));
                    if told.is_some_and(|it| !it.is_over) {
                        *subject = (finding, told);
                    }
                }
            }
            for (object, (finding, told)) in subjects {
                let deed = match told {
                    None => Deed::Begin,
                    Some(told) if !told.is_over && told.opened_at == finding.opened_at => continue,
                    Some(told) => Deed::Again { count: told.count },
                };
                lacking.push((object, finding, deed));
            }
        }
        lacking
    }

    /// The step was done, or can never be. `count` is that of the Event, if the API server said it.
    pub(super) fn done(&mut self, step: Step, count: Option<i32>) {
        let Step { subject, reason, text, opened_at, deed } = step;
        self.failed.remove(&subject);
        let told = Told { opened_at, reason, text, is_over: deed == Deed::End, count: count.unwrap_or(1) };
        self.told.insert(subject, told);
    }

    /// The step is to be tried again.
    pub(super) fn failed(&mut self, step: Step) {
        self.failed.insert(step.subject);
    }
}

impl Told {
    fn end(&self, subject: Subject) -> Step {
        let Self { opened_at, reason, text, .. } = self.clone();
        Step { subject, reason, text, opened_at, deed: Deed::End }
    }
}

impl Step {
    #[cfg(test)]
    pub(super) fn new(subject: Subject, reason: FindingKind, text: String, deed: Deed) -> Self {
        Self { subject, reason, text, opened_at: Timestamp::ZERO, deed }
    }

    fn of(object: Object, finding: &Finding, deed: Deed) -> Self {
        let text = format!("{} (sandprobe explain {})", finding.kind.explain().summary(), finding.key);
        Self {
            subject: (object, finding.key.clone()),
            reason: FindingKind::from(&finding.kind),
            text,
            opened_at: finding.opened_at,
            deed,
        }
    }
}

fn is_open(finding: &Finding) -> bool {
    finding.stage == Stage::Confirmed && is_worthy(finding)
}

fn is_worthy(finding: &Finding) -> bool {
    finding.confirmed_at.is_some() && finding.severity > Severity::Info
}

/// The node, and the pod if it is known by all that an Event needs to be shown with it.
fn objects(finding: &Finding) -> impl Iterator<Item = Object> + use<> {
    let pod = finding.pod.clone().and_then(|PodName { namespace, name, uid }| {
        Some(Object::Pod { namespace: namespace?, name: name?, uid: uid? })
    });
    [Some(Object::Node), pod].into_iter().flatten()
}

#[cfg(test)]
mod tests;
