//! The balance of each plugin and network: what became of the attachments that its ADDs made. It needs no store, so it
//! holds for plugins that keep nothing on the node.
//!
//! An ADD that succeeds opens an entry, and the first DEL that succeeds after it closes it, for each plugin that the
//! runtime called for a sandbox's interface. Calls that are repeated change nothing. Attachments from before the agent
//! have no entry, and neither have containers without a pod, whose end nobody sees.
//!
//! **Invariant:** each entry has one fate, so an account's `added` is the sum of its entries by fate.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    engine::world::{
        World,
        attachment::{Attachment, Booked, Booking, Fate, Plugin},
        record::HasRecord,
        release::Released,
    },
    model::time::Timestamp,
};

/// At most this many accounts are kept. Further plugins and networks share one.
pub(in crate::engine) const ACCOUNTS: usize = 64;
/// The plugin of the shared account.
const OTHER: &str = "other";

/// The entries of a plugin and network that are closed or forgotten, by fate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    plugin: String,
    network: Option<String>,
    /// All entries, with those that are open.
    added: u64,
    released: u64,
    released_without_netns: u64,
    unreleased: u64,
    unknown: u64,
}

/// What became of the attachments that the ADDs of a plugin made in a network, since the first agent of this boot. An
/// attachment is a sandbox's interface. Each is in one of the numbers after `added`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BalanceView {
    pub plugin: String,
    /// The network by which the ADD was counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// ADDs that succeeded, each sandbox and interface once.
    pub added: u64,
    /// A DEL that named a network namespace succeeded, or a store shows that the addresses are free.
    pub released: u64,
    /// A DEL succeeded, with an empty `CNI_NETNS`.
    pub released_without_netns: u64,
    /// The sandbox lives.
    pub live: u64,
    /// The sandbox is over, and a DEL may still come.
    pub ended: u64,
    /// Nobody is left to call DEL, and none succeeded.
    pub unreleased: u64,
    /// A DEL may have succeeded unseen: records were lost, or no runtime's records can be read.
    pub unknown: u64,
}

/// By plugin and network.
#[derive(Debug, Default)]
pub(in crate::engine) struct Accounts(BTreeMap<(String, Option<String>), Account>);

impl Accounts {
    pub(in crate::engine::world) fn values(&self) -> impl Iterator<Item = &Account> {
        self.0.values()
    }

    /// Restores an account from a checkpoint.
    pub(in crate::engine::world) fn insert(&mut self, account: Account) {
        self.0.insert((account.plugin.clone(), account.network.clone()), account);
    }

    fn book(&mut self, it: Booking) {
        let mut key = (it.plugin, it.network);
        if !self.0.contains_key(&key) && self.0.len() >= ACCOUNTS {
            key = (OTHER.to_owned(), None);
        }
        let (plugin, network) = key.clone();
        let account = self.0.entry(key).or_insert_with(|| Account { plugin, network, ..Account::default() });
        match it.what {
            Booked::Added => account.added += 1,
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
    fn view(&self) -> BalanceView {
        BalanceView {
            plugin: self.plugin.clone(),
            network: self.network.clone(),
            added: self.added,
            released: self.released,
            released_without_netns: self.released_without_netns,
            live: 0,
            ended: 0,
            unreleased: self.unreleased,
            unknown: self.unknown,
        }
    }
}

impl World {
    /// What became of the attachments of each plugin and network.
    pub(in crate::engine) fn balance(&self, now: Timestamp, grace: Duration) -> Vec<BalanceView> {
        let accounts = &self.accounts.0;
        let mut views: BTreeMap<_, _> =
            accounts.iter().map(|(key, account)| (key.clone(), account.view())).collect();
        let shared = (OTHER.to_owned(), None);
        for row in self.attachments.values() {
            for (plugin, network) in row.entries() {
                let own = (plugin.name.clone(), network.clone());
                let key = if views.contains_key(&own) { &own } else { &shared };
                let Some(view) = views.get_mut(key) else { continue };
                match self.fate(row, plugin, now, grace) {
                    Fate::Live => view.live += 1,
                    Fate::Ended => view.ended += 1,
                    Fate::Unreleased => view.unreleased += 1,
                    Fate::Released | Fate::ReleasedWithoutNetns | Fate::Unknown => view.unknown += 1,
                }
            }
        }
        views.into_values().collect()
    }

    /// What became of an attachment for which no DEL of this plugin has succeeded.
    fn fate(&self, row: &Attachment, plugin: &Plugin, now: Timestamp, grace: Duration) -> Fate {
        let sandbox = self.sandboxes.recall(&row.container);
        if sandbox.is_some_and(|it| !it.is_stopped() && !it.is_stillborn(row)) {
            return Fate::Live;
        }
        // The runtime and the kubelet have the grace to clean up, while both are up.
        let up = self.cleaners_since().map(|up| up.max(self.node.woke_at));
        let over_at = sandbox.and_then(|it| it.over_at()).unwrap_or_default().max(row.last_at);
        let is_late = |at: Timestamp| up.is_some_and(|up| at >= over_at && now >= over_at.max(up) + grace);
        match self.records.has_record(&row.container).unless(self.has_unread_runtime()) {
            HasRecord::No { at } if is_late(at) && !row.is_busy() => fate_without_del(row, plugin),
            HasRecord::Yes | HasRecord::No { .. } | HasRecord::Unknown => Fate::Ended,
        }
    }

    /// Closes the entries of attachments that are forgotten. The sandboxes are over for long, and no record names an
    /// address of them any more.
    pub(super) fn close_entries(&mut self, now: Timestamp, forgotten: Vec<Attachment>) {
        for row in forgotten {
            let has_record = self.records.has_record(&row.container).unless(self.has_unread_runtime());
            let is_known = matches!(has_record, HasRecord::No { .. });
            let is_free = self.is_stored(&row);
            let fate = |plugin: &Plugin| match fate_without_del(&row, plugin) {
                Fate::Unreleased if is_free => Fate::Released,
                Fate::Unreleased if is_known => Fate::Unreleased,
                Fate::Live
                | Fate::Ended
                | Fate::Released
                | Fate::ReleasedWithoutNetns
                | Fate::Unreleased
                | Fate::Unknown => Fate::Unknown,
            };
            for (plugin, network) in row.entries() {
                let what = Booked::Closed(fate(plugin));
                self.accounts.book(Booking { plugin: plugin.name.clone(), network: network.clone(), what });
            }
            // The first plugin of a chain gives the address.
            let first = row.plugins.iter().find(|plugin| plugin.add.succeeded > 0);
            let lost = first.filter(|it| it.entry.is_some() && fate(it) == Fate::Unreleased);
            if let Some(plugin) = lost {
                self.count_release(now, plugin.name.clone(), Released::Never);
                self.changed_at.get_or_insert(now);
            }
        }
    }
}

fn fate_without_del(row: &Attachment, plugin: &Plugin) -> Fate {
    let is_unsure = row.gapped || plugin.del.unseen > 0 || plugin.del_without_netns.unseen > 0;
    if is_unsure { Fate::Unknown } else { Fate::Unreleased }
}
