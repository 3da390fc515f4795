//! The balance of each plugin and network: what became of the attachments that its ADDs made. It needs no
//! store, so it holds for plugins that keep nothing on the node.
//!
//! An ADD that succeeds opens an entry, and the first DEL that succeeds after it closes it, for each plugin
//! that the runtime called for a sandbox's interface. Calls that are repeated change nothing. Attachments
//! from before the agent have no entry, and neither have containers without a pod, whose end nobody sees.
//!
//! **Invariant:** each entry has one fate, so an account's `added` is the sum of its entries by fate. Each
//! pod with an entry has a sandbox with one, so there are no more pods than sandboxes, and no more of these
//! than entries.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::world::table::attachment::{Booked, Booking, Fate};

/// At most this many accounts are kept. Further plugins and networks share one.
pub(crate) const ACCOUNTS: usize = 64;

/// The plugin of the shared account.
pub(crate) const OTHER: &str = "other";

/// The entries of a plugin and network that are closed or forgotten, by fate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub(crate) plugin: String,
    pub(crate) network: Option<String>,
    /// All entries, with those that are open.
    pub(crate) added: u64,
    /// Sandboxes and pods with an entry.
    #[serde(default)]
    sandboxes: u64,
    #[serde(default)]
    pods: u64,
    released: u64,
    released_without_netns: u64,
    /// None: an earlier version counted for a part of the boot, and did not count these.
    #[serde(default)]
    unverified: Option<u64>,
    pub(crate) unreleased: u64,
    pub(crate) unknown: u64,
}

/// What became of the attachments that the ADDs of a plugin made in a network, since the first agent of this
/// boot. An attachment is a sandbox's interface. Each is in one of the numbers after `added`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BalanceView {
    pub plugin: String,
    /// The network by which the ADD was counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Pods with an ADD that succeeded.
    pub pods: u64,
    /// Sandboxes with an ADD that succeeded.
    pub sandboxes: u64,
    /// ADDs that succeeded, of each sandbox and interface once between two DELs.
    pub added: u64,
    /// A DEL that named a network namespace succeeded, or a store shows that the addresses are free.
    pub released: u64,
    /// A DEL succeeded, with an empty `CNI_NETNS`, and no other can have succeeded unseen.
    pub released_without_netns: u64,
    /// How many of `released_without_netns` nothing verifies: the plugin may have freed no address. Absent if
    /// an earlier version of the agent, which did not count them, ran in this boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unverified: Option<u64>,
    /// The sandbox lives.
    pub live: u64,
    /// The sandbox is over, and a DEL may still come.
    pub ended: u64,
    /// Nobody is left to call DEL, and none succeeded.
    pub unreleased: u64,
    /// A DEL may have succeeded unseen: records were lost, or no runtime's records can be read. A DEL with an
    /// empty `CNI_NETNS` after that shows nothing.
    pub unknown: u64,
}

/// By plugin and network.
#[derive(Debug, Default)]
pub(crate) struct Accounts(pub(crate) BTreeMap<(String, Option<String>), Account>);

impl Accounts {
    pub(crate) fn values(&self) -> impl Iterator<Item = &Account> {
        self.0.values()
    }

    /// Restores an account from a checkpoint.
    pub(in crate::engine::world) fn insert(&mut self, mut account: Account) {
        // Earlier versions did not count pods.
        if account.pods == 0 {
            account.pods = account.added;
            account.sandboxes = account.added;
        }
        self.0.insert((account.plugin.clone(), account.network.clone()), account);
    }

    pub(in crate::engine::world) fn book(&mut self, it: Booking) {
        let mut key = (it.plugin, it.network);
        if !self.0.contains_key(&key) && self.0.len() >= ACCOUNTS {
            key = (OTHER.to_owned(), None);
        }
        let (plugin, network) = key.clone();
        let account = self.0.entry(key).or_insert_with(|| Account {
            plugin,
            network,
            unverified: Some(0),
            ..Account::default()
        });
        match it.what {
            Booked::Added(first) => {
                account.added += 1;
                account.sandboxes += u64::from(first.sandbox);
                account.pods += u64::from(first.pod);
            }
            Booked::Unverified => account.unverified = account.unverified.map(|count| count + 1),
            Booked::Closed(Fate::Released) => account.released += 1,
            Booked::Closed(Fate::ReleasedWithoutNetns) => account.released_without_netns += 1,
            Booked::Closed(Fate::Unreleased) => account.unreleased += 1,
            Booked::Closed(Fate::Live | Fate::Ended | Fate::Unknown) => account.unknown += 1,
        }
    }
}

impl Extend<Booking> for Accounts {
    fn extend<I: IntoIterator<Item = Booking>>(&mut self, all: I) {
        all.into_iter().for_each(|it| self.book(it));
    }
}

impl Account {
    pub(crate) fn view(&self) -> BalanceView {
        BalanceView {
            plugin: self.plugin.clone(),
            network: self.network.clone(),
            pods: self.pods,
            sandboxes: self.sandboxes,
            added: self.added,
            released: self.released,
            released_without_netns: self.released_without_netns,
            unverified: self.unverified,
            live: 0,
            ended: 0,
            unreleased: self.unreleased,
            unknown: self.unknown,
        }
    }
}
