//! The pods that have a sandbox on record. All sources count together, because some name a sandbox without
//! its pod.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use crate::model::id::{ContainerId, PodUid};

/// The sandboxes in all runtimes' records, as they were last read.
#[derive(Debug, Default)]
pub(crate) struct OnRecord {
    /// Every sandbox, and the UIDs that records give its pod: usually one, or none where no record names the
    /// pod.
    pub(crate) sandboxes: BTreeMap<ContainerId, Vec<PodUid>>,
    /// The sandboxes of each pod that a record names.
    pub(crate) of_pods: BTreeMap<PodUid, BTreeSet<ContainerId>>,
    /// Sandboxes whose pod's UID no record gives.
    pub(crate) nameless: BTreeSet<ContainerId>,
    /// What was on record of each sandbox of which that changed since the last call of `take_changed`.
    pub(crate) changed: BTreeMap<ContainerId, Recorded>,
}

/// What is on record of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    No,
    /// The UID of its pod, as the first record that has one gives it.
    As(Option<PodUid>),
}

impl Recorded {
    pub(crate) fn uid(&self) -> Option<&PodUid> {
        match self {
            Self::No => None,
            Self::As(uid) => uid.as_ref(),
        }
    }
}

impl OnRecord {
    pub(crate) fn contains(&self, id: &ContainerId) -> bool {
        self.sandboxes.contains_key(id)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = &ContainerId> {
        self.sandboxes.keys()
    }

    pub(crate) fn get(&self, id: &ContainerId) -> Recorded {
        self.sandboxes.get(id).map_or(Recorded::No, |uids| Recorded::As(uids.first().cloned()))
    }

    /// The sandboxes on record that a record names as this pod's.
    pub(crate) fn of_pod(&self, uid: &PodUid) -> impl Iterator<Item = &ContainerId> {
        self.of_pods.get(uid).into_iter().flatten()
    }

    /// What was on record before of each sandbox of which that may have changed since the last call.
    pub(in crate::engine::world) fn take_changed(&mut self) -> BTreeMap<ContainerId, Recorded> {
        mem::take(&mut self.changed)
    }

    pub(in crate::engine::world) fn set(&mut self, id: ContainerId, uids: Vec<PodUid>) {
        if self.sandboxes.get(&id) == Some(&uids) {
            return;
        }
        self.remove(&id);
        if uids.is_empty() {
            self.nameless.insert(id.clone());
        }
        for uid in &uids {
            self.of_pods.entry(uid.clone()).or_default().insert(id.clone());
        }
        self.sandboxes.insert(id, uids);
    }

    pub(in crate::engine::world) fn remove(&mut self, id: &ContainerId) {
        self.changed.entry(id.clone()).or_insert_with(|| {
            self.sandboxes.get(id).map_or(Recorded::No, |uids| Recorded::As(uids.first().cloned()))
        });
        for uid in self.sandboxes.remove(id).unwrap_or_default() {
            if let Some(of_pod) = self.of_pods.get_mut(&uid) {
                of_pod.remove(id);
                if of_pod.is_empty() {
                    self.of_pods.remove(&uid);
                }
            }
        }
        self.nameless.remove(id);
    }
}
