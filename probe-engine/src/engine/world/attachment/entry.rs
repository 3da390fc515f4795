//! The entry of a plugin's attachment in the balance of plugins (`world::balance`).

use serde::{Deserialize, Serialize};

use super::{Attachment, Plugin};
use crate::{
    engine::world::{
        balance::{Booked, Booking, Fate},
        call::Call,
    },
    model::fact::CniCommand,
};

/// An ADD succeeded, and no DEL since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The network by which the ADD was counted.
    network: Option<String>,
}

impl Attachment {
    /// The plugins with an open entry, and the network by which each was counted.
    pub(in crate::engine::world) fn entries(&self) -> impl Iterator<Item = (&Plugin, &Option<String>)> {
        self.plugins.iter().filter_map(|plugin| Some((plugin, &plugin.entry.as_ref()?.network)))
    }

    pub(super) fn has_entry(&self) -> bool {
        self.plugins.iter().any(|plugin| plugin.entry.is_some())
    }

    /// Opens or closes the entry of a plugin whose call succeeded. None: the call changes nothing.
    pub(super) fn book(&mut self, call: &Call, command: CniCommand) -> Option<Booking> {
        if self.is_loopback() || self.pod.name.is_none() {
            return None;
        }
        let network = self.network.clone();
        let plugin = self.plugin(&call.call.plugin)?;
        let (network, what) = match command {
            CniCommand::Add if plugin.entry.is_some() => return None,
            CniCommand::Add => {
                plugin.entry = Some(Entry { network: network.clone() });
                (network, Booked::Added)
            }
            CniCommand::Del => {
                let has_netns = call.call.netns.as_deref().is_some_and(|netns| !netns.is_empty());
                let fate = if has_netns { Fate::Released } else { Fate::ReleasedWithoutNetns };
                (plugin.entry.take()?.network, Booked::Closed(fate))
            }
        };
        Some(Booking { plugin: plugin.name.clone(), network, what })
    }
}
