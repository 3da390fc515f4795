//! Turns the tables into checkpoint entries, and restores them.

use crate::{
    engine::world::{CheckpointEntry, World, list},
    model::{fact::List, time::Timestamp},
};

impl World {
    /// About how many entries [`Self::dump`] has.
    pub(in crate::engine) fn size(&self) -> usize {
        let seen = self.processes.len() + self.netns.len() + self.cgroups.len() + self.containers.len();
        let known =
            self.pods.len() + self.sandboxes.all().count() + self.attachments.len() + self.calls.len();
        seen + known + self.beliefs.len()
    }

    pub(in crate::engine) fn dump(&self) -> Vec<CheckpointEntry> {
        let mut rows = Vec::new();
        rows.extend(self.timers.iter().map(|(name, due)| CheckpointEntry::Timer { name, due }));
        rows.extend(self.coverage.attached.values().cloned().map(CheckpointEntry::Attached));
        rows.extend(self.coverage.losses.clone().map(CheckpointEntry::Losses));
        rows.extend(
            self.coverage
                .hanging
                .iter()
                .map(|(path, since)| CheckpointEntry::Hanging { path: path.clone(), since: *since }),
        );
        rows.extend(self.releases.values().cloned().map(CheckpointEntry::Release));
        rows.extend(self.accounts.values().cloned().map(CheckpointEntry::Account));
        rows.extend(self.beliefs.runtimes().cloned().map(CheckpointEntry::Runtime));
        rows.extend(self.beliefs.rows().cloned().map(CheckpointEntry::Belief));
        rows.push(CheckpointEntry::Recovery(Box::new(self.recovery().clone())));
        rows.extend(self.processes.values().cloned().map(CheckpointEntry::Process));
        rows.extend(self.processes.signals.values().flatten().cloned().map(CheckpointEntry::Signal));
        rows.extend(self.netns.values().cloned().map(CheckpointEntry::Netns));
        rows.extend(self.cgroups.values().cloned().map(CheckpointEntry::Cgroup));
        rows.extend(self.pods.values().cloned().map(CheckpointEntry::Pod));
        rows.extend(self.containers.values().cloned().map(CheckpointEntry::Container));
        rows.extend(self.calls.values().cloned().map(CheckpointEntry::Call));
        rows.extend(self.hints.values().cloned().map(CheckpointEntry::Hint));
        rows.extend(self.pods.names.values().cloned().map(CheckpointEntry::Name));
        rows.extend(
            self.lists
                .begun
                .iter()
                .map(|(list, at)| (*list, *at, *list == List::CniCache && self.lists.is_cache_unchanged))
                .map(|(list, at, is_unchanged)| {
                    CheckpointEntry::Listing(list::Begun { list, at, is_unchanged })
                }),
        );
        rows.extend(self.attachments.values().cloned().map(CheckpointEntry::Attachment));
        rows.extend(self.sandboxes.all().cloned().map(|row| CheckpointEntry::Sandbox(Box::new(row))));
        rows.extend(self.records.dump().map(|(at, record)| CheckpointEntry::Record { at, record }));
        if !self.starts.rows.is_empty() {
            rows.push(CheckpointEntry::Starts(self.starts.rows.iter().cloned().collect()));
        }
        let gap = |((doubt, list), at): (&(list::Doubt, List), &Timestamp)| list::Gap {
            list: *list,
            at: *at,
            doubt: *doubt,
        };
        rows.extend(self.lists.gaps.iter().map(gap).map(CheckpointEntry::Gap));
        rows.extend(
            self.lists
                .partial
                .iter()
                .map(|(list, at)| list::Begun { list: *list, at: *at, is_unchanged: false })
                .map(CheckpointEntry::Partial),
        );
        rows
    }

    /// Restores an entry. Returns an entry that does not belong to the world.
    pub(in crate::engine) fn restore(&mut self, row: CheckpointEntry) -> Option<CheckpointEntry> {
        match row {
            CheckpointEntry::Timer { name, due } => self.timers.set(name, due),
            CheckpointEntry::Attached(row) => {
                self.coverage.attached.insert(row.signal, row);
            }
            CheckpointEntry::Losses(row) => self.coverage.losses = Some(row),
            CheckpointEntry::Hanging { path, since } => {
                self.coverage.hanging.insert(path, since);
            }
            CheckpointEntry::Release(row) => {
                self.releases.insert(row.plugin.clone(), row);
            }
            CheckpointEntry::Account(row) => self.accounts.insert(row),
            CheckpointEntry::Runtime(row) => self.beliefs.restore_runtime(row),
            CheckpointEntry::Belief(row) => self.beliefs.restore(row),
            CheckpointEntry::Recovery(row) => self.boot.recovery = *row,
            CheckpointEntry::Process(row) => self.processes.insert(row),
            CheckpointEntry::Signal(row) => self.processes.signals.entry(row.target).or_default().push(row),
            CheckpointEntry::Netns(row) => self.netns.insert(row),
            CheckpointEntry::Cgroup(row) => self.cgroups.insert(row),
            CheckpointEntry::Pod(row) => self.pods.insert(row),
            CheckpointEntry::Container(row) => self.containers.insert(row),
            CheckpointEntry::Sandbox(row) => self.sandboxes.insert(*row),
            CheckpointEntry::Call(row) => {
                self.calls.insert(row.call.process.key, row);
            }
            CheckpointEntry::Hint(row) => {
                self.hints.insert(row.id.clone(), row);
            }
            CheckpointEntry::Name(row) => {
                self.pods.names.insert(row.uid.clone(), row);
            }
            CheckpointEntry::Listing(list::Begun { list, at, is_unchanged }) => {
                self.lists.begun.insert(list, at);
                self.lists.is_cache_unchanged |= is_unchanged;
            }
            CheckpointEntry::Partial(list::Begun { list, at, is_unchanged: _ }) => {
                self.lists.partial.insert(list, at);
            }
            CheckpointEntry::Gap(list::Gap { list, at, doubt }) => {
                self.lists.gaps.insert((doubt, list), at);
            }
            CheckpointEntry::Attachment(row) => self.attachments.insert(row),
            CheckpointEntry::Starts(rows) => rows.into_iter().for_each(|row| self.starts.push(row)),
            CheckpointEntry::Record { at, record } => self.records.restore(at, record),
            row @ (CheckpointEntry::Engine(_)
            | CheckpointEntry::Pending(_)
            | CheckpointEntry::Held(_)
            | CheckpointEntry::Asked(_)
            | CheckpointEntry::Finding(_)) => {
                return Some(row);
            }
        }
        None
    }
}
