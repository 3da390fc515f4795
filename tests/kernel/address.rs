//! IPv4 and IPv6 addresses are added and removed on an interface of a network namespace.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use probe_user::model::{
    fact::{Address, Fact, Observation, Origin, Signal, Task},
    id::NetnsKey,
};
use tests::{
    guard::{
        address::{AddressGuard, Prefix},
        netns::MountedNetns,
    },
    live::{Shared, check_no_loss},
    machine, skipped,
};

/// The number of addresses on a machine that is not emulated. Half of them are IPv4.
const COUNT: usize = 100;

#[test]
fn each_address_is_reported_once_with_its_prefix_and_interface() -> Result<()> {
    skipped::retry(|attempt| each_address_is_reported(machine::share_of(COUNT) >> attempt))
}

fn each_address_is_reported(count: usize) -> Result<()> {
    let mut live = Shared::start()?;
    let netns = MountedNetns::create()?;
    let (key, by) = live.until("the namespace", |seen| created(seen, netns.inode()))?;
    live.watch(key, &by);
    // Where rtnetlink reports addresses, it lists those that exist when it begins to watch the namespace.
    let first = [Prefix { address: "192.0.2.1".parse()?, length: 32 }];
    let guard = AddressGuard::add(&netns, "lo", &first)?;
    live.until("the first address", |seen| seen.iter().find(|one| added(one).is_some()).map(drop))?;
    guard.end()?;

    let prefixes = prefixes(count)?;
    let guard = AddressGuard::add(&netns, "lo", &prefixes)?;
    guard.end()?;
    // Deleting the namespace deletes its addresses without a message of rtnetlink. The hooks see each removal
    // first.
    live.until("the last removal", |seen| {
        let removed = seen.iter().filter(|one| matches!(&one.fact, Fact::AddressRemoved(_)));
        (removed.count() > prefixes.len()).then_some(())
    })?;
    let by_netlink = live.mechanism(Signal::AddressV4).is_none();
    let seen = live.settled()?;
    check_no_loss(&seen)?;

    let expected: BTreeSet<Prefix> = prefixes.iter().copied().chain(first).collect();
    let of_ours = |one: &&Observation| address(one).is_some_and(|address| address.netns == key);
    let ours: Vec<_> = seen.iter().filter(of_ours).collect();
    let of = |is: fn(&Fact) -> bool| -> Vec<Prefix> {
        let mut found: Vec<_> =
            ours.iter().filter(|one| is(&one.fact)).filter_map(|one| prefix(one)).collect();
        found.sort();
        found
    };
    let all: Vec<_> = expected.into_iter().collect();
    ensure!(of(|fact| matches!(fact, Fact::AddressAdded(_) | Fact::AddressFound(_))) == all, "{ours:#?}");
    ensure!(of(|fact| matches!(fact, Fact::AddressRemoved(_))) == all, "{ours:#?}");
    for one in ours {
        let address = address(one).context("filtered by it")?;
        ensure!(address.ifname == "lo" && address.ifindex == 1, "{one:?}");
        let reported_by_netlink = matches!(one.origin, Origin::Netlink | Origin::Listed);
        ensure!(reported_by_netlink == by_netlink, "{one:?}");
    }
    Ok(())
}

fn prefixes(count: usize) -> Result<Vec<Prefix>> {
    (0..count)
        .map(|i| {
            let low = i / 2 + 1;
            let (address, length) =
                if i % 2 == 0 { (format!("10.9.8.{low}"), 32) } else { (format!("fd00::9:8:{low:x}"), 128) };
            Ok(Prefix { address: address.parse()?, length })
        })
        .collect()
}

fn created(seen: &[Observation], inode: u32) -> Option<(NetnsKey, Task)> {
    seen.iter().rev().find_map(|one| match &one.fact {
        Fact::NetnsCreated { netns, by, .. } if netns.inode == inode => Some((*netns, by.clone())),
        _ => None,
    })
}

fn added(seen: &Observation) -> Option<&Address> {
    match &seen.fact {
        Fact::AddressAdded(address) | Fact::AddressFound(address) => Some(address),
        _ => None,
    }
}

fn address(seen: &Observation) -> Option<&Address> {
    match &seen.fact {
        Fact::AddressRemoved(address) => Some(address),
        _ => added(seen),
    }
}

fn prefix(seen: &Observation) -> Option<Prefix> {
    address(seen).map(|one| Prefix { address: one.address.address, length: one.address.prefix })
}
