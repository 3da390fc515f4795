//! The rows that may have changed since the detectors last judged the world.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    engine::world::{World, record::pods::Recorded},
    model::id::{CgroupKey, ContainerId, TaskKey},
};

#[derive(Debug, Default)]
pub(in crate::engine) struct Changed {
    pub(in crate::engine) processes: BTreeSet<TaskKey>,
    pub(in crate::engine) netns: BTreeSet<u64>,
    pub(in crate::engine) cgroups: BTreeSet<CgroupKey>,
    pub(in crate::engine) containers: BTreeSet<ContainerId>,
    pub(in crate::engine) sandboxes: BTreeSet<ContainerId>,
    pub(in crate::engine) attachments: BTreeSet<(ContainerId, String)>,
    pub(in crate::engine) pods: BTreeSet<u64>,
    pub(in crate::engine) records: bool,
    /// The sandboxes and containers of which a runtime, or the kernel, says something new.
    pub(in crate::engine) beliefs: BTreeSet<ContainerId>,
    /// A runtime was asked, or can be asked otherwise than before.
    pub(in crate::engine) runtimes: bool,
    /// Sandboxes that came on record or left it, or whose pod is named otherwise, and what was on record before.
    pub(in crate::engine) on_record: BTreeMap<ContainerId, Recorded>,
}

impl World {
    /// Takes the keys of all rows that may have changed since the last call.
    pub(in crate::engine) fn take_changed(&mut self) -> Changed {
        let records = self.records.take_changed();
        Changed {
            records: records.is_some(),
            on_record: records.map(|it| it.on_record.take_changed()).unwrap_or_default(),
            beliefs: self.beliefs.take_changed(),
            runtimes: self.beliefs.take_asked(),
            processes: self.processes.take_changed(),
            netns: self.netns.take_changed(),
            cgroups: self.cgroups.take_changed(),
            containers: self.containers.take_changed(),
            sandboxes: self.sandboxes.take_changed(),
            attachments: self.attachments.take_changed(),
            pods: self.pods.take_changed(),
        }
    }

    /// All rows, as if each had changed.
    pub(in crate::engine) fn all_rows(&self) -> Changed {
        Changed {
            processes: self.processes.values().map(|row| row.key).collect(),
            netns: self.netns.keys().copied().collect(),
            cgroups: self.cgroups.keys().copied().collect(),
            containers: self.containers.keys().cloned().collect(),
            sandboxes: self.sandboxes.all().map(|row| row.id.clone()).collect(),
            attachments: self.attachments.keys().cloned().collect(),
            pods: self.pods.keys().copied().collect(),
            records: true,
            beliefs: self.beliefs.rows().map(|row| row.id.clone()).collect(),
            runtimes: true,
            on_record: self.records.on_record.ids().map(|id| (id.clone(), Recorded::No)).collect(),
        }
    }
}
