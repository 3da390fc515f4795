//! Tries that came to nothing: while a pod's ADD fails, each try of the runtime's is another sandbox with attachments of
//! its own, every few seconds, for as long as it lasts. Of one pod and interface the latest few are kept.
//!
//! **Invariant:** the number of attachments is bounded by what lives and what holds an address. What is dropped is first
//! counted with the oldest of those that stay: how often an ADD failed, since when, and how long that took.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::Attachment;
use crate::{
    engine::world::{EventContext, World, call::Call},
    model::{change::Question, fact::PodName, id::ContainerId, time::Timestamp},
};

/// So many attachments of one pod's interface are kept of which nothing is left.
pub(in crate::engine) const TRIES: usize = 16;

/// So many of all pods together.
const SETTLED: usize = 8192;

/// What a plugin says is asked for once in such a time, however many of its ADDs fail: each answer is a search through
/// the node's journal and logs, and those that fail together say the same.
pub(in crate::engine) const ASK_EVERY: Duration = Duration::from_secs(30);

impl Attachment {
    /// Takes over the counts of an older one of the same pod and interface, of plugins that fail in both.
    fn count_earlier(&mut self, dropped: &Self) {
        for plugin in self.plugins.iter_mut().filter(|plugin| plugin.add.failed > 0) {
            if let Some(before) = dropped.plugins.iter().find(|before| before.name == plugin.name) {
                plugin.count_earlier(before);
            }
        }
    }
}

impl World {
    /// Drops the oldest attachments of those pods, and then of all, that have too many of which nothing is left.
    ///
    /// `precedents`: sandboxes that are over and needed to judge those after them.
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
        // Each that is dropped, and the next of its pod that stays.
        let mut dropped: Vec<(ContainerId, String, Option<ContainerId>)> = Vec::new();
        let mut rest: Vec<(Timestamp, ContainerId, String)> = Vec::new();
        for ((pod, ifname), mut all) in tries {
            all.sort_unstable();
            // Those of no pod are no tries of one thing.
            let excess = if *pod == PodName::default() { 0 } else { all.len().saturating_sub(TRIES) };
            let (over, kept) = all.split_at(excess);
            // What failed before the pod had its network in between is none of what fails now.
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

    /// Asks what a plugin said when its ADD failed, unless that was asked a moment ago.
    pub(super) fn ask_message(&mut self, ctx: EventContext, call: &Call, id: ContainerId, ifname: &str) {
        let name = &call.call.plugin;
        if self.attachments.messages_asked.get(name).is_some_and(|asked| ctx.at < *asked + ASK_EVERY) {
            return;
        }
        let row = self.attachments.rows.get_mut(&(id.clone(), ifname.to_owned()));
        if let Some(plugin) = row.and_then(|row| row.plugins.iter_mut().find(|plugin| plugin.name == *name)) {
            plugin.asked_at = Some(ctx.at);
            self.message_asked(name.clone(), ctx.at);
            self.ask(Question::Message { container: id, since: call.at });
        }
    }

    /// Remembers that it was asked, also when an attachment is restored.
    pub(in crate::engine::world) fn message_asked(&mut self, plugin: String, at: Timestamp) {
        self.attachments.messages_asked.retain(|_, asked| at < *asked + ASK_EVERY);
        let asked = self.attachments.messages_asked.entry(plugin).or_insert(at);
        *asked = at.max(*asked);
    }
}
