//! The table of pods, also by UID and by name.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
};

use crate::{
    engine::{
        tracked::Tracked,
        world::table::{
            hint::Name,
            pod::{Pod, Words},
            sandbox::Sandbox,
        },
    },
    model::{
        fact::{NameSource, PodName, Pressure, WordsFound},
        id::{CgroupKey, PodUid},
        time::Timestamp,
    },
};

/// All pods, also by UID.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(in crate::engine::world) rows: Tracked<u64, Pod>,
    /// Names of pods by UID. A pod may have been unknown when its name became known.
    pub(crate) names: BTreeMap<PodUid, Name>,
    pub(crate) by_uid: BTreeMap<PodUid, u64>,
    /// The pods by namespace and name. Several pods in sequence can have the same name.
    by_name: BTreeSet<(String, String, u64)>,
    /// The pods that have left: a sandbox of theirs that had been ready stopped.
    pub(crate) left: BTreeSet<u64>,
    /// The number of the next row.
    pub(crate) next: u64,
}

impl Deref for Table {
    type Target = BTreeMap<u64, Pod>;

    fn deref(&self) -> &Self::Target {
        &self.rows
    }
}

impl Table {
    /// The keys of rows that may have changed since the last call.
    pub(in crate::engine::world) fn take_changed(&mut self) -> BTreeSet<u64> {
        self.rows.take_changed()
    }

