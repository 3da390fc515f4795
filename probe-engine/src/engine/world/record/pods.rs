//! The pods that have a sandbox on record. All sources count together, because some name a sandbox without its pod.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use super::HasRecord;
use crate::{
    engine::world::World,
    model::{
        fact::PodName,
        id::{ContainerId, PodUid},
        time::Timestamp,
    },
};

/// The sandboxes in all runtimes' records, as they were last read.
#[derive(Debug, Default)]
pub(in crate::engine) struct OnRecord {
    /// Every sandbox, and the UIDs that records give its pod: usually one, or none where no record names the pod.
    sandboxes: BTreeMap<ContainerId, Vec<PodUid>>,
    /// The sandboxes of each pod that a record names.
    of_pods: BTreeMap<PodUid, BTreeSet<ContainerId>>,
    /// Sandboxes whose pod's UID no record gives.
    nameless: BTreeSet<ContainerId>,
    /// What was on record of each sandbox of which that changed since the last call of `take_changed`.
    changed: BTreeMap<ContainerId, Recorded>,
}

/// What is on record of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Recorded {
    No,
    /// The UID of its pod, as the first record that has one gives it.
    As(Option<PodUid>),
}

impl Recorded {
    pub(in crate::engine) fn uid(&self) -> Option<&PodUid> {
        match self {
            Self::No => None,
            Self::As(uid) => uid.as_ref(),
        }
    }
}

impl OnRecord {
    pub(super) fn contains(&self, id: &ContainerId) -> bool {
        self.sandboxes.contains_key(id)
    }

    pub(in crate::engine) fn ids(&self) -> impl Iterator<Item = &ContainerId> {
        self.sandboxes.keys()
    }

    pub(in crate::engine) fn get(&self, id: &ContainerId) -> Recorded {
        self.sandboxes.get(id).map_or(Recorded::No, |uids| Recorded::As(uids.first().cloned()))
    }

    /// The sandboxes on record that a record names as this pod's.
    pub(super) fn of_pod(&self, uid: &PodUid) -> impl Iterator<Item = &ContainerId> {
        self.of_pods.get(uid).into_iter().flatten()
    }

    /// What was on record before of each sandbox of which that may have changed since the last call.
    pub(in crate::engine) fn take_changed(&mut self) -> BTreeMap<ContainerId, Recorded> {
        mem::take(&mut self.changed)
    }

    pub(super) fn set(&mut self, id: ContainerId, uids: Vec<PodUid>) {
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

    pub(super) fn remove(&mut self, id: &ContainerId) {
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

/// The pods that have a sandbox on record.
#[derive(Debug)]
pub(in crate::engine) struct PodsWithRecords<'a> {
    world: &'a World,
    /// The pods whose UID no record has, but other evidence gives.
    named: BTreeSet<PodUid>,
    /// For each sandbox on record whose pod's UID is unknown: the known parts of the pod's name, and since when the
    /// sandbox has been on record.
    nameless: Vec<(PodName, Timestamp)>,
}

impl PodsWithRecords<'_> {
    /// Whether a sandbox of this pod is on record. A record without a pod's UID may be of this pod.
    pub(in crate::engine) fn has_record(&self, uid: &PodUid) -> HasRecord {
        if self.world.records.on_record.of_pods.contains_key(uid) || self.named.contains(uid) {
            HasRecord::Yes
        } else if self.nameless.iter().any(|(pod, since)| self.world.may_be_of(pod, *since, uid)) {
            HasRecord::Unknown
        } else {
            self.world.records.absent()
        }
    }
}

impl World {
    /// The pods that have a sandbox on record, by all runtimes that were read.
    pub(in crate::engine) fn pods_with_records(&self) -> PodsWithRecords<'_> {
        let mut found = PodsWithRecords { world: self, named: BTreeSet::new(), nameless: Vec::new() };
        let since = |id: &ContainerId| self.records.known_since.get(id).copied();
        let nameless = self.records.on_record.nameless.iter().filter_map(|id| Some((id, since(id)?)));
        for (id, since) in nameless {
            let pod = self.pod_of_nameless(id);
            match pod.uid {
                Some(uid) => drop(found.named.insert(uid)),
                None => found.nameless.push((pod, since)),
            }
        }
        found
    }

    /// The known parts of the name of a sandbox's pod, from all sources that name it.
    pub(in crate::engine) fn pod_of_nameless(&self, id: &ContainerId) -> PodName {
        let mut pod = self.records.pod_on_record(id);
        let of_container = self.containers.get(id).and_then(|row| row.pod);
        let of_sandbox = self.sandboxes.get(id).and_then(|row| row.pod);
        let named =
            of_sandbox.or(of_container).and_then(|pod| self.pods.get(&pod)).map(|row| row.named.clone());
        let as_told = self.sandboxes.recall(id).map(|row| row.reported.pod.clone());
        let by_hint = self.hints.get(id).and_then(|row| row.pod.clone());
        named.iter().chain(&as_told).chain(&by_hint).for_each(|named| pod.learn(named));
        self.attachments.of(id).for_each(|row| pod.learn(&row.pod));
        pod
    }

    /// Whether a sandbox that has been on record since `since` can be of the pod `uid`. It cannot if it was on record
    /// before the pod was made, or if its pod has another name.
    fn may_be_of(&self, known: &PodName, since: Timestamp, uid: &PodUid) -> bool {
        let (named, made_at) = match self.pods.by_uid(uid).and_then(|id| self.pods.get(&id)) {
            Some(pod) => (pod.named.clone(), pod.made_at()),
            None => self.sandboxes.forgotten_pod(uid),
        };
        let differs = |one: &Option<String>, other: &Option<String>| {
            one.as_ref().zip(other.as_ref()).is_some_and(|(one, other)| one != other)
        };
        let is_other = differs(&known.namespace, &named.namespace) || differs(&known.name, &named.name);
        let is_older = made_at.is_some_and(|made| since < made);
        !is_other && !is_older
    }
}
