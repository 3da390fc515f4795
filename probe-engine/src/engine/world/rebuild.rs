//! The successive sandboxes of one pod, and which of them are needed to judge the later ones.
//!
//! **Invariant:** bounded by the sandboxes that are remembered for other reasons. A series of sandboxes without
//! containers needs at most two more.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    engine::world::{
        World,
        sandbox::{Group, Sandbox},
    },
    model::id::ContainerId,
};

/// Sandboxes of one pod that are made within this time are judged as one series.
pub(in crate::engine) const WINDOW: Duration = Duration::from_secs(10 * 60);

impl World {
    /// The sandboxes of each pod that has several, with remembered ones, oldest first.
    fn successive_sandboxes(&self) -> Vec<Vec<&Sandbox>> {
        let of_pods = self.sandboxes.shared_groups().filter(|group| matches!(group, Group::Uid(_)));
        let sorted = |group| {
            let mut rows: Vec<&Sandbox> = self.sandboxes.all_of(group).collect();
            rows.sort_by_key(|row| (row.first_at, &row.id));
            rows
        };
        of_pods.map(sorted).collect()
    }

    /// The sandboxes that are needed to judge later ones of the same pod: a sandbox that ran containers before one that
    /// ran none, and the first of a series that ran none.
    pub(super) fn precedents(&self) -> BTreeSet<ContainerId> {
        let mut needed = BTreeSet::new();
        for rows in self.successive_sandboxes() {
            let is_unused = |row: Option<&&Sandbox>| row.is_some_and(|row| row.containers().is_empty());
            for (place, row) in rows.iter().enumerate().filter(|(_, row)| !row.containers().is_empty()) {
                let after = &rows[place + 1..];
                if is_unused(after.first()) {
                    needed.insert(row.id.clone());
                }
                if is_unused(after.first()) && is_unused(after.get(1)) {
                    needed.extend(after.first().map(|row| row.id.clone()));
                }
            }
        }
        needed
    }
}
