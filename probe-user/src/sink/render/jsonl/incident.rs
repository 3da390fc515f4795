//! Incidents as objects, and the place of a finding in its incident, for the API and the commands. The stream
//! has neither, because a cause can be found after its effect was reported.

use schemars::JsonSchema;
use serde::Serialize;

use super::{finding::Finding, scalar::Decimal};
use crate::{
    engine::incident::{self, Incidents},
    known::{Catalogue, FixedIn},
    model::{
        change,
        fact::PodName,
        finding::{FindingKind, Key, Severity, Stage},
        time::Timestamp,
    },
    sink::{Label, render::wall_clock::Rfc3339},
};

/// A finding, the incident that it belongs to, and what led to it (docs/incidents.md).
#[derive(Serialize, JsonSchema)]
pub struct PlacedFinding<'a> {
    #[serde(flatten)]
    finding: Finding<'a>,
    /// The key of the incident, which is the key of its first finding.
    incident: &'a Key,
    /// The keys of the findings that led to this one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    caused_by: Vec<&'a Key>,
}

/// A finding that led to another one.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CauseOfFinding")]
pub(super) struct Cause<'a> {
    key: &'a Key,
    summary: String,
    /// How it led to the other finding, in one clause for people.
    why: &'a str,
}

/// The findings that one cause led to (docs/incidents.md).
#[derive(Serialize, JsonSchema)]
pub struct Incident<'a> {
    /// The key of its first finding.
    key: &'a Key,
    /// The worst of its open findings.
    severity: Severity,
    /// `confirmed` if one of its open findings is; `closed` if none is open.
    stage: Stage,
    /// When the first finding began.
    since: Rfc3339,
    since_boot_ns: Decimal<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<&'a PodName>,
    /// The first finding in one sentence.
    summary: String,
    /// Each effect below its cause.
    findings: Vec<Member<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fixed_in: Vec<FixedIn<'a>>,
}

/// A finding in its incident.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "IncidentMember")]
struct Member<'a> {
    key: &'a Key,
    kind: FindingKind,
    severity: Severity,
    stage: Stage,
    summary: String,
    /// How many steps it is from the first finding.
    depth: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<Cause<'a>>,
    /// A finding about the same sandbox, if no cause is known.
    #[serde(rename = "with", skip_serializing_if = "Option::is_none")]
    same_sandbox: Option<&'a Key>,
}

impl<'a> PlacedFinding<'a> {
    #[must_use]
    pub fn of(it: &'a change::Finding, incidents: &Incidents<'a>, label: &Label) -> Self {
        let place = incidents.place(&it.key);
        Self {
            finding: Finding::of(it, label),
            incident: place.as_ref().map_or(&it.key, |place| &place.root.key),
            caused_by: place.iter().flat_map(|it| &it.causes).map(|cause| &cause.finding.key).collect(),
        }
    }
}

impl<'a> Cause<'a> {
    pub(super) fn of(it: &incident::Cause<'a>) -> Self {
        Self { key: &it.finding.key, summary: it.finding.kind.explain().summary(), why: it.why }
    }
}

impl<'a> Incident<'a> {
    /// `None` if the incident has no finding.
    #[must_use]
    pub fn of(it: &incident::Incident<'a>, label: &Label) -> Option<Self> {
        let root = it.root()?;
        let since = it.members.iter().map(|it| it.finding.since).min().unwrap_or(Timestamp::ZERO);
        Some(Self {
            key: &root.key,
            severity: it.severity(),
            stage: it.stage(),
            since: Rfc3339(label.wall_ns(since)),
            since_boot_ns: Decimal(since.0),
            pod: it.pod(),
            summary: root.kind.explain().summary(),
            findings: it.members.iter().map(Member::of).collect(),
            fixed_in: fixed_in(it),
        })
    }
}

/// Returns the programs of which a later version fixes a problem of the incident, each once.
fn fixed_in<'a>(it: &incident::Incident<'a>) -> Vec<FixedIn<'a>> {
    let mut all: Vec<FixedIn<'a>> = Vec::new();
    for member in &it.members {
        all.extend(Catalogue::current().fixed_in(member.finding));
    }
    all.sort_unstable();
    all.dedup();
    all
}

impl<'a> Member<'a> {
    fn of(it: &incident::Member<'a>) -> Self {
        Self {
            key: &it.finding.key,
            kind: FindingKind::from(&it.finding.kind),
            severity: it.finding.severity,
            stage: it.finding.stage,
            summary: it.finding.kind.explain().summary(),
            depth: it.depth,
            causes: it.causes.iter().map(Cause::of).collect(),
            same_sandbox: it.with.map(|with| &with.key),
        }
    }
}

#[cfg(test)]
mod tests;
