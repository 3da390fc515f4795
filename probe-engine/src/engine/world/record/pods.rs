//! The pods that have a sandbox on record. All sources count together, because some name a sandbox without its pod.

use std::collections::{BTreeMap, BTreeSet};

use super::{Kept, Records};
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
    /// Every sandbox, with its pod's UID if a record names it.
    pub(in crate::engine) pods: BTreeMap<ContainerId, Option<PodUid>>,
    uids: BTreeSet<PodUid>,
    /// The sandboxes whose pod's UID is in no record.
    nameless: BTreeSet<ContainerId>,
}

impl OnRecord {
    pub(in crate::engine) fn of(records: &Records) -> Self {
        let mut it = Self::default();
        for (id, pod) in records.runtimes.values().flat_map(|runtime| &runtime.sandboxes) {
            let named = pod.as_ref().and_then(|pod| pod.uid.clone());
            it.uids.extend(named.clone());
            let uid = it.pods.entry(id.clone()).or_default();
            *uid = uid.take().or(named);
        }
        let nameless = it.pods.iter().filter(|(_, uid)| uid.is_none());
        it.nameless = nameless.map(|(id, _)| id.clone()).collect();
        it
    }
}

/// The pods that have a sandbox on record.
#[derive(Debug)]
pub(in crate::engine) struct PodsKept<'a> {
    world: &'a World,
    on_record: &'a OnRecord,
    /// The pods whose UID no record has, but other evidence gives.
    named: BTreeSet<PodUid>,
    /// For each sandbox on record whose pod's UID is unknown: the known parts of the pod's name, and since when the
    /// sandbox has been on record.
    nameless: Vec<(PodName, Timestamp)>,
}

impl PodsKept<'_> {
    /// Whether a sandbox of this pod is on record. A record without a pod's UID may be of this pod.
    pub(in crate::engine) fn kept(&self, uid: &PodUid) -> Kept {
        if self.on_record.uids.contains(uid) || self.named.contains(uid) {
            Kept::Yes
        } else if self.nameless.iter().any(|(pod, since)| self.world.may_be_of(pod, *since, uid)) {
            Kept::Unknown
        } else {
            self.world.records.absent()
        }
    }
}

impl World {
    /// The pods that have a sandbox on record, by all runtimes that were read.
    pub(in crate::engine) fn pods_kept<'a>(&'a self, on_record: &'a OnRecord) -> PodsKept<'a> {
        let mut kept = PodsKept { world: self, on_record, named: BTreeSet::new(), nameless: Vec::new() };
        let since = |id: &ContainerId| self.records.known_since.get(id).copied();
        let nameless = on_record.nameless.iter().filter_map(|id| Some((id, since(id)?)));
        for (id, since) in nameless {
            let pod = self.pod_of_nameless(id);
            match pod.uid {
                Some(uid) => drop(kept.named.insert(uid)),
                None => kept.nameless.push((pod, since)),
            }
        }
        kept
    }

    /// The known parts of the pod's name, for a sandbox whose records have no UID.
    fn pod_of_nameless(&self, id: &ContainerId) -> PodName {
        let mut pod = self.records.pod_on_record(id);
        let of_container = self.containers.get(id).and_then(|row| row.pod);
        let of_sandbox = self.sandboxes.get(id).and_then(|row| row.pod);
        let named =
            of_sandbox.or(of_container).and_then(|pod| self.pods.get(&pod)).map(|row| row.named.clone());
        let as_told = self.sandboxes.recall(id).map(|row| row.told.pod.clone());
        let by_hint = self.hints.get(id).and_then(|row| row.pod.clone());
        named.iter().chain(&as_told).chain(&by_hint).for_each(|named| pod.learn(named));
        self.attachments_of(id).for_each(|row| pod.learn(&row.pod));
        pod
    }

    /// Whether a sandbox that has been on record since `since` can be of the pod `uid`. It cannot if it was on record
    /// before the pod was made, or if its pod has another name.
    fn may_be_of(&self, known: &PodName, since: Timestamp, uid: &PodUid) -> bool {
        let Some(pod) = self.pods.by_uid(uid).and_then(|id| self.pods.get(&id)) else { return true };
        let differs = |one: &Option<String>, other: &Option<String>| {
            one.as_ref().zip(other.as_ref()).is_some_and(|(one, other)| one != other)
        };
        let is_other =
            differs(&known.namespace, &pod.named.namespace) || differs(&known.name, &pod.named.name);
        let is_older = pod.start.made_at.is_some_and(|made| since < made.min(pod.first_at));
        !is_other && !is_older
    }
}
