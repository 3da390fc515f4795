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
    engine::world::{EventContext, World, call::Call},
    model::{change::Question, fact::PodName, id::ContainerId, time::Timestamp},
};

/// At most this many attachments without any lease are kept of one pod's interface.
pub(in crate::engine) const TRIES: usize = 16;

/// At most this many attachments without any lease are kept of all pods together.
const SETTLED: usize = 8192;

/// A plugin's message is asked for at most once in this time. Each answer is a search through the node's journal and
/// logs, and ADDs that fail together have the same message.
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

    /// Asks for the plugin's message about a failed ADD, unless it was asked for within `ASK_EVERY`.
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

    /// Remembers when a plugin's message was asked for. Restoring an attachment calls this as well.
    pub(in crate::engine::world) fn message_asked(&mut self, plugin: String, at: Timestamp) {
        self.attachments.messages_asked.retain(|_, asked| at < *asked + ASK_EVERY);
        let asked = self.attachments.messages_asked.entry(plugin).or_insert(at);
        *asked = at.max(*asked);
    }
}
