//! Which addresses of the node's pools are in use, and why.
//!
//! The counts are kept from one look to the next. A look counts again only the addresses that a change
//! concerns. It counts all addresses again after a change that the use of any address may depend on.
//!
//! **Invariant:** an address is counted once, for its first reason in the order of [`Use`]. Counting
//! everything anew gives the tracked counts
//! ([`FindingTracker::differences`](super::FindingTracker::differences)).

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    mem,
    net::IpAddr,
};

use super::{
    DetectContext,
    leaked_address::Leak,
    rule::{Judged, Scope},
};
use crate::{
    engine::{
        view::PoolView,
        world::{
            World,
            table::{
                attachment::{Attachment, Lease},
                record::HasRecord,
            },
        },
    },
    model::{
        fact::{List, Network, Pool},
        finding::{Cause, LeakedAddress},
        time::Timestamp,
    },
};

/// The pools of all networks, in the order of the networks' configuration.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Pools {
    networks: Vec<NetworkPools>,
}

#[derive(Debug, PartialEq)]
struct NetworkPools {
    network: String,
    pools: Vec<PoolCount>,
    /// The addresses that are not free.
    taken: BTreeMap<IpAddr, Taken>,
    /// The addresses that leaked, or may have.
    leaked: BTreeMap<IpAddr, Use>,
    /// The addresses that a store counts as allocated without naming a sandbox, and since when.
    nameless: BTreeMap<IpAddr, Timestamp>,
}

/// A pool, and the use of its addresses.
#[derive(Debug, PartialEq)]
pub(super) struct PoolCount {
    pub(super) network: String,
    pub(super) pool: Pool,
    /// How many addresses are not free, by the reason.
    taken: BTreeMap<Use, u64>,
    /// How many of these addresses were allocated at each time.
    given_at: BTreeMap<Timestamp, u64>,
    /// How many of these addresses may have been freed: records were lost, or a store was not read whole.
    pub(super) unsure: u64,
    pub(super) leaks: Vec<PoolLeak>,
}

/// A leak in a pool.
#[derive(Debug, PartialEq)]
pub(super) struct PoolLeak {
    pub(super) since: Timestamp,
    pub(super) cause: Cause,
    pub(super) is_confirmed: bool,
}

/// Why an address is not free. If there are several reasons, the first one in this order counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    Live,
    /// A store counts it as allocated without naming a sandbox.
    Ownerless,
    Pending,
    Candidate,
    Leaked,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Taken {
    by: Use,
    at: Timestamp,
    is_sure: bool,
}

impl Pools {
    /// Counts all addresses.
    pub(super) fn count(world: &World, leaks: &Judged<LeakedAddress>) -> Self {
        let with_pools = world.records.networks().iter().filter(|network| !network.pools.is_empty());
        Self { networks: with_pools.map(|network| NetworkPools::count(world, network, leaks)).collect() }
    }

    /// Counts the addresses that a change concerns again. `is_leak_changed`: the leaks may have changed.
    pub(super) fn update(
        &mut self,
        ctx: &DetectContext<'_>,
        scope: &Scope,
        leaks: &Judged<LeakedAddress>,
        is_leak_changed: bool,
    ) {
        if scope.everything || scope.records && !self.are_of(ctx.world.records.networks()) {
            *self = Self::count(ctx.world, leaks);
            return;
        }
        for network in &mut self.networks {
            let mut addresses = scope.marks.addresses.clone();
            if is_leak_changed {
                addresses.extend(network.note_leaks(leaks));
            }
            if scope.records {
                addresses.extend(network.note_nameless(ctx.world));
            }
            for address in addresses {
                network.set(address, network.taken_now(ctx, address));
            }
        }
    }

