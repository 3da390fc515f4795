//! The successive sandboxes of one pod, and which of them are needed to judge the later ones.
//!
//! **Invariant:** bounded by the sandboxes that are remembered for other reasons. A series of sandboxes
//! without containers needs at most two more.

use std::{collections::BTreeSet, time::Duration};

use crate::{engine::world::World, model::id::ContainerId};

/// Sandboxes of one pod that are made within this time are judged as one series.
pub(crate) const WINDOW: Duration = Duration::from_secs(10 * 60);

/// The sandboxes that are needed to judge later ones of the same pod: a sandbox that ran containers before
/// one that ran none, and the first of a series that ran none.
pub(crate) fn precedents(world: &World) -> BTreeSet<ContainerId> {
    let mut needed = BTreeSet::new();
    for rows in world.sandboxes.successive() {
        for (place, row) in rows.iter().enumerate().filter(|(_, row)| !row.containers().is_empty()) {
            let Some(next) = rows.get(place + 1).filter(|next| next.containers().is_empty()) else {
                continue;
            };
            needed.insert(row.id.clone());
            if rows.get(place + 2).is_some_and(|after| after.containers().is_empty()) {
                needed.insert(next.id.clone());
            }
        }
    }
    needed
}
