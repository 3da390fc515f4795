//! The pods that have a sandbox on record. All sources count together, because some name a sandbox without
//! its pod.

use std::collections::BTreeSet;

use probe_common::runtime::DOCKER;

use super::daemons;
use crate::{
    engine::world::{World, table::record::HasRecord},
    model::{
        fact::{PodName, RuntimeKind},
        id::{ContainerId, PodUid},
        time::Timestamp,
    },
};

/// The pods that have a sandbox on record.
#[derive(Debug)]
pub(crate) struct PodsWithRecords<'a> {
    world: &'a World,
    /// The pods whose UID no record has, but other evidence gives.
    named: BTreeSet<PodUid>,
    /// For each sandbox on record whose pod's UID is unknown: the known parts of the pod's name, and since
    /// when the sandbox has been on record.
    nameless: Vec<(PodName, Timestamp)>,
}

impl PodsWithRecords<'_> {
    /// Whether a sandbox of this pod is on record. A record without a pod's UID may be of this pod.
    pub(crate) fn has_record(&self, uid: &PodUid) -> HasRecord {
        if self.world.records.on_record.of_pods.contains_key(uid) || self.named.contains(uid) {
            HasRecord::Yes
        } else if self.nameless.iter().any(|(pod, since)| may_be_of(self.world, pod, *since, uid)) {
            HasRecord::Unknown
        } else {
            self.world.records.absent()
        }
    }
}

/// The pods that have a sandbox on record, by all runtimes that were read.
pub(crate) fn pods_with_records(world: &World) -> PodsWithRecords<'_> {
    let mut found = PodsWithRecords { world, named: BTreeSet::new(), nameless: Vec::new() };
    for id in &world.records.on_record.nameless {
        let Some(since) = world.records.known_since.get(id).copied() else { continue };
        let pod = pod_of_nameless(world, id);
        match pod.uid {
            Some(uid) => drop(found.named.insert(uid)),
            None => found.nameless.push((pod, since)),
        }
    }
    found
}

/// The known parts of the name of a sandbox's pod, from all sources that name it.
pub(crate) fn pod_of_nameless(world: &World, id: &ContainerId) -> PodName {
    let mut pod = world.records.pod_on_record(id);
    let of_container = world.containers.get(id).and_then(|row| row.pod);
    let of_sandbox = world.sandboxes.get(id).and_then(|row| row.pod);
    let named = of_sandbox.or(of_container).and_then(|pod| world.pods.get(&pod)).map(|row| row.named.clone());
    let as_told = world.sandboxes.recall(id).map(|row| row.reported.pod.clone());
    let by_hint = world.hints.get(id).and_then(|row| row.pod.clone());
    named.iter().chain(&as_told).chain(&by_hint).for_each(|named| pod.learn(named));
    world.attachments.of(id).for_each(|row| pod.learn(&row.pod));
    pod
}

/// Whether a sandbox that has been on record since `since` can be of the pod `uid`. It cannot if it was on
/// record before the pod was made, or if its pod has another name.
fn may_be_of(world: &World, known: &PodName, since: Timestamp, uid: &PodUid) -> bool {
    let (named, made_at) = match world.pods.by_uid(uid).and_then(|id| world.pods.get(&id)) {
        Some(pod) => (pod.named.clone(), pod.made_at()),
        None => world.sandboxes.forgotten_pod(uid),
    };
    let is_other = differs(&known.namespace, &named.namespace) || differs(&known.name, &named.name);
    let is_older = made_at.is_some_and(|made| since < made);
    !is_other && !is_older
}

/// Whether both are known and not the same.
fn differs(one: &Option<String>, other: &Option<String>) -> bool {
    one.as_ref().zip(other.as_ref()).is_some_and(|(one, other)| one != other)
}

/// Whether a runtime runs whose records were not read. A sandbox that is in no other record may be in those.
pub(crate) fn has_unread_runtime(world: &World) -> bool {
    world.records.of_kind(RuntimeKind::Docker).next().is_none()
        && daemons::named(world, |comm| DOCKER.cri_server == Some(comm)).next().is_some()
}
