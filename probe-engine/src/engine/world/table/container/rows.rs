//! The table of containers, and how long it keeps each.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
};

use crate::{
    engine::{
        grouped::Groups,
        queued_change::Subject,
        world::table::container::{Container, Group, State},
    },
    model::{
        fact::Role,
        id::{ContainerId, TaskKey},
        time::Timestamp,
    },
};

/// All containers by id, with the pause containers of sandboxes.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(in crate::engine::world) rows: Groups<ContainerId, Container>,
}

impl Deref for Table {
    type Target = BTreeMap<ContainerId, Container>;

    fn deref(&self) -> &Self::Target {
        &self.rows
    }
}

impl Table {
    /// The keys of rows that may have changed since the last call.
    pub(in crate::engine::world) fn take_changed(&mut self) -> BTreeSet<ContainerId> {
        self.rows.take_changed()
    }

    /// The containers of a group.
    pub(crate) fn group(&self, group: Group) -> impl Iterator<Item = &Container> {
        self.rows.of(group)
    }

    /// Restores a row from a checkpoint.
    pub(in crate::engine::world) fn insert(&mut self, row: Container) {
        self.rows.insert(row.id.clone(), row);
    }

    /// A container turned out to be the pause container of a sandbox.
    pub(in crate::engine::world) fn holds_sandbox(&mut self, id: &ContainerId, pod: Option<u64>) {
        if let Some(row) = self.rows.get_mut(id) {
            row.role = Some(Role::Sandbox);
            row.pod = row.pod.or(pod);
        }
    }

    /// The sandbox of a container became known.
    pub(in crate::engine::world) fn lives_in(&mut self, id: &ContainerId, sandbox: &ContainerId) {
        if let Some(row) = self.rows.get_mut(id) {
            row.sandbox = Some(sandbox.clone());
        }
    }

    /// Two rows of pods turned out to be one pod.
    pub(in crate::engine::world) fn replace_pod(&mut self, keep: u64, other: u64) {
        self.rows.update(|_, row| {
            let is_other = row.pod == Some(other);
            if is_other {
                row.pod = Some(keep);
            }
            is_other
        });
    }

    /// Forgets the containers that ended by `old`, and those that a runtime's arguments named and that never
    /// came.
    pub(in crate::engine::world) fn reap(
        &mut self,
        old: Timestamp,
        has_cgroup: impl Fn(&Container) -> bool,
        has_sandbox: impl Fn(&ContainerId) -> bool,
    ) {
        self.rows.retain(|id, row| match row.state {
            State::Running { .. } => true,
            State::Exited { at } => at > old || has_cgroup(row),
            State::Created => row.first_at > old || has_cgroup(row) || has_sandbox(id),
        });
    }

    /// Whether a process can be the container's first one. What is executed into it later shows nothing.
    pub(crate) fn may_be_first(&self, id: &ContainerId, process: TaskKey) -> bool {
        let row = self.get(id);
        row.is_some_and(|row| row.process().is_none_or(|first| first == process))
    }

    pub(crate) fn subject_of(&self, id: &ContainerId) -> Subject {
        let row = self.get(id);
        Subject { container: Some(id.clone()), cgroup: row.and_then(|row| row.cgroup), ..Subject::default() }
    }

    /// The outbox stopped waiting for a container's role.
    pub(in crate::engine::world) fn tentative_over(&mut self, id: &ContainerId) {
        if let Some(row) = self.rows.get_mut(id) {
            row.question.is_awaited = false;
        }
    }
}
