//! The rows that may have changed since the detectors last judged the world.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    engine::world::{World, table::record::pods::Recorded},
    model::id::{CgroupKey, ContainerId, TaskKey},
};

#[derive(Debug, Default)]
pub(crate) struct Changed {
    pub(crate) processes: BTreeSet<TaskKey>,
    pub(crate) netns: BTreeSet<u64>,
    pub(crate) cgroups: BTreeSet<CgroupKey>,
    pub(crate) containers: BTreeSet<ContainerId>,
    pub(crate) sandboxes: BTreeSet<ContainerId>,
    pub(crate) attachments: BTreeSet<(ContainerId, String)>,
    pub(crate) pods: BTreeSet<u64>,
    pub(crate) records: bool,
    /// The sandboxes and containers of which a runtime, or the kernel, says something new.
    pub(crate) beliefs: BTreeSet<ContainerId>,
    /// A runtime was asked, or can be asked otherwise than before.
    pub(crate) runtimes: bool,
    /// Sandboxes that came on record or left it, or whose pod is named otherwise, and what was on record
    /// before.
    pub(crate) on_record: BTreeMap<ContainerId, Recorded>,
}

/// Takes the keys of all rows that may have changed since the last call.
pub(crate) fn take(world: &mut World) -> Changed {
    let records = world.records.take_changed();
    Changed {
        records: records.is_some(),
        on_record: records.map(|it| it.on_record.take_changed()).unwrap_or_default(),
        beliefs: world.beliefs.take_changed(),
        runtimes: world.beliefs.take_asked(),
        processes: world.processes.take_changed(),
        netns: world.netns.take_changed(),
        cgroups: world.cgroups.take_changed(),
        containers: world.containers.take_changed(),
        sandboxes: world.sandboxes.take_changed(),
        attachments: world.attachments.take_changed(),
        pods: world.pods.take_changed(),
    }
}

/// All rows, as if each had changed.
pub(crate) fn all(world: &World) -> Changed {
    Changed {
        processes: world.processes.values().map(|row| row.key).collect(),
        netns: world.netns.keys().copied().collect(),
        cgroups: world.cgroups.keys().copied().collect(),
        containers: world.containers.keys().cloned().collect(),
        sandboxes: world.sandboxes.all().map(|row| row.id.clone()).collect(),
        attachments: world.attachments.keys().cloned().collect(),
        pods: world.pods.keys().copied().collect(),
        records: true,
        beliefs: world.beliefs.rows().map(|row| row.id.clone()).collect(),
        runtimes: true,
        on_record: world.records.on_record.ids().map(|id| (id.clone(), Recorded::No)).collect(),
    }
}
