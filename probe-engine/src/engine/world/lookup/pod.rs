//! The sandboxes of a pod, and the pod of a record.

use std::collections::BTreeMap;

use crate::{
    engine::world::{
        World,
        table::sandbox::{Group, Sandbox},
    },
    model::{fact::PodName, id::ContainerId, time::Timestamp},
};

/// Whether the making of the pod's cgroup was seen.
pub(crate) fn is_seen_from_birth(world: &World, id: u64) -> bool {
    world.pods.get(&id).is_some_and(|row| {
        row.cgroups.iter().any(|key| world.cgroups.get(key).is_some_and(|cgroup| cgroup.created_at.is_some()))
    })
}

/// The pods that have left, but for a sandbox that this runtime has on record.
pub(crate) fn left_on_record(world: &World, place: &str) -> Vec<u64> {
    let Some(runtime) = world.records.runtimes.get(place) else { return Vec::new() };
    let mut found = Vec::new();
    for pod in world.pods.that_left() {
        let uid = world.pods.get(&pod).and_then(|row| row.named.uid.as_ref());
        let by_uid = uid.into_iter().flat_map(|uid| world.records.on_record.of_pod(uid));
        let mut all = by_uid.chain(world.sandboxes.group(Group::Pod(pod)).map(|row| &row.id));
        let has_record = all.any(|id| {
            let named = runtime.sandboxes.get(id);
            named.is_some_and(|named| of_record(world, id, named.as_ref()) == Some(pod))
        });
        if has_record {
            found.push(pod);
        }
    }
    found
}

/// The pod of a sandbox on record, by the UID in the record or by the sandbox.
pub(crate) fn of_record(world: &World, id: &ContainerId, named: Option<&PodName>) -> Option<u64> {
    let by_uid = named.and_then(|pod| pod.uid.as_ref()).and_then(|uid| world.pods.by_uid(uid));
    by_uid.or_else(|| world.sandboxes.get(id)?.pod)
}

/// The sandboxes of a pod, with remembered ones, sorted by id.
pub(crate) fn sandboxes(world: &World, pod: u64) -> Vec<&Sandbox> {
    let uid = world.pods.get(&pod).and_then(|row| row.named.uid.clone());
    let by_uid = uid.into_iter().flat_map(|uid| world.sandboxes.all_of(Group::Uid(uid)));
    let all = world.sandboxes.all_of(Group::Pod(pod)).chain(by_uid);
    let of_pod = all.filter(|row| world.pods.of_sandbox(row) == Some(pod));
    of_pod.map(|row| (&row.id, row)).collect::<BTreeMap<_, _>>().into_values().collect()
}

/// The pod's sandbox at that time, if it had no other.
pub(crate) fn only_sandbox_at(world: &World, pod: u64, at: Timestamp) -> Option<ContainerId> {
    let mut all = sandboxes(world, pod)
        .into_iter()
        .filter(|row| row.first_at <= at && row.over_at().is_none_or(|over| at <= over));
    let only = all.next()?.id.clone();
    all.next().is_none().then_some(only)
}