    /// Whether these are the pools that the networks' configuration names now.
    fn are_of(&self, networks: &[Network]) -> bool {
        let mut configured = networks.iter().filter(|network| !network.pools.is_empty());
        for known in &self.networks {
            let Some(network) = configured.next() else { return false };
            if known.network != network.name || !known.pools.iter().map(|it| &it.pool).eq(&network.pools) {
                return false;
            }
        }
        configured.next().is_none()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &PoolCount> + Clone {
        self.networks.iter().flat_map(|network| &network.pools)
    }
}

impl NetworkPools {
    fn count(world: &World, network: &Network, leaks: &Judged<LeakedAddress>) -> Self {
        let pools = network.pools.iter().map(|pool| PoolCount {
            network: network.name.clone(),
            pool: *pool,
            taken: BTreeMap::new(),
            given_at: BTreeMap::new(),
            unsure: 0,
            leaks: Vec::new(),
        });
        let mut counted = Self {
            network: network.name.clone(),
            pools: pools.collect(),
            taken: BTreeMap::new(),
            leaked: BTreeMap::new(),
            nameless: BTreeMap::new(),
        };
        counted.note_leaks(leaks);
        counted.note_nameless(world);
        let mut all: BTreeMap<IpAddr, Taken> = BTreeMap::new();
        let by_sandboxes = world.attachments.values().flat_map(|row| {
            row.leases.iter().filter_map(|lease| Some((lease.address, counted.taken_by(world, row, lease)?)))
        });
        let by_nobody = counted.nameless.iter().map(|(address, since)| (*address, Taken::by_nobody(*since)));
        for (address, taken) in by_sandboxes.chain(by_nobody) {
            all.entry(address).and_modify(|known| *known = known.and(taken)).or_insert(taken);
        }
        for (address, taken) in all {
            counted.set(address, Some(taken));
        }
        counted
    }

    /// Updates the leaks of this network. Returns the addresses whose use may change by that.
    fn note_leaks(&mut self, leaks: &Judged<LeakedAddress>) -> BTreeSet<IpAddr> {
        let own: Vec<&Leak> =
            leaks.parts().filter(|leak| leak.network() == Some(self.network.as_str())).collect();
        for pool in &mut self.pools {
            let within = own.iter().filter(|leak| pool.has(leak.address()));
            pool.leaks = within.map(|leak| PoolLeak::of(leak)).collect();
        }
        let leaked = own
            .iter()
            .map(|leak| (leak.address(), if leak.is_confirmed() { Use::Leaked } else { Use::Candidate }));
        let before = mem::replace(&mut self.leaked, leaked.collect());
        differing(&before, &self.leaked)
    }

    /// Updates the addresses that stores count as allocated without naming a sandbox. Returns the addresses
    /// whose use may change by that.
    fn note_nameless(&mut self, world: &World) -> BTreeSet<IpAddr> {
        let before = mem::take(&mut self.nameless);
        let stores = world.records.stores.values().map(|(_, read)| read);
        let own = stores.filter(|read| read.store.network.as_ref() == Some(&self.network));
        for it in own.flat_map(|read| read.ownerless()) {
            let since = self.nameless.entry(it.address).or_insert(it.since);
            *since = it.since.max(*since);
        }
        differing(&before, &self.nameless)
    }

    /// Returns why an address is not free. None: it is free.
    fn taken_now(&self, ctx: &DetectContext<'_>, address: IpAddr) -> Option<Taken> {
        let rows = ctx.index.addresses.by(&address).filter_map(|key| ctx.world.attachments.get(key));
        let leases = rows.flat_map(|row| row.leases.iter().map(move |lease| (row, lease)));
        let by_sandboxes = leases
            .filter(|(_, lease)| lease.address == address)
            .filter_map(|(row, lease)| self.taken_by(ctx.world, row, lease));
        let by_nobody = self.nameless.get(&address).map(|since| Taken::by_nobody(*since));
        by_sandboxes.chain(by_nobody).reduce(Taken::and)
    }

    /// Returns why the address of this lease is not free. None: no sandbox has it.
    fn taken_by(&self, world: &World, row: &Attachment, lease: &Lease) -> Option<Taken> {
        // A store that can be read decides what is allocated; libcni's cache may be old.
        let is_taken = lease.kernel.is_some()
            || !lease.stores.is_empty()
            || lease.is_in_doubt()
            || lease.cached && !world.records.is_store_read(row, lease);
        if row.network.as_ref() != Some(&self.network) || !is_taken {
            return None;
        }
        let by = match world.sandboxes.get(&row.container) {
            Some(sandbox) if !sandbox.is_stopped() => Use::Live,
            _ if lease.kernel.is_some() => Use::Live,
            _ if world.records.has_record(&row.container) == HasRecord::Yes => Use::Pending,
            // No live sandbox is known to have it, which does not prove a leak.
            _ => self.leaked.get(&lease.address).copied().unwrap_or(Use::Live),
        };
        let is_known = lease.kernel.is_some() || !lease.is_in_doubt();
        let is_sure = !lease.stores.is_empty() || is_known && !world.lists.is_gapped(List::Netns);
        Some(Taken { by, at: lease.since, is_sure })
    }

