//! The tables as rows, and back.

use crate::engine::{
    fact::List,
    time::Timestamp,
    world::{Row, World, list},
};

impl World {
    pub(in crate::engine) fn dump(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        rows.extend(self.timers.iter().map(|(name, due)| Row::Timer { name, due }));
        rows.extend(self.attached.values().cloned().map(Row::Attached));
        rows.extend(self.losses.clone().map(Row::Losses));
        rows.extend(
            self.hanging.iter().map(|(path, since)| Row::Hanging { path: path.clone(), since: *since }),
        );
        rows.extend(self.releases.values().cloned().map(Row::Release));
        rows.push(Row::Recovery(Box::new(self.recovery().clone())));
        rows.extend(self.processes.values().cloned().map(Row::Process));
        rows.extend(self.signals.values().flatten().cloned().map(Row::Signal));
        rows.extend(self.netns.rows.values().cloned().map(Row::Netns));
        rows.extend(self.cgroups.values().cloned().map(Row::Cgroup));
        rows.extend(self.pods.rows.values().cloned().map(Row::Pod));
        rows.extend(self.containers.values().cloned().map(Row::Container));
        rows.extend(self.sandboxes.values().cloned().map(Row::Sandbox));
        rows.extend(self.calls.values().cloned().map(Row::Call));
        rows.extend(self.hints.values().cloned().map(Row::Hint));
        rows.extend(self.names.values().cloned().map(Row::Name));
        rows.extend(
            self.listings.iter().map(|(list, at)| Row::Listing(list::Begun { list: *list, at: *at })),
        );
        rows.extend(self.attachments.values().cloned().map(Row::Attachment));
        rows.extend(self.attempts.values().cloned().map(Row::Attempt));
        rows.extend(self.records.dump().map(|(at, record)| Row::Record { at, record }));
        if !self.starts.rows.is_empty() {
            rows.push(Row::Starts(self.starts.rows.iter().cloned().collect()));
        }
        let gap = |((doubt, list), at): (&(list::Doubt, List), &Timestamp)| list::Gap {
            list: *list,
            at: *at,
            doubt: *doubt,
        };
        rows.extend(self.gaps.iter().map(gap).map(Row::Gap));
        rows.extend(self.partial.iter().map(|(list, at)| Row::Partial(list::Begun { list: *list, at: *at })));
        rows
    }

    /// Takes a row back; what is not the world's own is returned.
    pub(in crate::engine) fn restore(&mut self, row: Row) -> Option<Row> {
        match row {
            Row::Timer { name, due } => self.timers.set(name, due),
            Row::Attached(row) => {
                self.attached.insert(row.signal, row);
            }
            Row::Losses(row) => self.losses = Some(row),
            Row::Hanging { path, since } => {
                self.hanging.insert(path, since);
            }
            Row::Release(row) => {
                self.releases.insert(row.plugin.clone(), row);
            }
            Row::Recovery(row) => self.recovery = *row,
            Row::Process(row) => self.processes.insert(row),
            Row::Signal(row) => self.signals.entry(row.target).or_default().push(row),
            Row::Netns(row) => self.netns.insert(row),
            Row::Cgroup(row) => {
                self.cgroups.insert(row.key, row);
            }
            Row::Pod(row) => self.pods.insert(row),
            Row::Container(row) => {
                self.containers.insert(row.id.clone(), row);
            }
            Row::Sandbox(row) => {
                self.sandboxes.insert(row.id.clone(), row);
            }
            Row::Call(row) => {
                self.calls.insert(row.call.process.key, row);
            }
            Row::Hint(row) => {
                self.hints.insert(row.id.clone(), row);
            }
            Row::Name(row) => {
                self.names.insert(row.uid.clone(), row);
            }
            Row::Listing(list::Begun { list, at }) => {
                self.listings.insert(list, at);
            }
            Row::Partial(list::Begun { list, at }) => {
                self.partial.insert(list, at);
            }
            Row::Gap(list::Gap { list, at, doubt }) => {
                self.gaps.insert((doubt, list), at);
            }
            Row::Attachment(row) => {
                for plugin in &row.plugins {
                    if let Some(at) = plugin.asked_at {
                        self.message_asked(plugin.name.clone(), at);
                    }
                }
                self.attachments.insert((row.container.clone(), row.ifname.clone()), row);
            }
            Row::Attempt(row) => {
                self.attempts.insert(row.id.clone(), row);
            }
            Row::Starts(rows) => rows.into_iter().for_each(|row| self.starts.push(row)),
            Row::Record { at, record } => self.records.restore(at, record),
            row @ (Row::Clockwork(_) | Row::Pending(_) | Row::Held(_) | Row::Asked(_) | Row::Finding(_)) => {
                return Some(row);
            }
        }
        None
    }
}
