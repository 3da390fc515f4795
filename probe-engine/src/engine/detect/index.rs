//! Indexes across tables, updated from the rows that changed. They give the subjects that a change concerns.
//!
//! **Invariant:** a subject is marked if anything changed on which its verdict depends, except for state of
//! the whole node (`scope`). Marking too many only costs time. The comparison in the tests
//! (`Engine::differences`) finds a subject that is not marked.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{DetectContext, links::Links};
use crate::{
    engine::world::{
        World,
        changed::Changed,
        netns_path::plain,
        table::{
            container::Container,
            netns,
            process::State,
            record::{Waiting, pods::Recorded},
            sandbox,
        },
    },
    model::{
        fact::{Bound, PodName, sandbox_of_cached},
        id::{CgroupKey, ContainerId, PodUid, TaskKey},
    },
};

/// The key of an attachment: a sandbox and an interface.
pub(super) type AttachmentKey = (ContainerId, String);

#[derive(Debug, Default)]
pub(super) struct Index {
    /// The pod's UID of each sandbox, including remembered ones.
    pub(super) uids: Links<ContainerId, PodUid>,
    /// The sandbox of each container.
    pub(super) sandboxes: Links<ContainerId, ContainerId>,
    /// The main process of each container.
    mains: Links<ContainerId, TaskKey>,
    pub(super) pods_of_containers: Links<ContainerId, u64>,
    /// Containers whose programs count for no sandbox yet.
    unplaced: BTreeSet<ContainerId>,
    pub(super) pods_of_sandboxes: Links<ContainerId, u64>,
    cgroups: Links<u64, CgroupKey>,
    pub(super) addresses: Links<AttachmentKey, IpAddr>,
    /// The pod that each attachment names. Reservations that outlived their pods name none; there may be tens
    /// of thousands.
    pub(super) named: Links<AttachmentKey, PodName>,
    /// For each pod that an attachment names: the UID, or the name if there is no UID. Pods are looked up by
    /// this.
    names: Links<PodName, PodName>,
    pod_names: Links<u64, PodName>,
    /// The paths by which sandboxes and attachments name their network namespaces.
    sandbox_paths: Links<ContainerId, String>,
    attachment_paths: Links<AttachmentKey, String>,
    /// The paths to which each namespace is bound, and the sandbox that it is known to belong to.
    mounts: Links<u64, String>,
    netns: Links<u64, ContainerId>,
    /// The inode of the network namespace of each running process.
    pub(super) residents: Links<TaskKey, u32>,
    /// The container for which each running process of a shim, a monitor or a runtime works.
    pub(super) monitors: Links<TaskKey, ContainerId>,
    /// The sandbox of each container that a runtime reports.
    pub(super) said: Links<ContainerId, ContainerId>,
    /// The namespaces whose last reference was dropped.
    pub(super) ending: BTreeSet<u64>,
    pub(super) waiting: Waiting,
}

/// The subjects that must be judged again.
#[derive(Debug, Default)]
pub(super) struct Marks {
    pub(super) sandboxes: BTreeSet<ContainerId>,
    pub(super) uids: BTreeSet<PodUid>,
    pub(super) pods: BTreeSet<u64>,
    pub(super) netns: BTreeSet<u64>,
    pub(super) addresses: BTreeSet<IpAddr>,
    pub(super) names: BTreeSet<PodName>,
    /// A runtime was asked, or how it can be asked changed.
    pub(super) runtimes: bool,
}

