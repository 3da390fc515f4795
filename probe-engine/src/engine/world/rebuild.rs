//! The successive sandboxes of one pod, and which of them are needed to judge the later ones.
//!
//! **Invariant:** bounded by the sandboxes that are remembered for other reasons. A series of sandboxes without
//! containers needs at most two more.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    engine::world::{World, sandbox::Sandbox},
    model::id::ContainerId,
};

/// Sandboxes of one pod that are made within this time are judged as one series.
pub(in crate::engine) const WINDOW: Duration = Duration::from_secs(10 * 60);

impl World {
    /// The sandboxes that are needed to judge later ones of the same pod: a sandbox that ran containers before one that
    /// ran none, and the first of a series that ran none.
    pub(super) fn precedents(&self) -> BTreeSet<ContainerId> {
        let mut needed = BTreeSet::new();
        for rows in self.sandboxes.successive() {
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
