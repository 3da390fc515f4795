//! Who has the addresses of the pools that the node gives pods addresses from.
//!
//! **Invariant:** an address is counted once, for the best reason that it is in use.

use std::{collections::BTreeMap, net::IpAddr};

use super::{
    leaked_address::{Leak, LeakedAddress},
    rule::Judged,
};
use crate::{
    engine::{
        view::PoolView,
        world::{
            World,
            attachment::{Attachment, Lease},
            record::Kept,
        },
    },
    model::{
        fact::{List, Network, Pool},
        time::Timestamp,
    },
};

/// A pool, and what became of its addresses.
pub(super) struct Count<'a> {
    pub(super) view: PoolView,
    pub(super) first: IpAddr,
    pub(super) last: IpAddr,
    /// The leaks in it.
    pub(super) leaks: Vec<&'a Leak>,
    /// When the latest of its addresses was given out.
    pub(super) taken_at: Timestamp,
    /// How many of those in use may have been given back among lost records.
    pub(super) unsure: u64,
}

/// Why an address is not free; the first of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    Live,
    Pending,
    Candidate,
    Leaked,
}

#[derive(Clone, Copy)]
struct Taken {
    by: Use,
    at: Timestamp,
    sure: bool,
}

pub(super) fn count<'a>(world: &World, judged: &'a Judged<LeakedAddress>) -> Vec<Count<'a>> {
    let leaks: Vec<&Leak> = judged.parts().collect();
    let networks = world.records.networks().iter();
    let one = |network: &Network| {
        let taken = taken(world, network, &leaks);
        network.pools.iter().map(|pool| count_one(network, pool, &taken, &leaks)).collect::<Vec<_>>()
    };
    networks.filter(|network| !network.pools.is_empty()).flat_map(one).collect()
}

fn count_one<'a>(
    network: &Network,
    pool: &Pool,
    taken: &BTreeMap<IpAddr, Taken>,
    leaks: &[&'a Leak],
) -> Count<'a> {
    // One that ends before it begins has no address; a map has no such range.
    let range = || (pool.first <= pool.last).then(|| taken.range(pool.first..=pool.last));
    let within = || range().into_iter().flatten().map(|(_, taken)| taken);
    let number = |by: Use| amount(within().filter(|taken| taken.by == by));
    let used = amount(within());
    let of_pool = leaks.iter().filter(|leak| {
        lost(leak, network).is_some_and(|address| pool.first <= address && address <= pool.last)
    });
    Count {
        view: PoolView {
            network: network.name.clone(),
            subnet: pool.subnet,
            size: pool.size,
            in_use: number(Use::Live),
            pending_cleanup: number(Use::Pending),
            leak_candidate: number(Use::Candidate),
            leaked: number(Use::Leaked),
            free: pool.size.saturating_sub(used),
        },
        first: pool.first,
        last: pool.last,
        leaks: of_pool.copied().collect(),
        taken_at: within().map(|taken| taken.at).max().unwrap_or(Timestamp::ZERO),
        unsure: amount(within().filter(|taken| !taken.sure)),
    }
}

fn amount<'a>(all: impl Iterator<Item = &'a Taken>) -> u64 {
    u64::try_from(all.count()).unwrap_or(u64::MAX)
}

/// The addresses of a network that are given out, and to whom.
fn taken(world: &World, network: &Network, leaks: &[&Leak]) -> BTreeMap<IpAddr, Taken> {
    let mut all: BTreeMap<IpAddr, Taken> = BTreeMap::new();
    let mut take = |address: IpAddr, taken: Taken| {
        let known = all.entry(address).or_insert(taken);
        *known =
            Taken { by: known.by.min(taken.by), at: known.at.max(taken.at), sure: known.sure || taken.sure };
    };
    let leaked: BTreeMap<IpAddr, Use> = leaks
        .iter()
        .filter_map(|leak| {
            let by = if leak.is_confirmed() { Use::Leaked } else { Use::Candidate };
            Some((lost(leak, network)?, by))
        })
        .collect();
    let may_be_gone = world.is_gapped(List::Netns);
    for row in world.attachments.values().filter(|row| row.network.as_ref() == Some(&network.name)) {
        for lease in row.leases.iter().filter(|lease| is_taken(world, row, lease)) {
            let by = match world.sandboxes.get(&row.container) {
                Some(sandbox) if !sandbox.is_stopped() => Use::Live,
                _ if lease.kernel.is_some() => Use::Live,
                _ if world.records.kept(&row.container) == Kept::Yes => Use::Pending,
                // Who has it is not known: nothing says that it is leaked.
                _ => leaked.get(&lease.address).copied().unwrap_or(Use::Live),
            };
            let sure = !may_be_gone || !lease.stores.is_empty();
            take(lease.address, Taken { by, at: lease.since, sure });
        }
    }
    for (_, read) in world.records.stores.values() {
        if read.store.network.as_ref() == Some(&network.name) {
            for it in read.reservations.iter().filter(|it| it.holder.is_none()) {
                take(it.address, Taken { by: Use::Live, at: it.since, sure: true });
            }
        }
    }
    all
}

/// Where the store can be read it says what is given out; libcni's cache may be old.
fn is_taken(world: &World, row: &Attachment, lease: &Lease) -> bool {
    let has_store = || world.is_store_read(row, lease);
    lease.kernel.is_some() || !lease.stores.is_empty() || lease.cached && !has_store()
}

/// The address that a leak of this network is about.
fn lost(leak: &Leak, network: &Network) -> Option<IpAddr> {
    (leak.network() == Some(network.name.as_str())).then(|| leak.address())
}
