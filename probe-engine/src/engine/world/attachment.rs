//! CNI attachments. An attachment is a container id and an interface name (CNI specification). Its row holds the
//! results of all ADDs and DELs that the runtime called for it.
//!
//! **Invariant:** only calls by the node's own runtime count here, separately for each plugin. Calls that a plugin
//! makes (bridge calls host-local) or that a CNI daemon's pod makes change no attachment.

mod cached;
mod entry;
mod lease;
mod plugin;
mod table;
pub(in crate::engine) mod tries;
mod wrong_del;

pub(in crate::engine::world) use entry::{Booked, Booking, Fate};
pub(crate) use lease::Lease;
pub(in crate::engine) use plugin::LATELY;
pub(crate) use plugin::{Failures, Outcome, Plugin, Runs};
pub(in crate::engine) use table::Table;
pub(crate) use wrong_del::WrongDel;
pub(in crate::engine::world) use wrong_del::{ADDRESSES, DelIn};

use std::mem;

use serde::{Deserialize, Serialize};

use crate::{
    engine::world::{EventContext, World, call::Call},
    model::{
        change::End,
        fact::{CniCommand, MessageFound, Origin, PodName},
        id::ContainerId,
        time::Timestamp,
    },
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    pub(crate) container: ContainerId,
    pub(crate) ifname: String,
    pub(crate) pod: PodName,
    pub(crate) network: Option<String>,
    /// The network's name was inferred: only one configuration uses the plugin.
    pub(crate) inferred: bool,
    /// The netns path of the first ADD.
    pub(crate) netns_path: Option<String>,
    pub(crate) first_at: Timestamp,
    /// When the world last learned something about this attachment.
    pub(crate) last_at: Timestamp,
    /// The plugins that the runtime itself called, in the order of their first call.
    pub(crate) plugins: Vec<Plugin>,
    /// When a reading of libcni's cache last told of this attachment's result. Later readings may have found it unchanged.
    /// None: the cache has no result.
    pub(crate) cached_at: Option<Timestamp>,
    pub(crate) leases: Vec<Lease>,
    /// The runtime's log message about a failed ADD.
    pub(crate) message: Option<Box<MessageFound>>,
    /// The attachment was counted for `unverified_release`.
    pub(crate) unverified: bool,
    /// Records were lost while the attachment existed, so a DEL may have been missed.
    pub(crate) gapped: bool,
    /// The first DEL that cannot be right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) wrong_del: Option<Box<WrongDel>>,
    /// A DEL that named a process whose network namespace was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::engine::world) del_in_process: Option<Box<DelIn>>,
}

/// At most this many plugins of one chain have a row.
const PLUGINS: usize = 16;

impl Attachment {
    pub(super) fn new(container: ContainerId, ifname: &str, at: Timestamp) -> Self {
        Self {
            container,
            ifname: ifname.to_owned(),
            pod: PodName::default(),
            network: None,
            inferred: false,
            netns_path: None,
            first_at: at,
            last_at: at,
            plugins: Vec::new(),
            cached_at: None,
            leases: Vec::new(),
            message: None,
            unverified: false,
            gapped: false,
            wrong_del: None,
            del_in_process: None,
        }
    }

    /// The failures of each plugin with each command.
    pub(crate) fn failures(&self) -> impl Iterator<Item = (&Plugin, CniCommand, Failures<'_>)> {
        let commands = [CniCommand::Add, CniCommand::Del];
        let all = self.plugins.iter().flat_map(move |plugin| commands.map(|command| (plugin, command)));
        all.filter_map(|(plugin, command)| Some((plugin, command, plugin.failures_of(command, self)?)))
    }

    /// Whether this is the loopback interface, which has no address to lose.
    #[must_use]
    pub(crate) fn is_loopback(&self) -> bool {
        self.ifname == "lo"
    }

    /// The ADD runs of each plugin whose ADD was seen.
    pub(crate) fn adds(&self) -> impl Iterator<Item = &Runs> {
        self.plugins.iter().map(|plugin| &plugin.add).filter(|add| add.begun > 0)
    }

    /// Whether an ADD of this attachment was seen.
    #[must_use]
    pub(crate) fn was_seen(&self) -> bool {
        self.adds().next().is_some()
    }

    /// Whether the last ADD of each plugin of the chain has succeeded.
    #[must_use]
    pub(crate) fn is_added(&self) -> bool {
        self.was_seen()
            && self.plugins.iter().all(|plugin| plugin.add.begun == 0 || plugin.add.succeeded > 0)
            && !self.is_adding()
    }

