//! How many attachments of failed tries are kept, and how often a plugin's message is asked for.

use std::time::Duration;

use crate::{
    engine::world::table::attachment::{Attachment, Plugin, rows::Table},
    model::fact::{CniCommand, MessageFound},
};

/// At most this many attachments without any lease are kept of one pod's interface.
pub(crate) const TRIES: usize = 16;

/// A plugin's message is asked for at most once in this time, because each answer is a search through the
/// node's journal and logs. When the time is over, the message of the last ADD that failed in it is asked
/// for.
pub(crate) const ASK_EVERY: Duration = Duration::from_secs(30);

impl Attachment {
    /// Adds the counts of an older attachment of the same pod and interface, for the plugins that fail in
    /// both.
    pub(in crate::engine::world) fn count_earlier(&mut self, dropped: &Self) {
        for plugin in self.plugins.iter_mut().filter(|plugin| plugin.add.failed > 0) {
            if let Some(before) = dropped.plugins.iter().find(|before| before.name == plugin.name) {
                plugin.count_earlier(before);
            }
        }
    }
}

impl Table {
    pub(in crate::engine::world) fn message_found(&mut self, it: MessageFound) {
        let all = self.rows.range_mut((it.container.clone(), String::new())..);
        let of_container = all.take_while(|((id, _), _)| *id == it.container);
        let Some((_, row)) = of_container
            .filter(|(_, row)| row.failures().any(|(_, command, _)| command == it.command))
            .last()
        else {
            return;
        };
        match it.command {
            CniCommand::Add if is_better(&it, row.message.as_deref()) => row.message = Some(Box::new(it)),
            CniCommand::Add => {}
            CniCommand::Del => {
                let last = row.plugins.iter_mut().filter_map(Plugin::failed_dels);
                if let Some(dels) = last.max_by_key(|dels| dels.last_at)
                    && is_better(&it, dels.said.as_ref())
                {
                    dels.said = Some(it);
                }
            }
        }
    }
}

/// An older message is worth more than the reason why the latest one could not be read.
fn is_better(it: &MessageFound, before: Option<&MessageFound>) -> bool {
    it.text.is_some() || before.is_none_or(|before| before.text.is_none())
}
