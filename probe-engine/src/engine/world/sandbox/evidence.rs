//! What was told of a sandbox, kept as the evidence of findings.

use crate::{
    engine::world::{World, argv},
    model::change::{Change, ChangeKind, Context, EvidenceEvent},
};

/// So many events of one sandbox are kept: twice those of a pod's usual life.
const EVIDENCE: usize = 96;
/// Room is made for so many of them at a time.
const ROOM: usize = 8;
/// The first events of a sandbox are never dropped for later ones.
const FIRST: usize = 32;

/// Of the processes that make and end sandboxes only those say something that end them, or were ended by force: there
/// are a dozen more for each pod.
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
        // A verdict on a sandbox is no evidence of it.
        ChangeKind::PodStarted(_)
        | ChangeKind::Gap { .. }
        | ChangeKind::FindingOpened(_)
        | ChangeKind::FindingConfirmed(_)
        | ChangeKind::FindingClosed(_) => false,
    }
}

impl World {
    /// Keeps a change that is about to be told as evidence of its sandbox.
    pub(in crate::engine) fn keep(&mut self, change: &Change) {
        let Some(id) = &change.context.sandbox else { return };
        let Some(row) = self.sandboxes.recall_mut(id) else { return };
        let told = &mut row.told;
        if let Some(pod) = &change.context.pod {
            told.pod.namespace = pod.namespace.clone().or_else(|| told.pod.namespace.take());
            told.pod.name = pod.name.clone().or_else(|| told.pod.name.take());
            told.pod.uid = pod.uid.clone().or_else(|| told.pod.uid.take());
        }
        if !is_evidence(&change.what) {
            return;
        }
        if told.evidence.len() >= EVIDENCE {
            told.evidence.remove(FIRST);
        }
        let Change { at, origin, what, context, .. } = change.clone();
        let Context { container, netns, cgroup, .. } = context;
        // Only events of a cgroup keep its path. Elsewhere it would stand in each of them.
        let is_about_cgroup = matches!(
            what,
            ChangeKind::CgroupCreated { .. } | ChangeKind::CgroupEmptied | ChangeKind::CgroupRemoved { .. }
        );
        let cgroup = cgroup.filter(|_| is_about_cgroup);
        if told.evidence.len() == told.evidence.capacity() {
            // A vector doubles by itself, and half of the memory of all sandboxes would be room for more.
            told.evidence.reserve_exact(ROOM);
        }
        told.evidence.push(EvidenceEvent { at, origin, container, netns, cgroup, what });
    }
}
