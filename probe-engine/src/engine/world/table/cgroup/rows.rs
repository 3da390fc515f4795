//! All cgroups. A program in a container may make any number of cgroups below the container's own, as Docker
//! in Docker or systemd in a pod do. So most of these have no row of their own where there are many.
//!
//! **Invariant:** a cgroup without a row is still known as one of its container, so that nothing in it passes
//! for a program of the node.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
};

use serde::{Deserialize, Serialize};

use crate::{
    engine::{
        queued_change::Subject,
        tracked::Tracked,
        world::{
            path::Place,
            table::cgroup::{Cgroup, State},
        },
    },
    model::{
        fact::{self, NESTED, Task},
        id::{CgroupKey, ContainerId},
        time::Timestamp,
    },
};

/// At most this many cgroups below containers have rows, counted over all containers.
const ALL_NESTED: usize = 16 * NESTED;

/// Beyond the rows, the container is known of this many cgroups for each container. The oldest are forgotten
/// first.
const CROWD: usize = 65_536;

/// The cgroups below one container that have no rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crowd {
    pub(crate) container: ContainerId,
    hierarchy: u32,
    /// Their ids. The kernel counts them up.
    pub(crate) ids: BTreeSet<u64>,
}

/// All cgroups by key.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) rows: Tracked<CgroupKey, Cgroup>,
    /// How many of the rows are below each container, and of all.
    pub(crate) nested: BTreeMap<ContainerId, usize>,
    all_nested: usize,
    pub(crate) crowds: BTreeMap<ContainerId, Crowd>,
}

impl Deref for Table {
    type Target = BTreeMap<CgroupKey, Cgroup>;

    fn deref(&self) -> &Self::Target {
        &self.rows
    }
}

impl Table {
    /// The keys of rows that may have changed since the last call.
    pub(in crate::engine::world) fn take_changed(&mut self) -> BTreeSet<CgroupKey> {
        self.rows.take_changed()
    }

    /// The row of this cgroup, which is made if there is none; `None` if there is no room for it.
    pub(in crate::engine::world) fn row(&mut self, it: fact::Cgroup) -> Option<&mut Cgroup> {
        let fact::Cgroup { key, path, level, nested: _ } = it;
        if !self.rows.contains_key(&key) {
            let place = Place::read(&path);
            let nested = place.container.is_some() && place.below;
            if nested
                && let Some(container) = &place.container
                && !self.has_room(container)
            {
                self.join_crowd(container, key);
                return None;
            }
            let pod = place.pod;
            let container = place.container;
            self.insert(Cgroup { key, level, nested, pod, container, path, ..Cgroup::default() });
        }
        self.rows.get_mut(&key)
    }

    fn has_room(&self, container: &ContainerId) -> bool {
        self.all_nested < ALL_NESTED && self.nested.get(container).is_none_or(|count| *count < NESTED)
    }

    fn join_crowd(&mut self, container: &ContainerId, key: CgroupKey) {
        let crowd = self.crowds.entry(container.clone()).or_insert_with(|| Crowd {
            container: container.clone(),
            hierarchy: key.hierarchy,
            ids: BTreeSet::new(),
        });
        crowd.ids.insert(key.id);
        if crowd.ids.len() > CROWD {
            crowd.ids.pop_first();
        }
    }

    /// A row, as it is made or as a checkpoint has it.
    pub(in crate::engine::world) fn insert(&mut self, row: Cgroup) {
        if row.nested
            && let Some(container) = &row.container
        {
            self.leave_crowd(row.key);
            *self.nested.entry(container.clone()).or_default() += 1;
            self.all_nested += 1;
        }
        self.rows.insert(row.key, row);
    }

    /// Restores the cgroups below a container that have no rows.
    pub(in crate::engine::world) fn insert_crowd(&mut self, crowd: Crowd) {
        self.crowds.insert(crowd.container.clone(), crowd);
    }

    /// The cgroups below containers that have no rows.
    pub(crate) fn crowds(&self) -> impl Iterator<Item = &Crowd> {
        self.crowds.values()
    }

    /// The row of a cgroup, and the container to which it belongs, at whatever depth.
    pub(crate) fn find(&self, key: CgroupKey) -> (Option<&Cgroup>, Option<&ContainerId>) {
        let row = self.rows.get(&key);
        match row {
            Some(found) => (row, found.container.as_ref()),
            None => (None, self.crowd_of(key)),
        }
    }

    pub(crate) fn container_of(&self, key: CgroupKey) -> Option<&ContainerId> {
        self.find(key).1
    }

    fn crowd_of(&self, key: CgroupKey) -> Option<&ContainerId> {
        let crowds = self.crowds.values();
        let mut with = crowds.filter(|crowd| crowd.hierarchy == key.hierarchy && crowd.ids.contains(&key.id));
        with.next().map(|crowd| &crowd.container)
    }

    /// A cgroup is gone, or has a row now. Returns whether it had none.
    pub(in crate::engine::world) fn leave_crowd(&mut self, key: CgroupKey) -> bool {
        let Some(container) = self.crowd_of(key).cloned() else { return false };
        if let Some(crowd) = self.crowds.get_mut(&container) {
            crowd.ids.remove(&key.id);
            if crowd.ids.is_empty() {
                self.crowds.remove(&container);
            }
        }
        true
    }

    /// A container's own cgroup is gone, and with it all that were below.
    pub(in crate::engine::world) fn drop_crowd(&mut self, container: &ContainerId) {
        self.crowds.remove(container);
    }

    /// Removes the cgroups that a complete listing, begun at `begun`, did not name. Below a container with a
    /// crowd it names some.
    pub(in crate::engine::world) fn not_listed(&mut self, at: Timestamp, begun: Timestamp) -> Vec<CgroupKey> {
        let mut gone = Vec::new();
        let crowds = &self.crowds;
        self.rows.update(|key, row| {
            let is_in_crowd = row.nested && row.container.as_ref().is_some_and(|id| crowds.contains_key(id));
            let is_gone = row.is_live()
                && !is_in_crowd
                && row.created_at.max(row.found_at).is_none_or(|seen| seen < begun);
            if is_gone {
                row.state = State::Removed { at };
                gone.push(*key);
            }
            is_gone
        });
        gone
    }

    /// Forgets the cgroups that were removed by `old`.
    pub(in crate::engine::world) fn reap(&mut self, old: Timestamp) {
        let nested = &mut self.nested;
        let all_nested = &mut self.all_nested;
        self.rows.retain(|_, row| {
            let is_kept = !matches!(row.state, State::Removed { at } if at <= old);
            if !is_kept
                && row.nested
                && let Some(container) = &row.container
                && let Some(count) = nested.get_mut(container)
            {
                (*count, *all_nested) = (*count - 1, *all_nested - 1);
                if *count == 0 {
                    nested.remove(container);
                }
            }
            is_kept
        });
    }

    /// The container whose own directory this cgroup is.
    pub(crate) fn own_container(&self, key: CgroupKey) -> Option<ContainerId> {
        self.get(&key).filter(|row| row.is_container())?.container.clone()
    }

    /// Whether this cgroup is a container's directory or lies below one.
    pub(crate) fn is_in_container(&self, key: CgroupKey) -> bool {
        self.container_of(key).is_some()
    }

    /// The subject of a change that a task caused: the task's cgroup and its container.
    pub(crate) fn subject_of(&self, task: &Task) -> Subject {
        let (cgroup, container) = self.find(task.cgroup);
        Subject { cgroup: cgroup.map(|row| row.key), container: container.cloned(), ..Subject::default() }
    }
}
