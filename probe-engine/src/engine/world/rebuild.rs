//! The sandboxes of one pod, one after the other, and how long each is needed to judge those after it.
//!
//! **Invariant:** bounded by the sandboxes that are remembered for their own sake: of those that one after the other ran
//! nothing, two more.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    engine::world::{
        World,
        sandbox::{Group, Sandbox},
    },
    model::id::ContainerId,
};

/// Sandboxes that are made within so long are made for one reason.
pub(in crate::engine) const WINDOW: Duration = Duration::from_secs(10 * 60);

impl World {
    /// All sandboxes of each pod that has several, with those that are only remembered, the oldest first.
    fn successive_sandboxes(&self) -> Vec<Vec<&Sandbox>> {
        let of_pods = self.sandboxes.shared_groups().filter(|group| matches!(group, Group::Uid(_)));
        let sorted = |group| {
            let mut rows: Vec<&Sandbox> = self.sandboxes.all_of(group).collect();
            rows.sort_by_key(|row| (row.first_at, &row.id));
            rows
        };
        of_pods.map(sorted).collect()
    }

    /// Those that tell what the ones after them are: what ran in a sandbox before one that ran nothing, and which was
    /// the first to run nothing.
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