    /// The pod has this cgroup.
    pub(in crate::engine::world) fn has_cgroup(&mut self, id: u64, key: CgroupKey) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.has_cgroup(key);
        }
    }

    /// A cgroup of the pod was removed.
    pub(in crate::engine::world) fn lost_cgroup(&mut self, id: u64, key: CgroupKey) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.cgroups.retain(|other| *other != key && *other != CgroupKey::default());
        }
    }

    /// Removes the all-zero keys of cgroups of which only the cgroups in them were known. A complete listing
    /// named none of them, or it would have given their keys. Returns the pods that had one.
    pub(in crate::engine::world) fn lost_unseen_cgroups(&mut self) -> Vec<u64> {
        let mut unseen = Vec::new();
        self.rows.update(|id, row| {
            let is_unseen = row.cgroups == [CgroupKey::default()];
            if is_unseen {
                row.cgroups.clear();
                unseen.push(*id);
            }
            is_unseen
        });
        unseen
    }

    /// The pod's own cgroup was made.
    pub(in crate::engine::world) fn made(&mut self, id: u64, at: Timestamp) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.start.made_at = Some(row.start.made_at.map_or(at, |made| made.min(at)));
        }
    }

    /// A sandbox of the pod that had been ready stopped, or is still on record.
    pub(in crate::engine::world) fn left(&mut self, id: u64, at: Timestamp) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.left_at = row.left_at.max(Some(at));
            self.left.insert(id);
        }
    }

    pub(crate) fn that_left(&self) -> impl Iterator<Item = u64> {
        self.left.iter().copied()
    }

    /// The pod's start is complete, or turned out to continue.
    pub(in crate::engine::world) fn set_started(&mut self, id: u64, is_complete: bool) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.start.is_complete = is_complete;
        }
    }

    /// The kubelet's record names the containers that the pod will have.
    pub(in crate::engine::world) fn expect(&mut self, id: u64, containers: Vec<String>) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.start.expected = containers;
        }
    }

    /// Adds a reading of the pod's cgroup.
    pub(in crate::engine::world) fn counted(&mut self, id: u64, at: Timestamp, pressure: Pressure) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.start.readings.add(at, pressure);
        }
    }

    /// The logs are searched for words about the pod, which has waited since then.
    pub(in crate::engine::world) fn words_asked(&mut self, id: u64, since: Timestamp, now: Timestamp) {
        let Some(row) = self.rows.get_mut(&id) else { return };
        // What was said before belongs to something that is over.
        let before = row.words.take().filter(|words| words.since == since);
        row.words =
            Some(Box::new(Words { since, asked_at: now, ..before.map(|it| *it).unwrap_or_default() }));
    }

    /// Takes in what was found.
    pub(in crate::engine::world) fn words_found(&mut self, it: WordsFound) {
        let Some(row) = self.by_uid(&it.uid).and_then(|id| self.rows.get_mut(&id)) else { return };
        let Some(words) = row.words.as_mut().filter(|words| words.since == it.since) else { return };
        words.take_in(it.said, it.unsaid);
    }

    pub(crate) fn by_uid(&self, uid: &PodUid) -> Option<u64> {
        self.by_uid.get(uid).copied()
    }

    /// Finds a pod by UID. Without a UID, or if the UID is unknown, finds it by name.
    pub(crate) fn find(&self, name: &PodName) -> Option<u64> {
        if let Some(id) = name.uid.as_ref().and_then(|uid| self.by_uid(uid)) {
            return Some(id);
        }
        self.named(name)
            .filter(|row| row.is_present() && (row.named.uid.is_none() || name.uid.is_none()))
            .map(|row| row.id)
            .next()
    }

    /// The last of the pods with this namespace and name.
    pub(crate) fn last_named(&self, name: &PodName) -> Option<&Pod> {
        self.named(name).next_back()
    }

    pub(crate) fn named(&self, name: &PodName) -> impl DoubleEndedIterator<Item = &Pod> {
        let names = name.namespace.clone().zip(name.name.clone());
        let range =
            names.map(|(namespace, pod)| (namespace.clone(), pod.clone(), 0)..=(namespace, pod, u64::MAX));
        let keys = range.into_iter().flat_map(|range| self.by_name.range(range));
        keys.filter_map(|(_, _, id)| self.rows.get(id))
    }

    pub(in crate::engine::world) fn insert(&mut self, row: Pod) {
        if let Some(uid) = &row.named.uid {
            self.by_uid.insert(uid.clone(), row.id);
        }
        self.by_name.extend(key_of(&row));
        if row.left_at.is_some() {
            self.left.insert(row.id);
        }
        self.next = self.next.max(row.id.saturating_add(1));
        self.rows.insert(row.id, row);
    }

    pub(in crate::engine::world) fn remove(&mut self, id: u64) {
        let Some(row) = self.rows.remove(&id) else { return };
        self.left.remove(&id);
        if let Some(key) = key_of(&row) {
            self.by_name.remove(&key);
        }
        if let Some(uid) = row.named.uid
            && self.by_uid.get(&uid) == Some(&id)
        {
            self.by_uid.remove(&uid);
        }
    }

    /// Whether `name` can be a name of this pod: no part contradicts what is known.
    pub(crate) fn is(&self, id: u64, name: &PodName) -> bool {
        self.rows.get(&id).is_some_and(|row| {
            let known = &row.named;
            let same_uid = known.uid.is_none() || name.uid.is_none() || known.uid == name.uid;
            let same_name = known.name.is_none() || name.name.is_none() || known.name == name.name;
            same_uid && same_name
        })
    }

    /// Adds the parts of a name that were not known. A known part never changes.
    pub(in crate::engine::world) fn learn(&mut self, id: u64, name: &PodName, source: NameSource) {
        if !self.rows.get(&id).is_some_and(|row| {
            row.named.uid.is_none() && name.uid.is_some() || row.named.name.is_none() && name.name.is_some()
        }) {
            return;
        }
        let Some(row) = self.rows.get_mut(&id) else { return };
        let known = &mut row.named;
        if known.uid.is_none()
            && let Some(uid) = &name.uid
        {
            known.uid = Some(uid.clone());
            self.by_uid.entry(uid.clone()).or_insert(id);
        }
        if known.name.is_none() && name.name.is_some() {
            known.name.clone_from(&name.name);
            known.namespace.clone_from(&name.namespace);
            row.source = source;
            self.by_name.extend(key_of(row));
        }
    }

    /// Adds a name to a pod if it is known. This does not show that the pod exists.
    pub(in crate::engine::world) fn learn_if_known(
        &mut self,
        name: &PodName,
        source: NameSource,
    ) -> Option<u64> {
        let id = self.find(name)?;
        self.learn(id, name, source);
        Some(id)
    }

    pub(crate) fn of_sandbox(&self, row: &Sandbox) -> Option<u64> {
        row.pod.or_else(|| self.by_uid(row.reported.pod.uid.as_ref()?))
    }
}

fn key_of(row: &Pod) -> Option<(String, String, u64)> {
    Some((row.named.namespace.clone()?, row.named.name.clone()?, row.id))
}
