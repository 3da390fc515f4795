//! Decides which Events the API server should have, by the current findings.
//!
//! An incident has one Event on each pod that its findings name, and one on the node. The Event is about the
//! first finding in the chain of causes that concerns that object. It ends with its finding. If the incident
//! goes on, its next finding gets an Event.
//!
//! Candidates get no Event, because they may resolve themselves; nor do findings of severity `info`.
//!
//! **Invariant:** the plan follows from the findings and from what was reported. So nothing is queued while
//! the API server is away: once it is back, the problems of that moment are reported, and those that came and
//! went meanwhile are not. An Event ends only if it was reported.

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

/// The maximum number of open Events of one kind on the node. A thousand leaked addresses are one problem.
const ON_NODE: usize = 10;
/// The maximum number of open Events of one kind on a pod.
const ON_POD: usize = 3;

/// The object that an Event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Object {
    Node,
    Pod { namespace: String, name: String, uid: PodUid },
}

/// The object and the finding of an Event. An object has at most one Event for each finding.
pub(super) type Subject = (Object, Key);

/// A write to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) subject: Subject,
    pub(super) reason: FindingKind,
    /// The message of the Event.
    pub(super) text: String,
    /// When the finding was opened.
    opened_at: Timestamp,
    pub(super) action: EventAction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventAction {
    /// Reports the finding for the first time.
    Begin,
    /// Reports a finding that was over and is back. `count`: how many times it was reported before.
    Again { count: i32 },
    /// Reports that the finding is over.
    End,
}

/// The Events that were reported.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ledger {
    reported: BTreeMap<Subject, Reported>,
    /// The subjects whose last request failed. They are tried after the others, so that they do not hold
    /// these up.
    failed: BTreeSet<Subject>,
}

/// An Event that was reported, as the next agent of the same boot reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    object: Object,
    key: Key,
    #[serde(flatten)]
    reported: Reported,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Reported {
    opened_at: Timestamp,
    reason: FindingKind,
    text: String,
    is_over: bool,
    /// How many times the finding came.
    count: i32,
}

/// The steps that are due, and how many Events are withheld because too many of their kind are open.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) withheld: usize,
}

impl Ledger {
    /// Restores the Events that the last agent reported.
    pub(super) fn of(entries: Vec<Entry>) -> Self {
        let reported =
            entries.into_iter().map(|Entry { object, key, reported }| ((object, key), reported)).collect();
        Self { reported, failed: BTreeSet::new() }
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::with_capacity(self.reported.len());
        for ((object, key), reported) in &self.reported {
            entries.push(Entry { object: object.clone(), key: key.clone(), reported: reported.clone() });
        }
        entries
    }

    /// Plans what to do, in order.
    pub(super) fn plan(&mut self, findings: &[Finding]) -> Plan {
        let by_key: BTreeMap<&Key, &Finding> = findings.iter().map(|it| (&it.key, it)).collect();
        self.reported.retain(|(_, key), reported| !reported.is_over || by_key.contains_key(key));
        self.failed.retain(|(_, key)| by_key.contains_key(key));
        let (standing, over): (Vec<_>, Vec<_>) = self
            .reported
            .iter()
            .filter(|(_, reported)| !reported.is_over)
            .partition(|((_, key), _)| by_key.get(key).is_some_and(|it| is_open(it)));
        let mut steps: Vec<Step> =
            over.into_iter().map(|(subject, reported)| reported.end(subject.clone())).collect();
        let mut stand: BTreeMap<(Object, FindingKind), usize> = BTreeMap::new();
        for ((object, _), reported) in standing {
            *stand.entry((object.clone(), reported.reason)).or_default() += 1;
        }
        let mut lacking = self.lacking(&Incidents::of(findings).all());
        lacking.sort_by_key(|(_, finding, _)| (Reverse(finding.severity), finding.confirmed_at));
        let mut withheld = 0;
        for (object, finding, action) in lacking {
            let limit = if object == Object::Node { ON_NODE } else { ON_POD };
            let stand = stand.entry((object.clone(), FindingKind::from(&finding.kind))).or_default();
            // An Event that is already open only gets a new count.
            let stands =
                self.reported.get(&(object.clone(), finding.key.clone())).is_some_and(|it| !it.is_over);
            if stands || *stand < limit {
                *stand += usize::from(!stands);
                steps.push(Step::of(object, finding, action));
            } else {
                withheld += 1;
            }
        }
        steps.sort_by_key(|step| self.failed.contains(&step.subject));
        Plan { steps, withheld }
    }

