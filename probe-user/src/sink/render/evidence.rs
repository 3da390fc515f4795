//! The events about a finding's sandboxes, in the form of the stream.

use crate::model::change::{Change, Context, EvidenceEvent, Finding, PodRef};

/// Returns the events in order of time. The sequence numbers of the stream are not kept.
#[must_use]
pub(crate) fn changes(finding: &Finding) -> Vec<Change> {
    let pod = finding.pod.as_ref().map(|pod| PodRef {
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        source: None,
    });
    let mut changes = Vec::with_capacity(finding.evidence.len());
    for it in &finding.evidence {
        let EvidenceEvent { at, origin, container, netns, cgroup, what, left_out: _ } = it.event.clone();
        let context =
            Context { pod: pod.clone(), sandbox: Some(it.sandbox.clone()), container, netns, cgroup };
        changes.push(Change { seq: 0, at, origin, late: false, context, what });
    }
    changes
}

/// How many events are not kept, between the first and the last ones of each sandbox.
#[must_use]
pub(crate) fn left_out(finding: &Finding) -> u64 {
    finding.evidence.iter().map(|it| u64::from(it.event.left_out)).sum()
}