    #[must_use]
    pub(crate) fn is_adding(&self) -> bool {
        self.plugins.iter().any(|plugin| plugin.add.is_open())
    }

    /// Whether the runtime has begun a DEL.
    #[must_use]
    pub(crate) fn has_begun_del(&self) -> bool {
        self.first_del_at().is_some()
    }

    /// When the runtime first began a DEL.
    #[must_use]
    pub(crate) fn first_del_at(&self) -> Option<Timestamp> {
        self.plugins.iter().flat_map(Plugin::dels).map(|del| del.first_at).min()
    }

    /// Whether a DEL has ended and did not succeed.
    #[must_use]
    pub(crate) fn has_broken_off_del(&self) -> bool {
        self.plugins.iter().flat_map(Plugin::dels).any(|del| del.has_broken_off() || del.unseen > 0)
    }

    #[must_use]
    pub(crate) fn is_busy(&self) -> bool {
        self.plugins
            .iter()
            .any(|plugin| plugin.add.is_open() || plugin.del.is_open() || plugin.del_without_netns.is_open())
    }

    /// The plugin that gave this lease. Where that is not known, the first plugin of the chain.
    #[must_use]
    pub(crate) fn plugin_of(&self, lease: &Lease) -> Option<&Plugin> {
        let named = lease.plugin.as_ref().and_then(|name| self.plugins.iter().find(|it| it.name == *name));
        // The first plugin of a chain makes the interface and asks the IPAM plugin.
        named.or_else(|| self.plugins.iter().find(|it| it.add.begun > 0)).or_else(|| self.plugins.last())
    }

    fn plugin(&mut self, name: &str) -> Option<&mut Plugin> {
        if let Some(place) = self.plugins.iter().position(|plugin| plugin.name == name) {
            return self.plugins.get_mut(place);
        }
        if self.plugins.len() >= PLUGINS {
            return None;
        }
        self.plugins.push(Plugin { name: name.to_owned(), ..Plugin::default() });
        self.plugins.last_mut()
    }

    /// The runs to which this call belongs.
    fn runs(&mut self, call: &Call) -> Option<&mut Runs> {
        let plugin = self.plugin(&call.call.plugin)?;
        let has_no_netns = call.call.netns.as_deref().is_none_or(str::is_empty);
        match call.call.command.as_str() {
            "ADD" => Some(&mut plugin.add),
            "DEL" if has_no_netns => Some(&mut plugin.del_without_netns),
            "DEL" => Some(&mut plugin.del),
            _ => None,
        }
    }

    /// Whether the attachment's own pod name already has every part that `pod` has.
    fn names(&self, pod: &PodName) -> bool {
        (self.pod.namespace.is_some() || pod.namespace.is_none())
            && (self.pod.name.is_some() || pod.name.is_none())
            && (self.pod.uid.is_some() || pod.uid.is_none())
    }

    fn learn_network(&mut self, name: &str, inferred: bool) {
        if self.network.is_none() || self.inferred && !inferred {
            self.network = Some(name.to_owned());
            self.inferred = inferred;
        }
    }
}

impl World {
    /// The runtime called a plugin with ADD or DEL.
    pub(super) fn attachment_called(&mut self, ctx: EventContext, call: &Call) {
        let Some(id) = call.container.clone().filter(|_| call.top && operation(call).is_some()) else {
            return;
        };
        let ifname = call.call.ifname.clone().unwrap_or_default();
        let inferred = self.records.network_of(&call.call.plugin).map(|network| network.name.clone());
        self.note_wrong_del(ctx, call, &id, &ifname);
        self.schedule_reap(ctx.at);
        let row = self.attachments.row(ctx.at, &id, &ifname);
        row.pod.learn(&call.pod);
        row.last_at = row.last_at.max(ctx.at);
        if let Some(name) = inferred {
            row.learn_network(&name, true);
        }
        if call.call.command == "ADD" && row.netns_path.is_none() {
            row.netns_path.clone_from(&call.call.netns);
        }
        if let Some(runs) = row.runs(call) {
            runs.begin(call.at);
        }
        if let Some(plugin) = row.plugin(&call.call.plugin) {
            plugin.path.clone_from(&call.path);
        }
    }

