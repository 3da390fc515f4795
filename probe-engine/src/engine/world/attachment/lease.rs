//! Leases. A lease is an address that an ADD gave to an attachment, with the records that still name it.
//!
//! Other addresses in a pod's namespace are no leases: docker0 of a Docker in the pod, virtual IPs, addresses that IPv6
//! configures by itself.

use std::{collections::BTreeSet, net::IpAddr};

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

use super::{Attachment, Outcome};
use crate::{
    engine::world::{EventContext, World},
    model::{
        fact::{self, Reservation, StoreRead},
        id::ContainerId,
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
    /// The life (`world::netns::Netns::life`) of the namespace that has the address.
    #[serde_as(as = "Option<DisplayFromStr>")]
    pub(crate) kernel: Option<u64>,
    /// libcni's cache names the address.
    pub(crate) cached: bool,
    /// The paths of the stores that named the address when they were last read.
    pub(crate) stores: Vec<String>,
    /// The stores that named the address before, and whose last reading does not tell whether they still do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) doubts: Vec<Doubt>,
    /// A store once named the address. If the store no longer names it, the address was given back.
    pub(crate) stored: bool,
}

/// A store that named an address before. Its last reading was not whole and did not show the address, or it did not
/// show whose the address is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Doubt {
    /// The path of the store.
    pub(crate) store: String,
    /// When the store was last seen to name the address.
    shown_at: Timestamp,
}

/// What a reading of a store names.
struct Named {
    /// The attachments with their addresses.
    leases: BTreeSet<((ContainerId, String), IpAddr)>,
    /// The addresses whose holder could not be read.
    unread: BTreeSet<IpAddr>,
}

/// At most this many addresses of one attachment are leases. Most have one or two; a plugin that reserves an address with
/// each try and frees none makes many.
const LEASES: usize = 1024;

/// `IFA_F_TEMPORARY` of IPv6. The same bit is `IFA_F_SECONDARY` of IPv4.
const TEMPORARY: u32 = 1;

/// `RT_SCOPE_UNIVERSE`.
const GLOBAL: u8 = 0;

impl Lease {
    /// Whether a record or a namespace shows that the address is still given.
    #[must_use]
    pub(crate) fn is_vouched(&self) -> bool {
        self.kernel.is_some() || self.may_be_on_record()
    }

    /// Whether a record names the address. An address in the namespace of a sandbox that is over does not count: a
    /// namespace that only a file keeps belongs to nobody.
    #[must_use]
    pub(crate) fn is_on_record(&self) -> bool {
        self.cached || !self.stores.is_empty()
    }

    /// Whether a record names the address, or may.
    #[must_use]
    pub(crate) fn may_be_on_record(&self) -> bool {
        self.is_on_record() || !self.doubts.is_empty()
    }

    /// Whether the only stores that named the address could not be read well enough to tell whether they still do.
    #[must_use]
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.stores.is_empty() && !self.doubts.is_empty()
    }

    /// Whether this store names the address, or may name it.
    pub(crate) fn may_be_in(&self, path: &str) -> bool {
        self.stores.iter().chain(self.doubts.iter().map(|doubt| &doubt.store)).any(|store| store == path)
    }

    /// This store names the address.
    fn shown_in(&mut self, path: &String) {
        if !self.stores.contains(path) {
            self.stores.reserve_exact(1);
            self.stores.push(path.clone());
        }
        self.doubts.retain(|doubt| doubt.store != *path);
        self.stored = true;
    }

    /// This store does not name the address.
    pub(super) fn not_in(&mut self, path: &str) {
        self.stores.retain(|store| store != path);
        self.doubts.retain(|doubt| doubt.store != path);
    }

    /// A reading of this store does not tell whether the store still names the address, as it did at `shown_at`.
    pub(super) fn doubted_in(&mut self, path: &String, shown_at: Timestamp) {
        if self.stores.contains(path) {
            self.stores.retain(|store| store != path);
            self.doubts.push(Doubt { store: path.clone(), shown_at });
        }
    }
}

