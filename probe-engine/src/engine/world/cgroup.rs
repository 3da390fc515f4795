//! Cgroup directories of the hierarchy that identifies containers.

mod table;

pub(crate) use table::Crowd;
pub(in crate::engine) use table::Table;

use crate::{
    engine::{
        held::Subject,
        world::{EventContext, World, path::Place, process_of},
    },
    model::{
        change::ChangeKind,
        fact::{self, NameSource, PodName, Task},
        id::{CgroupKey, ContainerId, PodUid, TaskKey},
        time::Timestamp,
    },
};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    pub(crate) key: CgroupKey,
    pub(crate) path: String,
    pub(crate) level: u32,
    /// The pod UID in the path.
    pub(crate) pod: Option<PodUid>,
    pub(crate) container: Option<ContainerId>,
    /// A program in a container made the cgroup, below the container's own directory.
    pub(crate) nested: bool,
    pub(crate) created_at: Option<Timestamp>,
    pub(crate) found_at: Option<Timestamp>,
    /// When the kernel last reported that the cgroup became empty.
    pub(crate) emptied_at: Option<Timestamp>,
    pub(crate) populated: Option<bool>,
    pub(crate) state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    #[default]
    Live,
    Removed {
        at: Timestamp,
    },
}

impl State {
    /// A directory is removed only once: the kernel does not reuse its id.
    fn step(self, at: Timestamp) -> Option<Self> {
        match self {
            Self::Live => Some(Self::Removed { at }),
            Self::Removed { .. } => None,
        }
    }
}

impl Cgroup {
    #[must_use]
    pub(crate) fn is_live(&self) -> bool {
        self.state == State::Live
    }

    /// Whether this is the directory that a runtime made for a container.
    #[must_use]
    pub(crate) fn is_container(&self) -> bool {
        self.container.is_some() && !self.nested
    }

    /// Whether this is the directory that the kubelet made for a pod.
    #[must_use]
    pub(crate) fn is_pod(&self) -> bool {
        self.pod.is_some() && self.container.is_none() && Place::read(&self.path).is_pod()
    }
}

impl World {
    pub(super) fn cgroup_created(&mut self, ctx: EventContext, it: fact::Cgroup, by: &Task) {
        if self.cgroups.get(&it.key).is_some_and(|row| row.created_at.is_some() || !row.is_live()) {
            return;
        }
        let key = it.key;
        let Some(row) = self.cgroups.row(it) else { return };
        row.created_at = Some(ctx.at);
        let nested = row.nested;
        self.cgroup_shows(ctx, key);
        if nested {
            return;
        }
        self.pod_made(ctx, key);
        let subject = self.cgroup_subject(key);
        let wait = self.wait_of(&subject);
        self.tell(ctx, subject, wait, ChangeKind::CgroupCreated { by: process_of(by) });
    }

    pub(super) fn cgroup_removed(&mut self, ctx: EventContext, it: fact::Cgroup, by: &Task) {
        let key = it.key;
        if self.cgroups.leave_crowd(key) {
            return;
        }
        let Some(row) = self.cgroups.row(it) else { return };
        let Some(removed) = row.state.step(ctx.at) else { return };
        row.state = removed;
        row.populated = Some(false);
        let nested = row.nested;
        self.schedule_reap(ctx.at);
        if nested {
            return;
        }
        let subject = self.cgroup_subject(key);
        let wait = self.wait_of(&subject);
        self.tell(ctx, subject, wait, ChangeKind::CgroupRemoved { by: process_of(by) });
        self.cgroup_gone(ctx, key);
    }

    /// The kernel has freed the cgroup's object. Nothing can refer to the cgroup any more, so the row can be forgotten.
    pub(super) fn cgroup_released(&mut self, ctx: EventContext, it: fact::Cgroup) {
        let key = it.key;
        if self.cgroups.leave_crowd(key) {
            return;
        }
        let Some(row) = self.cgroups.row(it) else { return };
        if let Some(removed) = row.state.step(ctx.at) {
            row.state = removed;
            let nested = row.nested;
            self.schedule_reap(ctx.at);
            if !nested {
                self.cgroup_gone(ctx, key);
            }
        }
    }

    pub(super) fn cgroup_entered(&mut self, ctx: EventContext, it: fact::Cgroup, member: TaskKey) {
        let key = it.key;
        let known = self.cgroups.contains_key(&key);
        let Some(row) = self.cgroups.row(it) else {
            self.processes.enters(member, key);
            return;
        };
        if !row.is_live() {
            return;
        }
        row.populated = Some(true);
        self.processes.enters(member, key);
        if !known {
            self.cgroup_shows(ctx, key);
        }
    }

