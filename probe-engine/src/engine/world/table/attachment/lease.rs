//! Leases. A lease is an address that an ADD gave to an attachment, with the records that still name it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

use crate::{
    engine::world::table::attachment::{Attachment, Outcome},
    model::{
        fact::{Reservation, StoreRead},
        process::Process,
        time::Timestamp,
    },
};

#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lease {
    pub(crate) address: IpAddr,
    /// When the address was first known to be given. Zero: before this boot.
    pub(crate) since: Timestamp,
    /// The plugin that the runtime called for it, if that call was seen.
    pub(crate) plugin: Option<String>,
    /// The life (`world::table::netns::Netns::life`) of the namespace that has the address.
    #[serde_as(as = "Option<DisplayFromStr>")]
    pub(crate) kernel: Option<u64>,
    /// libcni's cache names the address.
    pub(crate) cached: bool,
    /// The paths of the stores that named the address when they were last read.
    pub(crate) stores: Vec<String>,
    /// The stores that named the address before, and whose last reading does not show whether they still do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) doubts: Vec<Doubt>,
    /// A store once named the address. If the store no longer names it, the address was given back.
    pub(crate) stored: bool,
    /// Since when the address has waited for a daemon of its plugin to free it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) queued_since: Option<Timestamp>,
    /// The address was removed from the namespace while the pod ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) removed: Option<Box<Removed>>,
    /// The last question about the address, to a store that is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) asked: Option<Box<Asked>>,
}

/// The removal of an address from a namespace that went on to exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Removed {
    pub(crate) at: Timestamp,
    /// Who removed it. None: no hook saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<Process>,
    /// It was a process in a container of the pod.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) by_pod: bool,
}

/// The last question about an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) at: Timestamp,
    /// When the store last read its records for an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answered_at: Option<Timestamp>,
}

/// A store that named an address before. Its last reading was not whole and did not show the address, or it
/// did not show whose the address is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Doubt {
    /// The path of the store.
    pub(crate) store: String,
    /// When the store was last seen to name the address.
    shown_at: Timestamp,
}

/// At most this many addresses of one attachment are leases. Most have one or two; a plugin that reserves an
/// address with each try and frees none makes many.
pub(crate) const LEASES: usize = 1024;

impl Lease {
    /// Whether this address was removed from its namespace.
    pub(crate) fn is_removed(&self, address: IpAddr) -> bool {
        self.address == address && self.removed.is_some()
    }

    /// Whether a record or a namespace shows that the address is still given.
    #[must_use]
    pub(crate) fn is_vouched(&self) -> bool {
        self.kernel.is_some() || self.may_be_on_record()
    }

    /// Whether a record names the address. An address in the namespace of a sandbox that is over does not
    /// count: a namespace that only a file keeps belongs to nobody.
    #[must_use]
    pub(crate) fn is_on_record(&self) -> bool {
        self.cached || !self.stores.is_empty()
    }

    /// Whether a record names the address, or may.
    #[must_use]
    pub(crate) fn may_be_on_record(&self) -> bool {
        self.is_on_record() || !self.doubts.is_empty()
    }