    fn set(&mut self, address: IpAddr, taken: Option<Taken>) {
        let before = match taken {
            Some(taken) => self.taken.insert(address, taken),
            None => self.taken.remove(&address),
        };
        if before == taken {
            return;
        }
        for pool in self.pools.iter_mut().filter(|pool| pool.has(address)) {
            if let Some(before) = before {
                pool.free(before);
            }
            if let Some(taken) = taken {
                pool.take(taken);
            }
        }
    }
}

impl PoolCount {
    /// Whether the pool has this address. A pool that ends before it begins has none.
    fn has(&self, address: IpAddr) -> bool {
        self.pool.first <= address && address <= self.pool.last
    }

    fn take(&mut self, taken: Taken) {
        *self.taken.entry(taken.by).or_default() += 1;
        *self.given_at.entry(taken.at).or_default() += 1;
        self.unsure += u64::from(!taken.is_sure);
    }

    fn free(&mut self, taken: Taken) {
        count_down(&mut self.taken, taken.by);
        count_down(&mut self.given_at, taken.at);
        self.unsure = self.unsure.saturating_sub(u64::from(!taken.is_sure));
    }

    /// Returns when the latest of the addresses that are not free was allocated.
    pub(super) fn taken_at(&self) -> Timestamp {
        self.given_at.last_key_value().map_or(Timestamp::ZERO, |(at, _)| *at)
    }

    pub(super) fn view(&self) -> PoolView {
        PoolView {
            network: self.network.clone(),
            subnet: self.pool.subnet,
            size: self.pool.size,
            in_use: self.number(Use::Live).saturating_add(self.ownerless()),
            pending_cleanup: self.number(Use::Pending),
            leak_candidate: self.number(Use::Candidate),
            leaked: self.number(Use::Leaked),
            free: self.free_addresses(),
        }
    }

    /// Returns how many addresses a store counts as allocated without naming a sandbox.
    pub(super) fn ownerless(&self) -> u64 {
        self.number(Use::Ownerless)
    }

    fn number(&self, by: Use) -> u64 {
        self.taken.get(&by).copied().unwrap_or(0)
    }

    pub(super) fn free_addresses(&self) -> u64 {
        self.pool.size.saturating_sub(self.taken.values().sum())
    }
}

impl PoolLeak {
    fn of(leak: &Leak) -> Self {
        Self { since: leak.since, cause: leak.cause, is_confirmed: leak.is_confirmed() }
    }
}

impl Taken {
    /// Makes the reason of an address that a store counts as allocated without naming a sandbox.
    fn by_nobody(since: Timestamp) -> Self {
        Self { by: Use::Ownerless, at: since, is_sure: true }
    }

    /// Joins two reasons for which the same address is not free.
    fn and(self, other: Self) -> Self {
        Self { by: self.by.min(other.by), at: self.at.max(other.at), is_sure: self.is_sure || other.is_sure }
    }
}

fn count_down<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K) {
    if let Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

/// Returns the addresses that are in only one of the two maps, or have different values.
fn differing<V: PartialEq>(one: &BTreeMap<IpAddr, V>, other: &BTreeMap<IpAddr, V>) -> BTreeSet<IpAddr> {
    let mut one = one.iter().peekable();
    let mut other = other.iter().peekable();
    let mut differing = BTreeSet::new();
    loop {
        let next = match (one.peek(), other.peek()) {
            (Some((first, _)), Some((second, _))) => *(*first).min(*second),
            (Some((only, _)), None) | (None, Some((only, _))) => **only,
            (None, None) => return differing,
        };
        let of_one = one.next_if(|(address, _)| **address == next);
        let of_other = other.next_if(|(address, _)| **address == next);
        if of_one != of_other {
            differing.insert(next);
        }
    }
}