    pub(super) fn cgroup_emptied(&mut self, ctx: EventContext, it: fact::Cgroup) {
        let key = it.key;
        let Some(row) = self.cgroups.row(it) else { return };
        if row.emptied_at >= Some(ctx.at) {
            return;
        }
        row.emptied_at = Some(ctx.at);
        row.populated = Some(false);
        // The kernel reports each level up to the root. Only the directories of pods and containers matter.
        let own = row.is_container().then(|| row.container.clone()).flatten();
        if own.is_none() && !row.is_pod() {
            return;
        }
        let subject = self.cgroup_subject(key);
        let wait = self.wait_of(&subject);
        self.tell(ctx, subject, wait, ChangeKind::CgroupEmptied);
        if let Some(id) = own {
            self.container_emptied(ctx, &id);
        }
    }

    pub(super) fn cgroup_found(&mut self, ctx: EventContext, it: fact::Cgroup, populated: bool) {
        let key = it.key;
        let Some(row) = self.cgroups.row(it) else { return };
        if !row.is_live() {
            return;
        }
        row.found_at = Some(ctx.at);
        if row.emptied_at.is_none_or(|emptied| emptied < ctx.at) {
            row.populated = Some(populated);
        }
        self.cgroup_shows(ctx, key);
    }

    /// The listing of a process names its cgroup, perhaps before the listing of cgroups does.
    pub(super) fn cgroup_named(&mut self, ctx: EventContext, key: CgroupKey, path: &str) {
        if key != CgroupKey::default() && !path.is_empty() && !self.cgroups.contains_key(&key) {
            let it = fact::Cgroup { key, path: path.to_owned(), level: 0, nested: false };
            self.cgroup_found(ctx, it, true);
        }
    }

    fn cgroup_subject(&self, key: CgroupKey) -> Subject {
        let row = self.cgroups.get(&key);
        Subject {
            cgroup: Some(key),
            container: row.and_then(|row| row.container.clone()),
            pod: row.and_then(|row| row.pod.as_ref()).and_then(|uid| self.pods.by_uid(uid)),
            ..Subject::default()
        }
    }

    /// A cgroup exists, so the pod and the container in its path exist.
    fn cgroup_shows(&mut self, ctx: EventContext, key: CgroupKey) {
        let Some(row) = self.cgroups.get(&key).filter(|row| !row.nested) else { return };
        let (uid, id, is_pod) = (row.pod.clone(), row.container.clone(), row.is_pod());
        let pod = uid.and_then(|uid| {
            let name = PodName { uid: Some(uid), ..PodName::default() };
            self.pod_lives(ctx, &name, NameSource::CgroupPath)
        });
        if let Some(pod) = pod {
            self.pods.has_cgroup(pod, if is_pod { key } else { CgroupKey::default() });
        }
        if let Some(id) = id {
            self.container_seen(ctx, &id, pod, Some(key));
        }
    }

    /// A pod's own cgroup, or a cgroup in it, was made.
    fn pod_made(&mut self, ctx: EventContext, key: CgroupKey) {
        let Some(row) = self.cgroups.get(&key) else { return };
        let (is_pod, uid) = (row.is_pod(), row.pod.clone());
        let Some(id) = uid.and_then(|uid| self.pods.by_uid(&uid)) else { return };
        if is_pod {
            self.pods.made(id, ctx.at);
        } else {
            self.phase_turns(Some(id));
        }
    }

    /// A cgroup was removed. Its container or pod may be gone with it.
    pub(super) fn cgroup_gone(&mut self, ctx: EventContext, key: CgroupKey) {
        let Some(row) = self.cgroups.get(&key) else { return };
        let (own, pod, is_pod) = (self.cgroups.own_container(key), row.pod.clone(), row.is_pod());
        if let Some(id) = own {
            self.cgroups.drop_crowd(&id);
            self.container_cgroup_gone(ctx, &id);
        }
        let pod = pod.and_then(|uid| self.pods.by_uid(&uid));
        if let Some(pod) = pod {
            if is_pod {
                self.pods.lost_cgroup(pod, key);
                self.stop_unvouched(ctx, pod);
            }
            self.pod_may_be_gone(ctx, pod);
        }
    }
}