    /// Whether the only stores that named the address could not be read well enough to show whether they
    /// still do.
    #[must_use]
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.stores.is_empty() && !self.doubts.is_empty()
    }

    /// Whether this store names the address, or may name it.
    pub(crate) fn may_be_in(&self, path: &str) -> bool {
        self.stores.iter().chain(self.doubts.iter().map(|doubt| &doubt.store)).any(|store| store == path)
    }

    /// This store names the address.
    pub(in crate::engine::world) fn shown_in(&mut self, path: &String) {
        if !self.stores.contains(path) {
            self.stores.reserve_exact(1);
            self.stores.push(path.clone());
        }
        self.doubts.retain(|doubt| doubt.store != *path);
        self.stored = true;
    }

    /// This store does not name the address.
    pub(in crate::engine::world) fn not_in(&mut self, path: &str) {
        self.stores.retain(|store| store != path);
        self.doubts.retain(|doubt| doubt.store != path);
    }

    /// This store is asked about the address, and may name it until it answers.
    pub(in crate::engine::world) fn ask(&mut self, path: &str, at: Timestamp) {
        self.asked.get_or_insert_default().at = at;
        if !self.may_be_in(path) {
            self.doubts.push(Doubt { store: path.to_owned(), shown_at: Timestamp::ZERO });
        }
    }

    /// This store answers as of `at` whether it names the address.
    pub(in crate::engine::world) fn answer(&mut self, path: &String, at: Timestamp, is_held: bool) {
        self.asked.get_or_insert_default().answered_at = Some(at);
        self.stored = true;
        if is_held { self.shown_in(path) } else { self.not_in(path) }
    }

    /// This store is not asked any more, so its last answer counts no longer.
    pub(in crate::engine::world) fn forget_answers(&mut self, path: &str) {
        self.not_in(path);
        self.asked = None;
        self.stored = !self.stores.is_empty();
    }

    /// A reading of this store does not show whether the store still names the address, as it did at
    /// `shown_at`.
    pub(in crate::engine::world) fn doubted_in(&mut self, path: &String, shown_at: Timestamp) {
        if self.stores.contains(path) {
            self.stores.retain(|store| store != path);
            self.doubts.push(Doubt { store: path.clone(), shown_at });
        }
    }
}

impl Attachment {
    /// The lease of an address. A new lease is opened if there is none.
    pub(in crate::engine::world) fn lease(
        &mut self,
        address: IpAddr,
        at: Timestamp,
        plugin: Option<&str>,
    ) -> &mut Lease {
        let place = self.leases.iter().position(|lease| lease.address == address);
        let place = place.unwrap_or_else(|| {
            if self.leases.len() >= LEASES {
                self.leases.remove(0);
            }
            // Most attachments have one lease, and there may be tens of thousands of them.
            self.leases.reserve_exact(1);
            self.leases.push(Lease {
                address,
                since: at,
                plugin: None,
                kernel: None,
                cached: false,
                stores: Vec::new(),
                doubts: Vec::new(),
                stored: false,
                queued_since: None,
                removed: None,
                asked: None,
            });
            if let Some(wrong) = &mut self.wrong_del {
                wrong.address_given(address);
            }
            self.leases.len() - 1
        });
        let lease = &mut self.leases[place];
        lease.since = lease.since.min(at);
        if lease.plugin.is_none() {
            lease.plugin = plugin.map(str::to_owned);
        }
        lease
    }
}

impl Attachment {
    /// Whether this reading of a reservation has nothing new.
    pub(crate) fn is_stored_already(&self, read: &StoreRead, it: &Reservation) -> bool {
        (read.store.network.is_none() || self.network.is_some() && !self.inferred)
            && it.pod.as_ref().is_none_or(|pod| self.names(pod))
            && self.leases.iter().any(|lease| {
                lease.address == it.address
                    && lease.stored
                    && lease.since <= it.since
                    && lease.queued_since == it.queued_since()
                    && lease.stores.contains(&read.store.path)
            })
    }

    /// Whether a DEL succeeded after a store was last seen to name the address, and before a reading at `at`
    /// did not show it. A DEL without a namespace says nothing of that kind: some plugins do nothing then,
    /// and succeed.
    pub(crate) fn is_deleted_since(
        &self,
        lease: &Lease,
        path: &str,
        read_before: Timestamp,
        at: Timestamp,
    ) -> bool {
        let doubt = lease.doubts.iter().find(|doubt| doubt.store == path);
        let shown_at = doubt.map_or(read_before, |doubt| doubt.shown_at);
        let del = self.plugin_of(lease).map(|plugin| &plugin.del);
        del.is_some_and(|del| {
            del.outcome == Some(Outcome::Succeeded) && shown_at < del.last_at && del.last_at <= at
        })
    }
}