/// Where a rule takes its subjects from.
pub(super) struct Subjects<S> {
    /// Returns all subjects that exist.
    pub(super) all: fn(&DetectContext<'_>) -> BTreeSet<S>,
    pub(super) marked: fn(&Marks) -> &BTreeSet<S>,
}

impl Subjects<ContainerId> {
    /// Live sandboxes and remembered ones.
    pub(super) const SANDBOXES: Self =
        Self::sandboxes(|ctx| ctx.world.sandboxes.all().map(|row| row.id.clone()).collect());
    /// Sandboxes that have an attachment.
    pub(super) const ATTACHED: Self =
        Self::sandboxes(|ctx| ctx.world.attachments.keys().map(|(id, _)| id.clone()).collect());
    /// Sandboxes and containers that a runtime reports.
    pub(super) const BELIEVED: Self =
        Self::sandboxes(|ctx| ctx.world.beliefs.rows().map(|row| row.id.clone()).collect());

    pub(super) const fn sandboxes(all: fn(&DetectContext<'_>) -> BTreeSet<ContainerId>) -> Self {
        Self { all, marked: |marks| &marks.sandboxes }
    }
}

impl Subjects<u64> {
    /// By the numbers of their rows.
    pub(super) const PODS: Self =
        Self { all: |ctx| ctx.world.pods.keys().copied().collect(), marked: |marks| &marks.pods };
}

impl Subjects<PodUid> {
    pub(super) const UIDS: Self =
        Self { all: |ctx| ctx.index.uids.things().cloned().collect(), marked: |marks| &marks.uids };
}

impl Index {
    /// Updates the indexes by the changes, and returns the subjects that they concern.
    pub(super) fn update(&mut self, world: &World, changed: &Changed) -> Marks {
        let mut marks = Marks { runtimes: changed.runtimes, ..Marks::default() };
        changed.beliefs.iter().for_each(|id| self.belief(world, id, &mut marks));
        changed.processes.iter().for_each(|key| self.process(world, *key, &mut marks));
        changed.netns.iter().for_each(|life| self.namespace(world, *life, &mut marks));
        for key in &changed.cgroups {
            marks.pods.extend(self.cgroups.by(key));
            // A container is over once its cgroup is empty.
            marks.sandboxes.extend(world.cgroups.get(key).and_then(|row| row.container.clone()));
        }
        changed.containers.iter().for_each(|id| self.container(world, id, &mut marks));
        changed.sandboxes.iter().for_each(|id| self.sandbox(world, id, &mut marks));
        changed.attachments.iter().for_each(|key| self.attachment(world, key, &mut marks));
        changed.pods.iter().for_each(|id| self.pod(world, *id, &mut marks));
        Self::records(world, &changed.on_record, &mut marks);
        if changed.records {
            marks.sandboxes.extend(world.records.unread.keys().filter_map(|path| sandbox_of_cached(path)));
        }
        self.spread(world, &mut marks);
        for id in &marks.sandboxes {
            self.note_state(world, id);
        }
        marks
    }

    fn belief(&mut self, world: &World, id: &ContainerId, marks: &mut Marks) {
        let sandbox = world.beliefs.get(id).and_then(|row| row.sandbox.clone());
        marks.sandboxes.extend(self.said.set(id, sandbox));
        marks.sandboxes.insert(id.clone());
    }

    fn process(&mut self, world: &World, key: TaskKey, marks: &mut Marks) {
        let row = world.processes.get(key).filter(|row| row.state == State::Running);
        marks.sandboxes.extend(self.monitors.set(&key, row.and_then(|row| row.program.about.clone())));
        for inode in self.residents.set(&key, row.map(|row| row.netns)) {
            marks.netns.extend(world.netns.lives(inode).map(|row| row.life));
        }
        for id in self.mains.by(&key) {
            marks.sandboxes.extend(self.sandboxes.of(id).iter().chain([id]).cloned());
        }
    }

    fn namespace(&mut self, world: &World, life: u64, marks: &mut Marks) {
        marks.netns.insert(life);
        let row = world.netns.get(life);
        self.netns.set(&life, row.and_then(|row| row.sandbox.clone()));
        let mounts = row.map_or(&[][..], |row| &row.mounts);
        self.mounts.set(&life, mounts.iter().map(|path| plain(path).into_owned()));
        let owner = row.and_then(|row| world.sandboxes.recall(row.sandbox.as_ref()?));
        marks.sandboxes.extend(owner.filter(|row| row.is_stopped()).map(|row| row.id.clone()));
        if row.is_some_and(|row| row.state != netns::State::Live) {
            self.ending.insert(life);
        } else {
            self.ending.remove(&life);
        }
    }