    /// A plugin that the runtime called has ended.
    pub(super) fn attachment_answered(&mut self, ctx: EventContext, call: &Call, end: Option<&End>) {
        let Some((id, command)) = call.container.clone().filter(|_| call.top).zip(operation(call)) else {
            return;
        };
        let ifname = call.call.ifname.clone().unwrap_or_default();
        // Nobody waits for a call whose caller has ended.
        let until = call.cut_off_at.map_or(ctx.at, |cut_off| cut_off.min(ctx.at));
        let took = self.awake_for(call.at, until);
        self.schedule_reap(ctx.at);
        let row = self.attachments.row(ctx.at, &id, &ifname);
        row.last_at = row.last_at.max(ctx.at);
        let failed = end.is_some_and(|end| end.code != 0);
        // Its reader is gone, so its pipe may be what killed it: that is no failure of the plugin.
        let is_cut_off = failed && call.cut_off_at.is_some();
        let booking = end.filter(|_| !failed).and_then(|_| row.book(call, command));
        if let Some(runs) = row.runs(call) {
            runs.end(ctx.at, end, took, is_cut_off);
            // A slow ADD that fails counts as failed, not as slow.
            if end.is_some() && (is_cut_off || !(failed && command == CniCommand::Add)) {
                runs.lasted(until, took);
            }
        }
        let plugin = row.plugin(&call.call.plugin).filter(|_| command == CniCommand::Del && !is_cut_off);
        if let Some(plugin) = plugin {
            plugin.del_ended(call.at, ctx.at, end, took);
        }
        self.accounts.extend(booking);
        if failed && !is_cut_off {
            self.ask_message(ctx, call, command, (id, ifname));
        }
        self.records_changed(ctx.at);
    }

    /// A runtime's record names the pod of a sandbox.
    pub(super) fn attachments_named(&mut self, id: &ContainerId, pod: &PodName) {
        if self.attachments.of(id).all(|row| row.names(pod)) {
            return;
        }
        for (_, row) in self
            .attachments
            .rows
            .range_mut((id.clone(), String::new())..)
            .take_while(|((key, _), _)| key == id)
        {
            row.pod.learn(pod);
        }
    }

    /// Whether the runtime has called every plugin that the node's configuration names for a sandbox.
    pub(in crate::engine) fn chains_are_through(&self, id: &ContainerId) -> bool {
        let called = |row: &Attachment, name: &String| {
            row.plugins.iter().any(|plugin| plugin.name == *name && plugin.add.succeeded > 0)
        };
        let through = |row: &Attachment| {
            self.records.network(row).is_none_or(|network| network.called().all(|name| called(row, name)))
        };
        // No configuration names the loopback network, and the loopback alone connects nothing.
        let has_network = self.attachments.of(id).any(|row| !row.is_loopback());
        (has_network || self.records.networks().is_empty()) && self.attachments.of(id).all(through)
    }

    /// Records were lost: what exists now may have changed unseen since then.
    pub(super) fn rows_gapped(&mut self, since: Timestamp) {
        self.attachments.rows.update(|_, row| !mem::replace(&mut row.gapped, true));
        self.sandboxes.mark_gapped(since);
        self.netns.mark_gapped();
    }

    /// A listing showed the sandbox unchanged. An attachment of it loses its mark if it still has its addresses, or its
    /// result in libcni's cache: then no DEL has succeeded for it.
    pub(super) fn attachments_heal(&mut self, id: &ContainerId, since: Timestamp) {
        if !self.attachments.of(id).any(|row| row.gapped) {
            return;
        }
        let cache_read_at = self.records.cache_read_at;
        let all = self.attachments.rows.range_mut((id.clone(), String::new())..);
        for (_, row) in all.take_while(|((key, _), _)| key == id) {
            let is_held = row.leases.iter().any(|lease| lease.kernel.is_some());
            let cached_at = row.cached_at.map(|at| at.max(cache_read_at));
            row.gapped &= !(is_held || cached_at >= Some(since));
        }
    }
}

/// How a call changes an attachment. CHECK, GC and calls about the plugin itself do not.
///
/// A call that was found in a listing does not either: no hook sees the end of a program that began before the hook was
/// attached.
fn operation(call: &Call) -> Option<CniCommand> {
    let command = match call.call.command.as_str() {
        "ADD" => CniCommand::Add,
        "DEL" => CniCommand::Del,
        _ => return None,
    };
    (call.origin != Origin::Listed).then_some(command)
}
