//! Limits the attachments of failed tries. While a pod's ADD fails, the runtime makes another sandbox every few
//! seconds, and each has attachments of its own. The latest few of one pod and interface are kept.
//!
//! **Invariant:** the number of attachments is bounded by the number of live sandboxes and of held addresses. The
//! counts of a dropped attachment are first added to the oldest attachment that stays: the number of failed ADDs, the
//! time of the first, and how long they took.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Attachment, Failures, Plugin, table::Table};
use crate::{
    engine::{
        timer,
        world::{EventContext, World, call::Call},
    },
    model::{
        change::Question,
        fact::{CniCommand, MessageFound, PodName},
        id::ContainerId,
        time::Timestamp,
    },
};

/// At most this many attachments without any lease are kept of one pod's interface.
pub(in crate::engine) const TRIES: usize = 16;

/// At most this many attachments without any lease are kept of all pods together.
const SETTLED: usize = 8192;

/// A plugin's message is asked for at most once in this time, because each answer is a search through the node's journal
/// and logs. When the time is over, the message of the last ADD that failed in it is asked for.
pub(in crate::engine) const ASK_EVERY: Duration = Duration::from_secs(30);

impl Attachment {
    /// Adds the counts of an older attachment of the same pod and interface, for the plugins that fail in both.
    fn count_earlier(&mut self, dropped: &Self) {
        for plugin in self.plugins.iter_mut().filter(|plugin| plugin.add.failed > 0) {
            if let Some(before) = dropped.plugins.iter().find(|before| before.name == plugin.name) {
                plugin.count_earlier(before);
            }
        }
    }
}

impl World {
    /// Drops the oldest attachments that hold nothing: first of each pod that has too many, then of all pods.
    ///
    /// `precedents`: stopped sandboxes that are needed to judge later sandboxes of the same pod.
    pub(in crate::engine::world) fn reap_tries(
        &mut self,
        now: Timestamp,
        precedents: &BTreeSet<ContainerId>,
    ) {
        let lives = |id: &ContainerId| {
            self.sandboxes.get(id).is_some_and(|row| !row.is_stopped()) || precedents.contains(id)
        };
        let is_settled = |row: &Attachment| row.leases.is_empty() && !row.is_busy() && !lives(&row.container);
        type OfPod<'a, T> = BTreeMap<(&'a PodName, &'a str), Vec<T>>;
        let mut tries: OfPod<'_, (Timestamp, &ContainerId)> = BTreeMap::new();
        for row in self.attachments.values().filter(|row| is_settled(row)) {
            tries.entry((&row.pod, &row.ifname)).or_default().push((row.last_at, &row.container));
        }
        let mut connected: OfPod<'_, Timestamp> = BTreeMap::new();
        for row in self.attachments.values().filter(|row| !tries.is_empty() && row.is_added()) {
            let key = (&row.pod, row.ifname.as_str());
            if tries.contains_key(&key) {
                connected.entry(key).or_default().push(row.last_at);
            }
        }
        // Each dropped attachment, with the next attachment of its pod that stays.
        let mut dropped: Vec<(ContainerId, String, Option<ContainerId>)> = Vec::new();
        let mut rest: Vec<(Timestamp, ContainerId, String)> = Vec::new();
        for ((pod, ifname), mut all) in tries {
            all.sort_unstable();
            // Attachments without a pod's name are not tries for one pod.
            let excess = if *pod == PodName::default() { 0 } else { all.len().saturating_sub(TRIES) };
            let (over, kept) = all.split_at(excess);
            // A failure before the pod last had its network does not belong to the present failures.
            let successes = connected.get(&(pod, ifname)).map_or(&[][..], Vec::as_slice);
            let heir = |before: Timestamp| {
                let (at, id) = kept.first()?;
                successes.iter().all(|it| *it <= before || it > at).then_some((*id).clone())
            };
            dropped.extend(over.iter().map(|(at, id)| ((*id).clone(), ifname.to_owned(), heir(*at))));
            rest.extend(kept.iter().map(|(at, id)| (*at, (*id).clone(), ifname.to_owned())));
        }
        let excess = rest.len().saturating_sub(SETTLED);
        rest.sort_unstable();
        dropped.extend(rest.into_iter().take(excess).map(|(_, id, ifname)| (id, ifname, None)));
        let mut open = Vec::new();
        for (id, ifname, heir) in dropped {
            let Some(row) = self.attachments.rows.remove(&(id, ifname.clone())) else { continue };
            if let Some(heir) = heir.and_then(|heir| self.attachments.rows.get_mut(&(heir, ifname))) {
                heir.count_earlier(&row);
            }
            if row.has_entry() {
                open.push(*row);
            }
        }
        self.close_entries(now, open);
    }