    fn container(&mut self, world: &World, id: &ContainerId, marks: &mut Marks) {
        let row = world.containers.get(id);
        marks.sandboxes.extend(self.sandboxes.set(id, row.and_then(|row| row.sandbox.clone())));
        marks.sandboxes.insert(id.clone());
        let pods = self.pods_of_containers.set(id, row.and_then(|row| row.pod));
        self.mains.set(id, row.and_then(|row| row.process()));
        let was_unplaced = self.unplaced.remove(id);
        if row.is_some_and(Container::is_unplaced) {
            self.unplaced.insert(id.clone());
        }
        if was_unplaced || self.unplaced.contains(id) {
            // It may run in each sandbox of its pod.
            let rows = pods.iter().filter_map(|pod| world.pods.get(pod));
            marks.uids.extend(rows.filter_map(|row| row.named.uid.clone()));
        }
        marks.pods.extend(pods);
    }

    fn sandbox(&mut self, world: &World, id: &ContainerId, marks: &mut Marks) {
        let uid = world.sandboxes.recall(id).and_then(|row| row.reported.pod.uid.clone());
        marks.uids.extend(self.uids.set(id, uid));
        marks.sandboxes.insert(id.clone());
        let row = world.sandboxes.get(id);
        marks.pods.extend(self.pods_of_sandboxes.set(id, row.and_then(|row| row.pod)));
        let path = row.and_then(|row| row.network.netns_path.as_ref());
        let paths = self.sandbox_paths.set(id, path.map(|path| plain(path).into_owned()));
        self.mark_mounted(&paths, marks);
    }

    fn attachment(&mut self, world: &World, key: &AttachmentKey, marks: &mut Marks) {
        let row = world.attachments.get(key);
        marks.sandboxes.insert(key.0.clone());
        let leases = row.map_or(&[][..], |row| &row.leases);
        let addresses = self.addresses.set(key, leases.iter().map(|lease| lease.address));
        // An earlier holder of the address may have lost it to this attachment.
        for address in &addresses {
            marks.sandboxes.extend(self.addresses.by(address).map(|(id, _)| id.clone()));
        }
        marks.addresses.extend(addresses);
        let named = row.map(|row| &row.pod).filter(|pod| pod.names_pod());
        match (named, self.named.of(key)) {
            (Some(pod), [name]) if *pod == *name => {
                marks.names.insert(name.clone());
            }
            (named, _) => {
                for name in self.named.set(key, named.cloned()) {
                    let is_named = self.named.is_named(&name);
                    self.names.set(&name, is_named.then(|| by_uid_or_name(&name)));
                    marks.names.insert(name);
                }
            }
        }
        let path = row.and_then(|row| row.netns_path.as_ref());
        let paths = self.attachment_paths.set(key, path.map(|path| plain(path).into_owned()));
        self.mark_mounted(&paths, marks);
    }

    fn mark_mounted(&self, paths: &[String], marks: &mut Marks) {
        for path in paths {
            marks.netns.extend(self.mounts.by(path));
        }
    }

    fn pod(&mut self, world: &World, id: u64, marks: &mut Marks) {
        marks.pods.insert(id);
        let row = world.pods.get(&id);
        marks.uids.extend(row.and_then(|row| row.named.uid.clone()));
        // A pod that returns waits for its network again. A pod that is forgotten does not.
        let keys = row.map(|row| [by_uid_or_name(&row.named), PodName { uid: None, ..row.named.clone() }]);
        for key in self.pod_names.set(&id, keys.into_iter().flatten()) {
            marks.names.extend(self.names.by(&key).cloned());
        }
        self.cgroups.set(&id, row.map_or(&[][..], |row| &row.cgroups).iter().copied());
    }

