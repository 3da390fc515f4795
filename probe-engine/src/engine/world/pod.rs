//! Pods. A pod joins sandboxes, containers, cgroups and CNI calls.

mod readings;
mod table;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

use readings::Readings;
pub(in crate::engine) use table::Table;

use crate::{
    engine::{
        held::{Subject, Wait},
        world::{
            EventContext, World,
            container::{self, Container},
            netns::Netns,
            sandbox,
        },
    },
    model::{
        change::{ChangeKind, Question},
        fact::{NameSource, Origin, PodName},
        id::CgroupKey,
        time::Timestamp,
    },
};

#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// The number of this row. Numbers only rise and are never reused. A row needs its own number because a pod's name
    /// may be known before its UID, or its UID before its name.
    #[serde_as(as = "DisplayFromStr")]
    pub(crate) id: u64,
    pub(crate) named: PodName,
    /// The source of the name. While there is no name, the source of the UID.
    pub(crate) source: NameSource,
    /// The time and the origin of the first sign of the pod in its present life.
    pub(crate) first_at: Timestamp,
    pub(crate) origin: Origin,
    /// The pod's own cgroups that exist. An all-zero key stands for a cgroup of which only the cgroups in it are known.
    pub(crate) cgroups: Vec<CgroupKey>,
    /// How often the pod's name was asked for.
    pub(crate) asked: u32,
    /// When the last sandbox of the pod that had been ready stopped.
    pub(crate) left_at: Option<Timestamp>,
    pub(crate) start: Start,
    pub(crate) state: State,
}

/// The state of the start in the pod's present life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Start {
    /// When the pod's cgroup was made.
    pub(crate) made_at: Option<Timestamp>,
    /// The start counts as complete, and was reported.
    pub(crate) is_complete: bool,
    /// The names of the containers that the pod will have. Empty: not known.
    pub(crate) expected: Vec<String>,
    /// The counters of the pod's cgroup during the start.
    pub(crate) readings: Readings,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    #[default]
    Present,
    Gone {
        at: Timestamp,
    },
}

/// The transitions of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Show,
    Go,
}

/// A name is asked for at most this often: when the UID is first seen, and when the pod's first container is first
/// seen. The kubelet makes the pod's cgroup before the folder of its logs, so the first answer may be that there is no
/// name.
const ASKS: u32 = 2;
const ASK_AGAIN: Duration = Duration::from_millis(10);

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
    pub(crate) fn is_present(&self) -> bool {
        self.state == State::Present
    }

    /// When it was made, if that was seen.
    pub(in crate::engine::world) fn made_at(&self) -> Option<Timestamp> {
        self.start.made_at.map(|made| made.min(self.first_at))
    }

    /// The pod has a cgroup. An all-zero `key` means that only a cgroup in it is known. The entry stays until the pod's
    /// cgroup is removed or a listing lacks it.
    fn has_cgroup(&mut self, key: CgroupKey) {
        let by_content = CgroupKey::default();
        if key != by_content {
            self.cgroups.retain(|other| *other != by_content && *other != key);
        }
        if key != by_content || self.cgroups.is_empty() {
            self.cgroups.push(key);
        }
    }
}

impl Start {
    /// Adds the facts of another row that turned out to be the same pod.
    fn merge(&mut self, other: Self) {
        self.made_at = self.made_at.into_iter().chain(other.made_at).min();
        self.is_complete |= other.is_complete;
        if self.readings.is_empty() {
            self.readings = other.readings;
        }
        if self.expected.is_empty() {
            self.expected = other.expected;
        }
    }
}

impl World {
    /// Evidence shows that this pod exists, and names it.
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
                named: name.clone(),
                source,
                first_at: ctx.at,
                origin: ctx.origin,
                cgroups: Vec::new(),
                asked: 0,
                left_at: None,
                start: Start::default(),
                state: State::Gone { at: ctx.at },
            };
            let id = row.id;
            self.pods.insert(row);
            id
        };
        let shown = self.pods.get(&id)?.state.step(Step::Show, ctx.at);
        if let Some(present) = shown
            && let Some(row) = self.pods.rows.get_mut(&id)
        {
            if let Some(uid) = &row.named.uid {
                self.beliefs.pod_is_there(uid);
            }
            row.state = present;
            row.first_at = ctx.at;
            row.origin = ctx.origin;
            row.start = Start::default();
        }
        let named = |id| self.pods.names.get(self.pods.get(&id)?.named.uid.as_ref()?);
        if let Some(known) = named(id) {
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

    /// Joins two rows that turned out to be one pod: one had its UID, the other its name. `keep` stays. No event
    /// reports the end of the other row. Held changes about the other row keep its name.
    pub(super) fn pods_are_one(&mut self, ctx: EventContext, keep: u64, other: u64) {
        let Some(gone) = self.pods.get(&other).filter(|_| keep != other) else { return };
        let name = PodName { uid: None, ..gone.named.clone() };
        let (first_at, source) = (gone.first_at, gone.source);
        let (cgroups, start) = (gone.cgroups.clone(), gone.start.clone());
        if !self.pods.is(keep, &name) {
            return;
        }
        self.pods.learn(keep, &name, source);
        if let Some(row) = self.pods.rows.get_mut(&keep) {
            row.first_at = first_at.min(row.first_at);
            row.start.merge(start);
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

    /// Whether the making of the pod's cgroup was seen.
    pub(super) fn is_seen_from_birth(&self, id: u64) -> bool {
        let made = |key| self.cgroups.get(key).is_some_and(|cgroup| cgroup.created_at.is_some());
        self.pods.get(&id).is_some_and(|row| row.cgroups.iter().any(made))
    }

    pub(super) fn ask_name(&mut self, ctx: EventContext, id: u64) {
        let Some(row) = self.pods.rows.get_mut(&id) else { return };
        let is_due = row.asked == 0 || row.asked < ASKS && ctx.at >= row.first_at + ASK_AGAIN;
        let Some(uid) = row.named.uid.clone().filter(|_| row.named.name.is_none() && is_due) else { return };
        row.asked = row.asked.saturating_add(1);
        self.ask(Question::Pod { uid });
    }

    /// Ends a pod once its cgroup is gone, none of its containers runs, and its sandboxes and their network namespaces
    /// are gone.
    pub(super) fn pod_may_be_gone(&mut self, ctx: EventContext, id: u64) {
        let Some(row) = self.pods.get(&id) else { return };
        let lives = !row.cgroups.is_empty()
            || self.containers.group(container::Group::Pod(id)).any(Container::is_running)
            || self.sandboxes.group(sandbox::Group::Pod(id)).any(|row| {
                let netns = row.network.netns.and_then(|life| self.netns.get(life));
                !row.is_stopped() || netns.is_some_and(Netns::may_be_used)
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
