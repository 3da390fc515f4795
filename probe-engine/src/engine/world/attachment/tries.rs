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

use super::Attachment;
use crate::{
    engine::{
        timer,
        world::{EventContext, World, call::Call},
    },
    model::{
        change::Question,
        fact::{MessageFound, PodName},
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
    pub(in crate::engine::world) fn reap_tries(&mut self, precedents: &BTreeSet<ContainerId>) {
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
        for (id, ifname, heir) in dropped {
            let Some(row) = self.attachments.rows.remove(&(id, ifname.clone())) else { continue };
            if let Some(heir) = heir.and_then(|heir| self.attachments.rows.get_mut(&(heir, ifname))) {
                heir.count_earlier(&row);
            }
        }
    }

    /// Asks for the plugin's message about a failed ADD. If it was asked for within `ASK_EVERY`, it is asked for again
    /// when that time is over.
    pub(super) fn ask_message(&mut self, ctx: EventContext, call: &Call, id: ContainerId, ifname: &str) {
        let name = &call.call.plugin;
        match self.attachments.messages_asked.get(name).map(|asked| *asked + ASK_EVERY) {
            Some(next) if ctx.at < next => self.timers.arm_earlier(timer::Name::Message, next),
            Some(_) | None => self.ask_message_of(ctx.at, name, (id, ifname.to_owned()), call.at),
        }
    }

    /// Asks for each plugin's message about its last failed ADD, if the ADD failed after the plugin was last asked about.
    pub(in crate::engine::world) fn ask_last_messages(&mut self, now: Timestamp) {
        // By plugin: when its message was last asked for, and its last failed ADD.
        type Last<'a> = (Timestamp, (Timestamp, &'a (ContainerId, String)));
        let mut plugins: BTreeMap<&str, Last<'_>> = BTreeMap::new();
        for (key, row) in self.attachments.iter() {
            for plugin in row.plugins.iter().filter(|plugin| plugin.add.failed > 0) {
                let (asked, failed) = (plugin.asked_at.unwrap_or_default(), (plugin.add.last_at, key));
                let last = plugins.entry(&plugin.name).or_insert((asked, failed));
                *last = (last.0.max(asked), last.1.max(failed));
            }
        }
        let mut due = Vec::new();
        for (name, (asked, (failed, key))) in plugins.into_iter().filter(|(_, (asked, last))| last.0 > *asked)
        {
            if now < asked + ASK_EVERY {
                self.timers.arm_earlier(timer::Name::Message, asked + ASK_EVERY);
            } else {
                due.push((name.to_owned(), key.clone(), failed.saturating_sub(ASK_EVERY)));
            }
        }
        for (name, key, since) in due {
            self.ask_message_of(now, &name, key, since);
        }
    }

    /// Asks for a message that was logged at `since` or later.
    fn ask_message_of(&mut self, at: Timestamp, name: &str, key: (ContainerId, String), since: Timestamp) {
        let row = self.attachments.rows.get_mut(&key);
        if let Some(plugin) = row.and_then(|row| row.plugins.iter_mut().find(|plugin| plugin.name == name)) {
            plugin.asked_at = Some(at);
            self.message_asked(name.to_owned(), at);
            self.ask(Question::Message { container: key.0, since });
        }
    }

    pub(in crate::engine::world) fn message_found(&mut self, it: MessageFound) {
        let failed = |row: &Attachment| row.plugins.iter().any(|plugin| plugin.add.failed > 0);
        let all = self.attachments.rows.range_mut((it.container.clone(), String::new())..);
        let of_container = all.take_while(|((id, _), _)| *id == it.container);
        // An older message is worth more than the reason why the latest one could not be read.
        let is_better = |row: &Attachment| {
            it.text.is_some() || row.message.as_ref().is_none_or(|before| before.text.is_none())
        };
        if let Some((_, row)) = of_container.filter(|(_, row)| failed(row)).last()
            && is_better(row)
        {
            row.message = Some(Box::new(it));
        }
    }

    /// Remembers when a plugin's message was asked for. Restoring an attachment calls this as well.
    pub(in crate::engine::world) fn message_asked(&mut self, plugin: String, at: Timestamp) {
        self.attachments.messages_asked.retain(|_, asked| at < *asked + ASK_EVERY);
        let asked = self.attachments.messages_asked.entry(plugin).or_insert(at);
        *asked = at.max(*asked);
    }
}
