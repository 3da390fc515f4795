//! Keeps the changes of a sandbox as the evidence of findings.

use crate::{
    engine::world::{argv, table::sandbox::rows::Table},
    model::{
        change::{Change, ChangeKind, Context, EvidenceEvent},
        fact::PodName,
    },
};

/// At most this many events of one sandbox are kept. A pod's usual life has half as many.
const EVIDENCE: usize = 96;

/// Space is allocated for this many events at a time.
const ROOM: usize = 8;

/// This many of a sandbox's first events are never dropped for later ones.
const FIRST: usize = 32;

/// Whether a change is kept as evidence. Of the processes that work on a sandbox, only those are kept that
/// end it or were killed. There are a dozen others for each pod.
fn is_evidence(what: &ChangeKind) -> bool {
    match what {
        ChangeKind::ProcessExec { argv, .. } => argv::is_ending(argv),
        ChangeKind::ProcessExit { end, .. } => end.signal.is_some(),
        ChangeKind::CniStarted { .. }
        | ChangeKind::CniFinished { .. }
        | ChangeKind::NetnsCreated { .. }
        | ChangeKind::NetnsDestroyed { .. }
        | ChangeKind::NetnsFreed { .. }
        | ChangeKind::CgroupCreated { .. }
        | ChangeKind::CgroupEmptied
        | ChangeKind::CgroupRemoved { .. }
        | ChangeKind::AddressAdded { .. }
        | ChangeKind::AddressRemoved { .. }
        | ChangeKind::SandboxCreated
        | ChangeKind::SandboxReady { .. }
        | ChangeKind::SandboxStopped { .. }
        | ChangeKind::ContainerStarted { .. }
        | ChangeKind::ContainerListening { .. }
        | ChangeKind::ContainerExited { .. }
        | ChangeKind::PodFirstSeen
        | ChangeKind::PodGone { .. } => true,
        // A verdict on a sandbox is no evidence for a verdict.
        ChangeKind::PodStarted(_)
        | ChangeKind::Gap { .. }
        | ChangeKind::FindingOpened(_)
        | ChangeKind::FindingConfirmed(_)
        | ChangeKind::FindingClosed(_) => false,
    }
}

impl Table {
    /// Keeps a change as evidence of its sandbox.
    pub(in crate::engine) fn keep_evidence(&mut self, change: &Change) {
        let Some(id) = &change.context.sandbox else { return };
        if let Some(pod) = &change.context.pod
            && let Some(row) = self.recall(id)
        {
            let PodName { namespace, name, uid } = &row.reported.pod;
            let is_new = pod.namespace.is_some() && pod.namespace != *namespace
                || pod.name.is_some() && pod.name != *name
                || pod.uid.is_some() && pod.uid != *uid;
            if is_new && let Some(row) = self.recall_mut(id) {
                let reported = &mut row.reported.pod;
                reported.namespace = pod.namespace.clone().or_else(|| reported.namespace.take());
                reported.name = pod.name.clone().or_else(|| reported.name.take());
                reported.uid = pod.uid.clone().or_else(|| reported.uid.take());
            }
        }
        if !is_evidence(&change.what) {
            return;
        }
        let Some(row) = self.recall_unmarked(id) else { return };
        let reported = &mut row.reported;
        if reported.evidence.len() >= EVIDENCE {
            reported.evidence.remove(FIRST);
            if let Some(before) = reported.evidence.get_mut(FIRST - 1) {
                before.left_out = before.left_out.saturating_add(1);
            }
        }
        let Context { container, netns, cgroup, .. } = &change.context;
        // Only events of a cgroup keep its path, to save memory.
        let is_about_cgroup = matches!(
            change.what,
            ChangeKind::CgroupCreated { .. } | ChangeKind::CgroupEmptied | ChangeKind::CgroupRemoved { .. }
        );
        let cgroup = if is_about_cgroup { cgroup.clone() } else { None };
        if reported.evidence.len() == reported.evidence.capacity() {
            // A vector doubles its capacity by itself. Then half of the memory of all evidence would be
            // empty.
            reported.evidence.reserve_exact(ROOM);
        }
        reported.evidence.push(EvidenceEvent {
            at: change.at,
            origin: change.origin,
            container: container.clone(),
            netns: *netns,
            cgroup,
            what: change.what.clone(),
            left_out: 0,
        });
    }
}
