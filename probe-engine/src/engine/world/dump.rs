//! Turns the tables into checkpoint entries, and restores them.

use crate::{
    engine::world::{
        CheckpointEntry, Node, World,
        table::{list, loss, recovery},
    },
    model::fact::List,
};

impl World {
    /// About how many entries [`Self::dump`] has.
    pub(in crate::engine) fn size(&self) -> usize {
        let seen = self.processes.len() + self.netns.len() + self.cgroups.len() + self.containers.len();
        let known =
            self.pods.len() + self.sandboxes.all().count() + self.attachments.len() + self.calls.len();
        seen + known + self.beliefs.len() + self.cgroups.crowds().count()
    }

    /// Appends an entry for each row.
    pub(in crate::engine) fn dump(&self, rows: &mut Vec<CheckpointEntry>) {
        // Each member by name, so that a new one cannot be forgotten. The engine keeps the numbers and times
        // among them.
        let Self {
            processes,
            netns,
            cgroups,
            containers,
            sandboxes,
            pods,
            calls,
            hints,
            lists: list::Lists { begun, is_cache_unchanged, gaps, partial, relisted_at: _ },
            attachments,
            records,
            coverage: loss::Coverage { attached, losses, hanging },
            beliefs,
            releases,
            accounts,
            boot: recovery::Boot { recovery, rules: _ },
            failing,
            starts,
            node: Node { host_netns: _, woke_at: _, began_at: _ },
            // Nothing has changed since the engine last asked.
            changed_at: _,
            timers,
            // They are of one run of the agent.
            counts: _,
            outbox: _,
        } = self;
        rows.extend(timers.iter().map(|(name, due)| CheckpointEntry::Timer { name, due }));
        rows.extend(attached.values().cloned().map(CheckpointEntry::Attached));
        rows.extend(losses.clone().map(CheckpointEntry::Losses));
        for (path, since) in hanging {
            rows.push(CheckpointEntry::Hanging { path: path.clone(), since: *since });
        }
        rows.extend(releases.values().cloned().map(CheckpointEntry::Release));
        rows.extend(accounts.values().cloned().map(CheckpointEntry::Account));
        rows.extend(beliefs.runtimes().cloned().map(CheckpointEntry::Runtime));
        rows.extend(beliefs.rows().cloned().map(|row| CheckpointEntry::Belief(Box::new(row))));
        rows.push(CheckpointEntry::Recovery(Box::new(recovery.clone())));
        rows.extend(failing.values().cloned().map(CheckpointEntry::Failing));
        rows.extend(processes.values().cloned().map(CheckpointEntry::Process));
        rows.extend(processes.signals.values().flatten().cloned().map(CheckpointEntry::Signal));
        rows.extend(netns.values().cloned().map(|row| CheckpointEntry::Netns(Box::new(row))));
        rows.extend(cgroups.values().cloned().map(CheckpointEntry::Cgroup));
        rows.extend(cgroups.crowds().cloned().map(CheckpointEntry::Crowd));
        rows.extend(pods.values().cloned().map(|row| CheckpointEntry::Pod(Box::new(row))));
        rows.extend(containers.values().cloned().map(|row| CheckpointEntry::Container(Box::new(row))));
        rows.extend(calls.values().cloned().map(CheckpointEntry::Call));
        rows.extend(hints.values().cloned().map(CheckpointEntry::Hint));
        rows.extend(pods.names.values().cloned().map(CheckpointEntry::Name));
        for (list, at) in begun {
            let is_unchanged = *list == List::CniCache && *is_cache_unchanged;
            rows.push(CheckpointEntry::Listing(list::Begun { list: *list, at: *at, is_unchanged }));
        }
        rows.extend(attachments.values().cloned().map(|row| CheckpointEntry::Attachment(Box::new(row))));
        rows.extend(sandboxes.all().cloned().map(|row| CheckpointEntry::Sandbox(Box::new(row))));
        rows.extend(records.dump().map(|(at, record)| CheckpointEntry::Record { at, record }));
        if !starts.rows.is_empty() {
            rows.push(CheckpointEntry::Starts(starts.rows.iter().cloned().collect()));
        }
        for ((doubt, list), at) in gaps {
            rows.push(CheckpointEntry::Gap(list::Gap { list: *list, at: *at, doubt: *doubt }));
        }
        for (list, at) in partial {
            rows.push(CheckpointEntry::Partial(list::Begun { list: *list, at: *at, is_unchanged: false }));
        }
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
            CheckpointEntry::Belief(row) => self.beliefs.restore(*row),
            CheckpointEntry::Recovery(row) => self.boot.recovery = *row,
            CheckpointEntry::Failing(row) => self.failing.restore(row),
            CheckpointEntry::Process(row) => self.processes.insert(row),
            CheckpointEntry::Signal(row) => self.processes.signals.entry(row.target).or_default().push(row),
            CheckpointEntry::Netns(row) => self.netns.insert(*row),
            CheckpointEntry::Cgroup(row) => self.cgroups.insert(row),
            CheckpointEntry::Crowd(row) => self.cgroups.insert_crowd(row),
            CheckpointEntry::Pod(row) => self.pods.insert(*row),
            CheckpointEntry::Container(row) => self.containers.insert(*row),
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
            CheckpointEntry::Attachment(row) => self.attachments.insert(*row),
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