impl Attachment {
    /// The lease of an address. A new lease is opened if there is none.
    pub(super) fn lease(&mut self, address: IpAddr, at: Timestamp, plugin: Option<&str>) -> &mut Lease {
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
    /// Whether this reading of a reservation tells nothing new.
    fn is_stored_already(&self, read: &StoreRead, it: &Reservation) -> bool {
        let is_it = |lease: &Lease| {
            lease.address == it.address
                && lease.stored
                && lease.since <= it.since
                && lease.stores.contains(&read.store.path)
        };
        (read.store.network.is_none() || self.network.is_some() && !self.inferred)
            && self.leases.iter().any(is_it)
    }

    /// Whether a DEL succeeded after a store was last seen to name the address, and before a reading at `at` did not show
    /// it. A DEL without a namespace says nothing of that kind: some plugins do nothing then, and succeed.
    fn is_deleted_since(&self, lease: &Lease, path: &str, read_before: Timestamp, at: Timestamp) -> bool {
        let doubt = lease.doubts.iter().find(|doubt| doubt.store == path);
        let shown_at = doubt.map_or(read_before, |doubt| doubt.shown_at);
        let del = self.plugin_of(lease).map(|plugin| &plugin.del);
        del.is_some_and(|del| {
            del.outcome == Some(Outcome::Succeeded) && shown_at < del.last_at && del.last_at <= at
        })
    }
}

impl World {
    /// An address appeared in a sandbox's namespace. It is a lease if a plugin works on that interface now.
    pub(in crate::engine::world) fn lease_by_kernel(
        &mut self,
        ctx: EventContext,
        life: u64,
        it: &fact::Address,
    ) {
        let is_temporary = it.address.address.is_ipv6() && it.flags & TEMPORARY != 0;
        if it.scope != GLOBAL || is_temporary || it.address.address.is_loopback() {
            return;
        }
        let Some(id) = self.netns.get(life).and_then(|row| row.sandbox.clone()) else { return };
        let Some(row) = self.attachments.rows.get_mut(&(id, it.ifname.clone())) else { return };
        let known = row.leases.iter().any(|lease| lease.address == it.address.address);
        let open = row.plugins.iter().find(|plugin| plugin.add.is_open()).map(|plugin| plugin.name.clone());
        if known || open.is_some() {
            row.lease(it.address.address, ctx.at, open.as_deref()).kernel = Some(life);
        }
    }

    /// An address is gone from a namespace. `address: None` means all addresses.
    pub(in crate::engine::world) fn lease_left_kernel(&mut self, life: u64, address: Option<IpAddr>) {
        let Some(id) = self.netns.get(life).and_then(|row| row.sandbox.clone()) else { return };
        let all = self.attachments.rows.range_mut((id.clone(), String::new())..);
        for (_, row) in all.take_while(|((key, _), _)| *key == id) {
            let here = |lease: &&mut Lease| {
                lease.kernel == Some(life) && address.is_none_or(|address| lease.address == address)
            };
            for lease in row.leases.iter_mut().filter(here) {
                lease.kernel = None;
            }
        }
    }

    /// A store was read, and before that at `read_before`. Every address that it names is given. An address that it no
    /// longer names is not given any more, if the reading covers that address.
    pub(in crate::engine::world) fn leases_in_store(
        &mut self,
        ctx: EventContext,
        read: &StoreRead,
        read_before: Timestamp,
    ) {
        let named = self.leases_named(ctx, read);
        let path = &read.store.path;
        self.attachments.rows.update(|key, row| {
            let is_it = |lease: &Lease| {
                lease.may_be_in(path) && !named.leases.contains(&(key.clone(), lease.address))
            };
            let mut is_changed = false;
            for place in 0..row.leases.len() {
                let Some(lease) = row.leases.get(place).filter(|lease| is_it(lease)) else { continue };
                let is_unread = named.unread.contains(&lease.address);
                let is_gone = if read.complete {
                    !is_unread
                } else {
                    !is_unread && row.is_deleted_since(lease, path, read_before, ctx.at)
                };
                let Some(lease) = row.leases.get_mut(place) else { continue };
                if is_gone {
                    lease.not_in(path);
                    is_changed = true;
                } else if lease.stores.contains(path) {
                    lease.doubted_in(path, read_before);
                    is_changed = true;
                }
            }
            is_changed
        });
    }

    /// Every address that a reading of a store names is given.
    pub(in crate::engine::world) fn leases_came(&mut self, ctx: EventContext, read: &StoreRead) {
        self.leases_named(ctx, read);
    }

    fn leases_named(&mut self, ctx: EventContext, read: &StoreRead) -> Named {
        let path = &read.store.path;
        let mut named = Named { leases: BTreeSet::new(), unread: BTreeSet::new() };
        for it in &read.reservations {
            let Some(holder) = &it.holder else {
                named.unread.insert(it.address);
                continue;
            };
            let key = (holder.container.clone(), self.interface_of(holder, it.address));
            if self.attachments.get(&key).is_some_and(|row| row.is_stored_already(read, it)) {
                self.schedule_reap(ctx.at);
                named.leases.insert((key, it.address));
                continue;
            }
            self.schedule_reap(ctx.at);
            let row = self.attachments.row(ctx.at, &key.0, &key.1);
            if let Some(network) = &read.store.network {
                row.learn_network(network, false);
            }
            let lease = row.lease(it.address, it.since, None);
            if lease.stored && !lease.is_vouched() {
                // It was given back, and is given again.
                lease.since = it.since;
            }
            lease.shown_in(path);
            named.leases.insert((key, it.address));
        }
        named
    }

    /// The interface of a reservation in a store that keeps no interface names: the one that has the address, or the
    /// only one.
    fn interface_of(&self, holder: &fact::Holder, address: IpAddr) -> String {
        if !holder.ifname.is_empty() {
            return holder.ifname.clone();
        }
        let of_pod = || self.attachments.of(&holder.container).filter(|row| !row.is_loopback());
        let has = |row: &&Attachment| row.leases.iter().any(|lease| lease.address == address);
        let mut rest = of_pod().filter(|row| !row.ifname.is_empty());
        let by_address = of_pod().find(has);
        let only = rest.next().filter(|_| rest.next().is_none());
        by_address.or(only).map(|row| row.ifname.clone()).unwrap_or_default()
    }
}
