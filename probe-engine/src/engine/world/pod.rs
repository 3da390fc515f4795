//! Pods: what sandboxes, containers, cgroups and CNI calls have in common.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

use crate::{
    engine::{
        held::{Subject, Wait},
        tracked::Tracked,
        world::{
            EventContext, World,
            hint::Name,
            start::{self, Reading},
        },
    },
    model::{
        change::{ChangeKind, Question},
        fact::{NameSource, Origin, PodName},
        id::{CgroupKey, PodUid},
        time::Timestamp,
    },
};

#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// Counts up, never used again: a pod may be known by its name before its UID, or the other way round.
    #[serde_as(as = "DisplayFromStr")]
    pub id: u64,
    pub uid: Option<PodUid>,
    pub namespace: Option<String>,
    pub name: Option<String>,
    /// Where the name, or with none the UID, comes from.
    pub source: NameSource,
    pub first_at: Timestamp,
    pub origin: Origin,
    /// Its own cgroups that exist; all zero stands for one that is known only by what lies in it.
    pub cgroups: Vec<CgroupKey>,
    /// How often its name was asked for.
    pub asked: u32,
    /// When the latest of its sandboxes that had been ready stopped.
    pub left_at: Option<Timestamp>,
    /// When its cgroup was made.
    pub made_at: Option<Timestamp>,
    /// Its start was told of.
    pub is_started: bool,
    /// The names of the containers that it is to have; none: not known.
    #[serde(default)]
    pub expected: Vec<String>,
    /// What its cgroup counted while it started.
    pub readings: Vec<Reading>,
    pub state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    #[default]
    Present,
    Gone {
        at: Timestamp,
    },
}

/// What can happen to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Show,
    Go,
}

/// So often a name is asked for: when the UID is first seen and when the pod's first container is. The kubelet makes
/// the pod's cgroup before the folder of its logs.
const ASKS: u32 = 2;
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// All pods, also by UID.
#[derive(Debug, Default)]
pub(in crate::engine) struct Table {
    rows: Tracked<u64, Pod>,
    /// Names that were heard before, or without, their pods.
    pub(super) names: BTreeMap<PodUid, Name>,
    by_uid: BTreeMap<PodUid, u64>,
    /// The number of the next pod.
    pub(in crate::engine) next: u64,
}

impl State {
    fn step(self, step: Step, at: Timestamp) -> Option<Self> {
        match (self, step) {
            (Self::Present, Step::Go) => Some(Self::Gone { at }),
            (Self::Gone { .. }, Step::Show) => Some(Self::Present),
            (Self::Present, Step::Show) | (Self::Gone { .. }, Step::Go) => None,
        }
    }
}