    /// The Events that are missing: the object, and the finding that the Event should be about.
    fn lacking<'a>(&self, incidents: &[Incident<'a>]) -> Vec<(Object, &'a Finding, EventAction)> {
        let mut lacking = Vec::new();
        for incident in incidents {
            // The root first.
            let open: Vec<&Finding> =
                incident.members.iter().map(|it| it.finding).filter(|it| is_open(it)).collect();
            // For each object the finding that already has an Event, or else the first one.
            let mut subjects: BTreeMap<Object, (&Finding, Option<&Reported>)> = BTreeMap::new();
            for finding in &open {
                for object in objects(finding) {
                    let reported = self.reported.get(&(object.clone(), finding.key.clone()));
                    let subject = subjects.entry(object).or_insert((finding, reported));
                    if reported.is_some_and(|it| !it.is_over) {
                        *subject = (finding, reported);
                    }
                }
            }
            for (object, (finding, reported)) in subjects {
                let action = match reported {
                    None => EventAction::Begin,
                    Some(reported) if !reported.is_over && reported.opened_at == finding.opened_at => {
                        continue;
                    }
                    Some(reported) => EventAction::Again { count: reported.count },
                };
                lacking.push((object, finding, action));
            }
        }
        lacking
    }

    /// Records a step that was done or can never be done. `count` is the Event's, if the API server returned
    /// it.
    pub(super) fn done(&mut self, step: Step, count: Option<i32>) {
        let Step { subject, reason, text, opened_at, action } = step;
        self.failed.remove(&subject);
        let reported = Reported {
            opened_at,
            reason,
            text,
            is_over: action == EventAction::End,
            count: count.unwrap_or(1),
        };
        self.reported.insert(subject, reported);
    }

    /// Records a step that must be tried again.
    pub(super) fn failed(&mut self, step: Step) {
        self.failed.insert(step.subject);
    }
}

impl Reported {
    fn end(&self, subject: Subject) -> Step {
        let Self { opened_at, reason, text, .. } = self.clone();
        Step { subject, reason, text, opened_at, action: EventAction::End }
    }
}

impl Step {
    #[cfg(test)]
    pub(super) fn new(subject: Subject, reason: FindingKind, text: String, action: EventAction) -> Self {
        Self { subject, reason, text, opened_at: Timestamp::ZERO, action }
    }

    fn of(object: Object, finding: &Finding, action: EventAction) -> Self {
        let text = format!("{} (sandprobe explain {})", finding.kind.explain().summary(), finding.key);
        Self {
            subject: (object, finding.key.clone()),
            reason: FindingKind::from(&finding.kind),
            text,
            opened_at: finding.opened_at,
            action,
        }
    }
}

fn is_open(finding: &Finding) -> bool {
    finding.stage == Stage::Confirmed && is_worthy(finding)
}

fn is_worthy(finding: &Finding) -> bool {
    finding.confirmed_at.is_some() && finding.severity > Severity::Info
}

/// The objects of a finding: the node, and the pod, if everything that an Event on it needs is known.
fn objects(finding: &Finding) -> impl Iterator<Item = Object> + use<> {
    let pod = finding.pod.clone().and_then(|PodName { namespace, name, uid }| {
        Some(Object::Pod { namespace: namespace?, name: name?, uid: uid? })
    });
    [Some(Object::Node), pod].into_iter().flatten()
}

#[cfg(test)]
mod tests;
