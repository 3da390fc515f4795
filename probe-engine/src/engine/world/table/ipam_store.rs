//! An IPAM store as it was last read.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use crate::model::fact::{Reservation, Store, StoreChanged, StoreRead};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct IpamStore {
    pub(crate) store: Store,
    /// Every entry's name was read.
    pub(crate) complete: bool,
    /// By address. A store may have an address twice: then the number counts up.
    reservations: BTreeMap<(IpAddr, u32), Reservation>,
    /// The keys of the reservations that name no holder.
    ownerless: BTreeSet<(IpAddr, u32)>,
    /// How many reservations do not say which interface has the address.
    without_ifname: usize,
}

impl IpamStore {
    pub(crate) fn of(read: StoreRead) -> Self {
        let StoreRead { store, reservations, complete } = read;
        let mut kept = Self {
            store,
            complete,
            reservations: BTreeMap::new(),
            ownerless: BTreeSet::new(),
            without_ifname: 0,
        };
        reservations.into_iter().for_each(|it| kept.add(it));
        kept
    }

    /// Whether a reading of the whole store says the same.
    pub(crate) fn says(&self, read: &StoreRead) -> bool {
        let mut all: Vec<&Reservation> = read.reservations.iter().collect();
        // Reservations of the same address stay in their order.
        all.sort_by_key(|it| it.address);
        self.store == read.store && self.complete == read.complete && self.reservations.values().eq(all)
    }

    pub(crate) fn reservations(&self) -> impl ExactSizeIterator<Item = &Reservation> {
        self.reservations.values()
    }

    /// The reservations that name no holder and that nobody reserved in words, by address.
    pub(crate) fn ownerless(&self) -> impl Iterator<Item = &Reservation> {
        self.ownerless.iter().filter_map(|key| self.reservations.get(key))
    }

    /// Whether every reservation says which interface has the address, as far as its holder is known at all.
    pub(crate) fn names_interfaces(&self) -> bool {
        self.without_ifname == 0
    }

    /// Returns the store as one reading of the whole would give it.
    pub(crate) fn to_reading(&self) -> StoreRead {
        StoreRead {
            store: self.store.clone(),
            reservations: self.reservations.values().cloned().collect(),
            complete: self.complete,
        }
    }

    /// Takes in what changed. Gives the reservations that are gone or replaced.
    pub(in crate::engine::world) fn change(&mut self, it: &StoreChanged) -> Vec<Reservation> {
        let addresses = it.came.iter().map(|it| &it.address).chain(&it.gone);
        let before = addresses.flat_map(|address| self.remove(*address)).collect();
        it.came.iter().cloned().for_each(|it| self.add(it));
        before
    }

    fn add(&mut self, it: Reservation) {
        self.without_ifname += usize::from(is_without_ifname(&it));
        let same = self.reservations.range((it.address, 0)..=(it.address, u32::MAX));
        let number = same.last().map_or(0, |((_, number), _)| number.saturating_add(1));
        let key = (it.address, number);
        if it.holder.is_none() && !it.in_words {
            self.ownerless.insert(key);
        }
        self.reservations.insert(key, it);
    }

    pub(in crate::engine::world) fn remove(&mut self, address: IpAddr) -> Vec<Reservation> {
        let same = self.reservations.range((address, 0)..=(address, u32::MAX));
        let keys: Vec<_> = same.map(|(key, _)| *key).collect();
        let gone: Vec<_> = keys.iter().filter_map(|key| self.reservations.remove(key)).collect();
        keys.iter().for_each(|key| _ = self.ownerless.remove(key));
        self.without_ifname -= gone.iter().filter(|it| is_without_ifname(it)).count();
        gone
    }
}

fn is_without_ifname(it: &Reservation) -> bool {
    it.holder.as_ref().is_some_and(|holder| holder.ifname.is_empty())
}