impl Pod {
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.state == State::Present
    }

    #[must_use]
    pub fn named(&self) -> PodName {
        PodName { namespace: self.namespace.clone(), name: self.name.clone(), uid: self.uid.clone() }
    }

    /// It has a directory, by its key, or by what lies in it: then it stays until that is removed, seen or not.
    pub(super) fn has_cgroup(&mut self, key: CgroupKey) {
        let by_content = CgroupKey::default();
        if key != by_content {
            self.cgroups.retain(|other| *other != by_content && *other != key);
        }
        if key != by_content || self.cgroups.is_empty() {
            self.cgroups.push(key);
        }
    }
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

    /// It has a directory.
    pub(super) fn has_cgroup(&mut self, id: u64, key: CgroupKey) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.has_cgroup(key);
        }
    }

    /// A directory of it is gone.
    pub(super) fn lost_cgroup(&mut self, id: u64, key: CgroupKey) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.cgroups.retain(|other| *other != key && *other != CgroupKey::default());
        }
    }

    /// Directories that were known by what lay in them are gone: a complete listing would have given their keys. The pods
    /// that had one.
    pub(super) fn lost_unseen_cgroups(&mut self) -> Vec<u64> {
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

    /// Its own directory was made.
    pub(super) fn made(&mut self, id: u64, at: Timestamp) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.made_at = Some(row.made_at.map_or(at, |made| made.min(at)));
        }
    }

    /// A sandbox of it that had been ready stopped, or is still on record.
    pub(super) fn left(&mut self, id: u64, at: Timestamp) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.left_at = row.left_at.max(Some(at));
        }
    }

    /// Its start is complete, or goes on after all.
    pub(super) fn set_started(&mut self, id: u64, is_started: bool) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.is_started = is_started;
        }
    }

    /// The kubelet keeps on record which containers it is to have.
    pub(super) fn expect(&mut self, id: u64, containers: Vec<String>) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.expected = containers;
        }
    }

    /// What its cgroup counted at a time.
    pub(super) fn counted(&mut self, id: u64, reading: Reading) {
        if let Some(row) = self.rows.get_mut(&id)
            && row.readings.last().is_none_or(|(at, _)| *at < reading.0)
        {
            row.readings.push(reading);
            start::thin(&mut row.readings);
        }
    }

    pub(in crate::engine) fn by_uid(&self, uid: &PodUid) -> Option<u64> {
        self.by_uid.get(uid).copied()
    }

    /// By UID; without one, or where the UID is new, by name.
    fn find(&self, name: &PodName) -> Option<u64> {
        if let Some(id) = name.uid.as_ref().and_then(|uid| self.by_uid(uid)) {
            return Some(id);
        }
        if name.name.is_none() || name.namespace.is_none() {
            return None;
        }
        let named = |row: &&Pod| {
            row.name == name.name
                && row.namespace == name.namespace
                && row.is_present()
                && (row.uid.is_none() || name.uid.is_none())
        };
        self.rows.values().find(named).map(|row| row.id)
    }

    pub(in crate::engine) fn insert(&mut self, row: Pod) {
        if let Some(uid) = &row.uid {
            self.by_uid.insert(uid.clone(), row.id);
        }
        self.next = self.next.max(row.id.saturating_add(1));
        self.rows.insert(row.id, row);
    }

    pub(in crate::engine) fn remove(&mut self, id: u64) {
        if let Some(uid) = self.rows.remove(&id).and_then(|row| row.uid)
            && self.by_uid.get(&uid) == Some(&id)
        {
            self.by_uid.remove(&uid);
        }
    }

    /// Whether nothing that is said contradicts its being this pod.
    pub(super) fn is(&self, id: u64, name: &PodName) -> bool {
        self.rows.get(&id).is_some_and(|row| {
            let same_uid = row.uid.is_none() || name.uid.is_none() || row.uid == name.uid;
            let same_name = row.name.is_none() || name.name.is_none() || row.name == name.name;
            same_uid && same_name
        })
    }

    /// Adds what was not known; a name once given stays.
    pub(super) fn learn(&mut self, id: u64, name: &PodName, source: NameSource) {
        let Some(row) = self.rows.get_mut(&id) else { return };
        if row.uid.is_none()
            && let Some(uid) = &name.uid
        {
            row.uid = Some(uid.clone());
            self.by_uid.entry(uid.clone()).or_insert(id);
        }
        if row.name.is_none() && name.name.is_some() {
            row.name.clone_from(&name.name);
            row.namespace.clone_from(&name.namespace);
            row.source = source;
        }
    }
}

impl World {
    /// Something shows that this pod is here, and what it is called.
    pub(super) fn pod_lives(&mut self, ctx: EventContext, name: &PodName, source: NameSource) -> Option<u64> {
        if name.uid.is_none() && (name.name.is_none() || name.namespace.is_none()) {
            return None;
        }
        let id = if let Some(id) = self.pods.find(name) {
            self.pods.learn(id, name, source);
            id
        } else {
            let row = Pod {
                id: self.pods.next,
                uid: name.uid.clone(),
                namespace: name.namespace.clone(),
                name: name.name.clone(),
                source,
                first_at: ctx.at,
                origin: ctx.origin,
                cgroups: Vec::new(),
                asked: 0,
                left_at: None,
                made_at: None,
                is_started: false,
                expected: Vec::new(),
                readings: Vec::new(),
                state: State::Gone { at: ctx.at },
            };
            let id = row.id;
            self.pods.insert(row);
            id
        };
        let row = self.pods.rows.get_mut(&id)?;
        let shown = row.state.step(Step::Show, ctx.at);
        if let Some(present) = shown {
            row.state = present;
            row.first_at = ctx.at;
            row.origin = ctx.origin;
            (row.made_at, row.is_started) = (None, false);
            row.expected.clear();
            row.readings.clear();
        }
        if let Some(known) = row.uid.as_ref().and_then(|uid| self.pods.names.get(uid)) {
            let (found, source) = (known.pod_name(), known.source);
            self.pods.learn(id, &found, source);
        }
        if shown.is_some() {
            self.tell(
                ctx,
                Subject { pod: Some(id), ..Subject::default() },
                Wait::Name,
                ChangeKind::PodFirstSeen,
            );
            self.ask_name(ctx, id);
        }
        Some(id)
    }

