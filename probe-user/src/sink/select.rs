//! Selects and sorts findings.

use std::cmp::Reverse;

use super::{escape::short_key, filter::is_pod};
use crate::{
    engine::incident::Incident,
    model::{change::Finding, finding::Stage},
};

/// Whether the finding is of the pod `asked`.
#[must_use]
pub(crate) fn is_of(finding: &Finding, asked: &str) -> bool {
    finding.pod.as_ref().is_some_and(|pod| is_pod(pod.namespace.as_deref(), pod.name.as_deref(), asked))
}

/// Sorts the most severe first, then the most certain, then the oldest.
pub(crate) fn sort(findings: &mut [&Finding]) {
    findings.sort_by_key(|it| (Reverse(it.severity), surest(it.stage), it.since, &it.key));
}

/// The same of incidents: by what they are now, then by their first finding.
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

/// The findings that `asked` can mean: the one with that key, else all whose key, full or as shown, contains it.
#[must_use]
pub(crate) fn matching<'a>(findings: &'a [Finding], asked: &str) -> Vec<&'a Finding> {
    if let Some(exact) = findings.iter().find(|it| it.key.as_str() == asked) {
        return vec![exact];
    }
    let by = |is: fn(&str, &str) -> bool| {
        let any = |it: &&Finding| is(it.key.as_str(), asked) || is(&short_key(&it.key), asked);
        findings.iter().filter(any).collect::<Vec<_>>()
    };
    let begin = by(|key, asked| key.starts_with(asked));
    if begin.is_empty() { by(|key, asked| key.contains(asked)) } else { begin }
}
