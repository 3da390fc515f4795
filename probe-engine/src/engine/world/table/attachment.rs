//! CNI attachments. An attachment is a container id and an interface name (CNI specification). Its row holds
//! the results of all ADDs and DELs that the runtime called for it.
//!
//! **Invariant:** only calls by the node's own runtime count here, separately for each plugin. Calls that a
//! plugin makes (bridge calls host-local) or that a CNI daemon's pod makes change no attachment.

pub(crate) mod cached;
pub(crate) mod entry;
pub(crate) mod lease;
pub(crate) mod plugin;
pub(crate) mod rows;
pub(crate) mod tries;
pub(crate) mod wrong_del;

pub(crate) use entry::{Booked, Booking, Fate, First};
pub(crate) use lease::Lease;
pub(crate) use plugin::{Failures, LATELY, Outcome, Plugin, Runs};
pub(crate) use rows::Table;
pub(crate) use wrong_del::{ADDRESSES, DelIn, WrongDel};

use serde::{Deserialize, Serialize};

use crate::{
    engine::world::table::call::Call,
    model::{
        fact::{CniCommand, MessageFound, PodName},
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
    /// When a reading of libcni's cache last had this attachment's result. Later readings may have found
    /// it unchanged. None: the cache has no result.
    pub(crate) cached_at: Option<Timestamp>,
    pub(crate) leases: Vec<Lease>,
    /// The runtime's log message about a failed ADD.
    pub(crate) message: Option<Box<MessageFound>>,
    /// The attachment was counted for `unverified_release`. One with an entry counts again after a new ADD.
    pub(crate) unverified: bool,
    /// Records were lost while the attachment existed, so a DEL may have been missed.
    pub(crate) gapped: bool,
    /// The first DEL that cannot be right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) wrong_del: Option<Box<WrongDel>>,
    /// A DEL that named a process whose network namespace was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) del_in_process: Option<Box<DelIn>>,
}

/// At most this many plugins of one chain have a row.
pub(crate) const PLUGINS: usize = 16;

impl Attachment {
    pub(crate) fn new(container: ContainerId, ifname: &str, at: Timestamp) -> Self {
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

    pub(in crate::engine::world) fn plugin(&mut self, name: &str) -> Option<&mut Plugin> {
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
    pub(in crate::engine::world) fn runs(&mut self, call: &Call) -> Option<&mut Runs> {
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
    pub(crate) fn names(&self, pod: &PodName) -> bool {
        (self.pod.namespace.is_some() || pod.namespace.is_none())
            && (self.pod.name.is_some() || pod.name.is_none())
            && (self.pod.uid.is_some() || pod.uid.is_none())
    }

    pub(in crate::engine::world) fn learn_network(&mut self, name: &str, inferred: bool) {
        if self.network.is_none() || self.inferred && !inferred {
            self.network = Some(name.to_owned());
            self.inferred = inferred;
        }
    }
}
