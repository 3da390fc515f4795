//! Selects and sorts findings.

use std::cmp::Reverse;

use super::filter::is_pod;
use crate::{
    engine::incident::Incident,
    model::{change::Finding, finding::Stage},
    sink::escape::short_key,
};

/// Whether the finding is about the pod `asked`.
#[must_use]
pub(crate) fn is_of(finding: &Finding, asked: &str) -> bool {
    finding.pod.as_ref().is_some_and(|pod| is_pod(pod.namespace.as_deref(), pod.name.as_deref(), asked))
}

/// Sorts the most severe first, then the most certain, then the oldest.
pub(crate) fn sort(findings: &mut [&Finding]) {
    findings.sort_by_key(|it| (Reverse(it.severity), surest(it.stage), it.since, &it.key));
}

/// Sorts incidents by their current severity and stage, then by their first finding.
pub(crate) fn sort_incidents(incidents: &mut [Incident<'_>]) {
    incidents.sort_by_key(|it| {
        let root = it.root().map(|root| (root.since, &root.key));
        (Reverse(it.severity()), surest(it.stage()), root)
    });
}

fn surest(stage: Stage) -> u8 {
    match stage {
        Stage::Confirmed => 0,
        Stage::Candidate => 1,
        Stage::Closed => 2,
    }
}

/// The findings that `asked` can mean: the one with that key; else all whose key, full or as shown, begins
/// with it; else all whose key contains it.
#[must_use]
pub(crate) fn matching<'a>(findings: &'a [Finding], asked: &str) -> Vec<&'a Finding> {
    if let Some(exact) = findings.iter().find(|it| it.key.as_str() == asked) {
        return vec![exact];
    }
    let begin = having_key(findings, |key| key.starts_with(asked));
    if begin.is_empty() { having_key(findings, |key| key.contains(asked)) } else { begin }
}

fn having_key(findings: &[Finding], is: impl Fn(&str) -> bool) -> Vec<&Finding> {
    findings.iter().filter(|it| is(it.key.as_str()) || is(&short_key(&it.key))).collect()
}