    /// Asks for the plugin's message about a failed call. If it was asked for within `ASK_EVERY`, it is asked for again
    /// when that time is over.
    pub(super) fn ask_message(
        &mut self,
        ctx: EventContext,
        call: &Call,
        command: CniCommand,
        key: (ContainerId, String),
    ) {
        let about = (call.call.plugin.clone(), command);
        match self.attachments.messages_asked.get(&about).map(|asked| *asked + ASK_EVERY) {
            Some(next) if ctx.at < next => self.timers.arm_earlier(timer::Name::Message, next),
            Some(_) | None => self.ask_message_of(ctx.at, about, key, call.at),
        }
    }

    /// Asks for each plugin's message about its last failed ADD and DEL, if it failed after the plugin was last asked about.
    pub(in crate::engine::world) fn ask_last_messages(&mut self, now: Timestamp) {
        // By plugin and command: when its message was last asked for, and its last failed call.
        type Last<'a> = (Timestamp, (Timestamp, &'a (ContainerId, String)));
        let mut calls: BTreeMap<(&str, CniCommand), Last<'_>> = BTreeMap::new();
        for (key, row) in self.attachments.iter() {
            for (plugin, command, failures) in row.failures() {
                let (asked, failed) = (failures.asked_at.unwrap_or_default(), (failures.last_at, key));
                let last = calls.entry((&plugin.name, command)).or_insert((asked, failed));
                *last = (last.0.max(asked), last.1.max(failed));
            }
        }
        let mut due = Vec::new();
        for ((name, command), (asked, (failed, key))) in
            calls.into_iter().filter(|(_, (asked, last))| last.0 > *asked)
        {
            if now < asked + ASK_EVERY {
                self.timers.arm_earlier(timer::Name::Message, asked + ASK_EVERY);
            } else {
                due.push(((name.to_owned(), command), key.clone(), failed.saturating_sub(ASK_EVERY)));
            }
        }
        for (about, key, since) in due {
            self.ask_message_of(now, about, key, since);
        }
    }

    /// Another agent is there. Asks it for the messages that the last one was asked for and did not find.
    pub(in crate::engine::world) fn ask_messages_again(&mut self, now: Timestamp) {
        let is_lost = |(_, _, failures): &(&Plugin, CniCommand, Failures<'_>)| {
            failures.asked_at.is_some() && failures.said.is_none()
        };
        let of_row = |row: &Attachment| {
            let lost = row.failures().filter(is_lost);
            lost.map(|(plugin, command, _)| (plugin.name.clone(), command)).collect::<Vec<_>>()
        };
        let all = self.attachments.iter().map(|(key, row)| (key.clone(), of_row(row)));
        let all: Vec<_> = all.filter(|(_, lost)| !lost.is_empty()).collect();
        for (key, lost) in &all {
            let Some(row) = self.attachments.rows.get_mut(key) else { continue };
            for about @ (name, command) in lost {
                let of_name = row.plugins.iter_mut().filter(|plugin| plugin.name == *name);
                of_name.for_each(|plugin| plugin.set_asked(*command, None));
                self.attachments.messages_asked.remove(about);
            }
        }
        if !all.is_empty() {
            self.ask_last_messages(now);
        }
    }

    /// Asks for a message that was logged at `since` or later.
    fn ask_message_of(
        &mut self,
        at: Timestamp,
        (name, command): (String, CniCommand),
        key: (ContainerId, String),
        since: Timestamp,
    ) {
        let row = self.attachments.rows.get_mut(&key);
        if let Some(plugin) = row.and_then(|row| row.plugins.iter_mut().find(|plugin| plugin.name == name)) {
            plugin.set_asked(command, Some(at));
            let asked = &mut self.attachments.messages_asked;
            asked.retain(|_, asked| at < *asked + ASK_EVERY);
            asked.insert((name, command), at);
            self.ask(Question::Message { container: key.0, command, since });
        }
    }
}

impl Table {
    pub(in crate::engine) fn message_found(&mut self, it: MessageFound) {
        let all = self.rows.range_mut((it.container.clone(), String::new())..);
        let of_container = all.take_while(|((id, _), _)| *id == it.container);
        // An older message is worth more than the reason why the latest one could not be read.
        let is_better = |before: Option<&MessageFound>| {
            it.text.is_some() || before.is_none_or(|before| before.text.is_none())
        };
        let failed = |row: &Attachment| row.failures().any(|(_, command, _)| command == it.command);
        let Some((_, row)) = of_container.filter(|(_, row)| failed(row)).last() else { return };
        match it.command {
            CniCommand::Add if is_better(row.message.as_deref()) => row.message = Some(Box::new(it)),
            CniCommand::Add => {}
            CniCommand::Del => {
                let last = row.plugins.iter_mut().filter_map(Plugin::failed_dels);
                if let Some(dels) = last.max_by_key(|dels| dels.last_at)
                    && is_better(dels.said.as_ref())
                {
                    dels.said = Some(it);
                }
            }
        }
    }
}