    /// A pod that is known, by whatever is said of it; nothing is concluded about its being here.
    pub(super) fn pod_of(&mut self, name: &PodName, source: NameSource) -> Option<u64> {
        let id = self.pods.find(name)?;
        self.pods.learn(id, name, source);
        Some(id)
    }

    /// What is known by its UID and what is known by its name turn out to be one pod: the first row stays. The other
    /// one goes without a word; what was said of it and waits keeps its name.
    pub(super) fn pods_are_one(&mut self, ctx: EventContext, keep: u64, other: u64) {
        let Some(gone) = self.pods.get(&other).filter(|_| keep != other) else { return };
        let name = PodName { namespace: gone.namespace.clone(), name: gone.name.clone(), uid: None };
        let (first_at, source, cgroups) = (gone.first_at, gone.source, gone.cgroups.clone());
        let (made_at, is_started, readings) = (gone.made_at, gone.is_started, gone.readings.clone());
        let expected = gone.expected.clone();
        if !self.pods.is(keep, &name) {
            return;
        }
        self.pods.learn(keep, &name, source);
        if let Some(row) = self.pods.rows.get_mut(&keep) {
            row.first_at = first_at.min(row.first_at);
            row.made_at = row.made_at.into_iter().chain(made_at).min();
            row.is_started |= is_started;
            if row.readings.is_empty() {
                row.readings = readings;
            }
            if row.expected.is_empty() {
                row.expected = expected;
            }
            row.cgroups
                .extend(cgroups.into_iter().filter(|key| !row.cgroups.contains(key)).collect::<Vec<_>>());
        }
        if let Some(row) = self.pods.rows.get_mut(&other) {
            row.state = State::Gone { at: ctx.at };
            row.cgroups.clear();
        }
        self.schedule_reap(ctx.at);
        self.sandboxes.replace_pod(keep, other);
        self.containers.replace_pod(keep, other);
    }

    /// Whether the making of its directory was seen.
    pub(super) fn is_seen_from_birth(&self, id: u64) -> bool {
        let made = |key| self.cgroups.get(key).is_some_and(|cgroup| cgroup.created_at.is_some());
        self.pods.get(&id).is_some_and(|row| row.cgroups.iter().any(made))
    }

    pub(super) fn ask_name(&mut self, ctx: EventContext, id: u64) {
        let Some(row) = self.pods.rows.get_mut(&id) else { return };
        let is_due = row.asked == 0 || row.asked < ASKS && ctx.at >= row.first_at + ASK_AGAIN;
        let Some(uid) = row.uid.clone().filter(|_| row.name.is_none() && is_due) else { return };
        row.asked = row.asked.saturating_add(1);
        self.ask(Question::Pod { uid });
    }

    /// A pod is gone when its cgroup is, and every sandbox, container and network namespace of it.
    pub(super) fn pod_may_be_gone(&mut self, ctx: EventContext, id: u64) {
        let Some(row) = self.pods.get(&id) else { return };
        let lives = !row.cgroups.is_empty()
            || self.containers.values().any(|row| row.pod == Some(id) && row.is_running())
            || self.sandboxes.values().any(|row| {
                let netns = row.network.netns.and_then(|life| self.netns.get(life));
                row.pod == Some(id) && (!row.is_stopped() || netns.is_some_and(|netns| netns.is_live()))
            });
        if lives {
            return;
        }
        let Some(row) = self.pods.rows.get_mut(&id) else { return };
        let Some(gone) = row.state.step(Step::Go, ctx.at) else { return };
        row.state = gone;
        let lived = ctx.at.since(row.first_at);
        self.schedule_reap(ctx.at);
        self.tell(
            ctx,
            Subject { pod: Some(id), ..Subject::default() },
            Wait::Name,
            ChangeKind::PodGone { lived },
        );
    }
}
