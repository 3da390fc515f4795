//! The entry of a plugin's attachment in the balance of plugins (`table::balance`).

use crate::engine::world::table::{
    attachment::{
        Attachment,
        plugin::{Entry, Plugin},
    },
    call::Call,
};

/// The opening or closing of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Booking {
    pub(crate) plugin: String,
    pub(crate) network: Option<String>,
    pub(crate) what: Booked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Booked {
    Added(First),
    Closed(Fate),
    /// Nothing shows that a DEL without a network namespace freed the addresses.
    Unverified,
}

/// Whether an attachment is the first that a plugin made in a network for the sandbox, and for the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct First {
    pub(crate) sandbox: bool,
    pub(crate) pod: bool,
}

/// What became of an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Its sandbox lives.
    Live,
    /// Its sandbox is over, and a DEL may still come.
    Ended,
    /// A DEL that named a network namespace succeeded, or a store shows that the addresses are free.
    Released,
    /// A DEL succeeded, with an empty `CNI_NETNS`, and no other can have succeeded unseen.
    ReleasedWithoutNetns,
    /// Nobody is left to call DEL, and none succeeded.
    Unreleased,
    /// A DEL may have succeeded unseen.
    Unknown,
}

impl Attachment {
    /// The plugins with an open entry, and the network by which each was counted.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&Plugin, &Option<String>)> {
        self.plugins.iter().filter_map(|plugin| Some((plugin, &plugin.open_entry()?.network)))
    }

    pub(crate) fn has_entry(&self) -> bool {
        self.plugins.iter().any(|plugin| plugin.open_entry().is_some())
    }

    /// Opens the entry of a plugin whose ADD succeeded, or closes it after a DEL, which has no `first`. None:
    /// the call changes nothing.
    pub(in crate::engine::world) fn book(&mut self, call: &Call, first: Option<First>) -> Option<Booking> {
        if self.is_loopback() || self.pod.name.is_none() {
            return None;
        }
        let network = self.network.clone();
        let is_gapped = self.gapped;
        let plugin = self.plugin(&call.call.plugin)?;
        let (network, what) = match first {
            Some(_) if plugin.open_entry().is_some() => return None,
            Some(first) => {
                plugin.entry = Some(Entry { network: network.clone(), is_closed: false, is_unjudged: false });
                (network, Booked::Added(first))
            }
            None => {
                let has_netns = call.call.netns.as_deref().is_some_and(|netns| !netns.is_empty());
                // A DEL that nobody saw may have named the namespace.
                let fate = if has_netns {
                    Fate::Released
                } else if is_gapped || plugin.has_unseen_del() {
                    Fate::Unknown
                } else {
                    Fate::ReleasedWithoutNetns
                };
                let entry = plugin.entry.as_mut()?;
                if entry.is_closed {
                    entry.is_unjudged &= !has_netns;
                    return None;
                }
                entry.is_closed = true;
                entry.is_unjudged = fate == Fate::ReleasedWithoutNetns;
                (entry.network.clone(), Booked::Closed(fate))
            }
        };
        Some(Booking { plugin: plugin.name.clone(), network, what })
    }
}
