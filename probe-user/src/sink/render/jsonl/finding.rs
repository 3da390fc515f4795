//! A finding as an object: in the stream, and as `sandprobe findings -o json` writes it.

use schemars::JsonSchema;
use serde::Serialize;

use super::scalar::Decimal;
use crate::{
    model::{
        change,
        fact::{PodName, ProgramFound},
        finding::{Detail, FindingKind, Key, Severity, Stage},
        id::ContainerId,
    },
    sink::{Label, render::wall_clock::Rfc3339},
};

/// One finding (docs/findings.md).
#[serde_with::skip_serializing_none]
#[derive(Serialize, JsonSchema)]
pub struct Finding<'a> {
    key: &'a Key,
    kind: FindingKind,
    severity: Severity,
    stage: Stage,
    /// When what is wrong began.
    since: Rfc3339,
    since_boot_ns: Decimal<u64>,
    opened_at: Rfc3339,
    confirmed_at: Option<Rfc3339>,
    closed_at: Option<Rfc3339>,
    pod: Option<&'a PodName>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    sandboxes: &'a [ContainerId],
    /// Records were lost meanwhile, so the real cause may be a different one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    gapped: bool,
    /// The finding in one sentence.
    summary: String,
    detail: Detail<'a>,
    /// The programs that had a part in it.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    programs: &'a [ProgramFound],
}

impl<'a> Finding<'a> {
    #[must_use]
    pub fn of(it: &'a change::Finding, label: &Label) -> Self {
        Self {
            key: &it.key,
            kind: FindingKind::from(&it.kind),
            severity: it.severity,
            stage: it.stage,
            since: Rfc3339(label.wall_ns(it.since)),
            since_boot_ns: Decimal(it.since.0),
            opened_at: Rfc3339(label.wall_ns(it.opened_at)),
            confirmed_at: it.confirmed_at.map(|at| Rfc3339(label.wall_ns(at))),
            closed_at: it.closed_at.map(|at| Rfc3339(label.wall_ns(at))),
            pod: it.pod.as_ref(),
            sandboxes: &it.sandboxes,
            gapped: it.gapped,
            summary: it.kind.explain().summary(),
            detail: Detail(&it.kind),
            programs: &it.programs,
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