    /// Marks the sandboxes that came on record or are no longer on record.
    fn records(world: &World, before: &BTreeMap<ContainerId, Recorded>, marks: &mut Marks) {
        for (id, before) in before {
            let now = world.records.on_record.get(id);
            if now != *before {
                marks.sandboxes.insert(id.clone());
                let named = world.attachments.of(id).map(|row| &row.pod).filter(|pod| pod.names_pod());
                marks.names.extend(named.cloned());
                marks.uids.extend(before.uid().into_iter().chain(now.uid()).cloned());
            }
        }
    }

    /// Marks the pods, namespaces and addresses of the marked sandboxes.
    fn spread(&self, world: &World, marks: &mut Marks) {
        for id in &marks.sandboxes {
            marks.uids.extend(self.uids.of(id).iter().cloned());
            marks.pods.extend(self.pods_of_sandboxes.of(id));
            marks.netns.extend(self.netns.by(id));
            for path in self.sandbox_paths.of(id) {
                marks.netns.extend(self.mounts.by(path));
            }
            for row in world.attachments.of(id) {
                marks.addresses.extend(row.leases.iter().map(|lease| lease.address));
                if let Some(path) = &row.netns_path {
                    marks.netns.extend(self.mounts.by(&plain(path).into_owned()));
                }
            }
        }
        for uid in &marks.uids {
            marks.sandboxes.extend(self.uids.by(uid).cloned());
            marks.pods.extend(world.pods.by_uid(uid));
        }
        if world.records.stores.values().any(|(_, read)| read.store.bound == Bound::Pod) {
            self.spread_to_namesakes(marks);
        }
    }

    /// Marks all sandboxes of the marked pods: an address may be the pod's.
    fn spread_to_namesakes(&self, marks: &mut Marks) {
        for uid in &marks.uids {
            let name = PodName { uid: Some(uid.clone()), ..PodName::default() };
            marks.names.extend(self.names.by(&name).cloned());
        }
        for name in &marks.names {
            marks.sandboxes.extend(self.named.by(name).map(|(id, _)| id.clone()));
        }
    }

    fn note_state(&mut self, world: &World, id: &ContainerId) {
        let row = world.sandboxes.get(id);
        let is_in_the_making = row.is_some_and(|row| row.state == sandbox::State::Created);
        note(&mut self.waiting.making, id, is_in_the_making);
        let lives = row.is_some_and(|row| !row.is_stopped());
        let is_holding =
            !lives && world.attachments.of(id).any(|row| row.leases.iter().any(|it| it.may_be_on_record()));
        note(&mut self.waiting.holding, id, is_holding);
    }

    /// Returns the sandboxes that had a namespace: the one that was seen to have it, and those that name a
    /// path of it.
    pub(super) fn owners(&self, row: &netns::Netns) -> Vec<ContainerId> {
        let mut owners: BTreeSet<ContainerId> = row.sandbox.iter().cloned().collect();
        for path in row.mounts.iter().map(|path| plain(path).into_owned()) {
            owners.extend(self.sandbox_paths.by(&path).cloned());
            owners.extend(self.attachment_paths.by(&path).map(|(id, _)| id.clone()));
        }
        owners.into_iter().collect()
    }
}

/// Returns the key by which a pod's row is found.
fn by_uid_or_name(name: &PodName) -> PodName {
    match &name.uid {
        Some(uid) => PodName { uid: Some(uid.clone()), ..PodName::default() },
        None => name.clone(),
    }
}

fn note(set: &mut BTreeSet<ContainerId>, id: &ContainerId, is_in: bool) {
    if !is_in {
        set.remove(id);
    } else if !set.contains(id) {
        set.insert(id.clone());
    }
}
