//! Reduces each whole reading of the records to what changed since the previous reading. Most readings change
//! nothing, and then the engine has almost nothing to do.
//!
//! **Invariant:** a consumer of all reduced readings knows what the whole readings say. A reading stays whole
//! if a difference cannot express it: the first one, one after or before an incomplete one, and one that
//! names an address or an attachment twice.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    mem,
    net::IpAddr,
};

use super::{
    CacheFound, Fact, List, Observation, PodName, Reservation, RuntimeChanged, RuntimeRead, RuntimeSandbox,
    Store, StoreChanged, StoreRead,
};
use crate::model::id::ContainerId;

/// The last reading of each record, from one source. The engine gets all readings of that source in order.
#[derive(Debug, Default)]
pub struct RecordsDiff {
    runtimes: BTreeMap<String, Runtime>,
    stores: BTreeMap<String, Reservations>,
    cache: Option<Cache>,
}

/// A runtime's records.
#[derive(Debug)]
struct Runtime {
    /// The reading without its sandboxes.
    head: RuntimeRead,
    sandboxes: BTreeMap<ContainerId, Option<PodName>>,
}

/// The contents of a store that was read whole and has each address once.
#[derive(Debug)]
struct Reservations {
    store: Store,
    /// Sorted by address. There may be tens of thousands, and a vector wastes no memory.
    all: Vec<Reservation>,
}

/// libcni's cache, read whole, with one result for each attachment.
#[derive(Debug, Default)]
struct Cache {
    found: BTreeMap<(ContainerId, String), CacheFound>,
    /// The paths of the files that cannot be read.
    unread: BTreeSet<String>,
}

impl RecordsDiff {
    /// Takes a batch with one or more whole lists, and returns the observations to report instead.
    #[must_use]
    pub fn reduce(&mut self, batch: Vec<Observation>) -> Vec<Observation> {
        let mut reduced = Vec::new();
        let mut list = Vec::new();
        for seen in batch {
            let ended = if let Fact::ListEnded { list, complete } = seen.fact {
                Some((list, complete))
            } else {
                None
            };
            list.push(seen);
            if let Some((which, complete)) = ended {
                reduced.extend(self.reduce_list(which, complete, mem::take(&mut list)));
            }
        }
        reduced.extend(list);
        reduced
    }

    fn reduce_list(&mut self, which: List, complete: bool, list: Vec<Observation>) -> Vec<Observation> {
        match which {
            List::CniCache => self.reduce_cache(complete, list),
            List::Ipam => {
                let mut before = mem::take(&mut self.stores);
                each(list, |fact| {
                    let Fact::StoreRead(read) = fact else { return fact };
                    self.store(before.remove(&read.store.path), read)
                })
            }
            List::Runtimes => {
                let mut before = mem::take(&mut self.runtimes);
                each(list, |fact| {
                    let Fact::RuntimeRead(read) = fact else { return fact };
                    self.runtime(before.remove(&read.place), read)
                })
            }
            List::Processes
            | List::Netns
            | List::Addresses
            | List::Cgroups
            | List::Containers
            | List::Pods => list,
        }
    }

    fn runtime(&mut self, before: Option<Runtime>, read: RuntimeRead) -> Fact {
        let sandboxes = read.sandboxes.iter().map(|it| (it.id.clone(), it.pod.clone())).collect();
        let RuntimeRead { place, kind, sandboxes: _, complete, unread } = &read;
        let place = place.clone();
        let head = RuntimeRead {
            place: place.clone(),
            kind: *kind,
            sandboxes: Vec::new(),
            complete: *complete,
            unread: *unread,
        };
        let now = Runtime { head, sandboxes };
        let fact = match before.filter(|before| before.head == now.head) {
            Some(before) => Fact::RuntimeChanged(before.changed(&now)),
            None => Fact::RuntimeRead(read),
        };
        self.runtimes.insert(place, now);
        fact
    }

    fn store(&mut self, before: Option<Reservations>, read: StoreRead) -> Fact {
        let Some(now) = Reservations::of(&read) else { return Fact::StoreRead(read) };
        let path = read.store.path.clone();
        let fact = match before.filter(|before| before.store == now.store) {
            Some(before) => Fact::StoreChanged(before.changed(&now)),
            None => Fact::StoreRead(read),
        };
        self.stores.insert(path, now);
        fact
    }

    fn reduce_cache(&mut self, complete: bool, list: Vec<Observation>) -> Vec<Observation> {
        let before = self.cache.take();
        if !complete {
            return list;
        }
        let Some(mut now) = Cache::of(&list) else { return list };
        let reduced = match before {
            Some(before) if before.unread.is_subset(&now.unread) => before.changed(&mut now, list),
            Some(_) | None => list,
        };
        self.cache = Some(now);
        reduced
    }
}

impl Runtime {
    fn changed(&self, now: &Self) -> RuntimeChanged {
        let came = now.sandboxes.iter().filter(|(id, pod)| self.sandboxes.get(id) != Some(pod));
        let gone = self.sandboxes.keys().filter(|id| !now.sandboxes.contains_key(id));
        RuntimeChanged {
            place: now.head.place.clone(),
            came: came.map(|(id, pod)| RuntimeSandbox { id: id.clone(), pod: pod.clone() }).collect(),
            gone: gone.cloned().collect(),
        }
    }
}

impl Reservations {
    /// `None`: the store was not read whole, or has an address twice.
    fn of(read: &StoreRead) -> Option<Self> {
        let mut all = read.reservations.clone();
        all.sort_unstable_by_key(|it| it.address);
        let is_once = all.is_sorted_by(|one, next| one.address < next.address);
        (read.complete && is_once).then(|| Self { store: read.store.clone(), all })
    }

    fn at(&self, address: IpAddr) -> Option<&Reservation> {
        let place = self.all.binary_search_by_key(&address, |it| it.address).ok()?;
        self.all.get(place)
    }

    fn changed(&self, now: &Self) -> StoreChanged {
        let came = now.all.iter().filter(|it| self.at(it.address) != Some(it));
        let gone = self.all.iter().map(|it| it.address).filter(|address| now.at(*address).is_none());
        StoreChanged { path: now.store.path.clone(), came: came.cloned().collect(), gone: gone.collect() }
    }
}

impl Cache {
    /// `None`: an attachment has two results.
    fn of(list: &[Observation]) -> Option<Self> {
        let mut cache = Self::default();
        for seen in list {
            if let Fact::CacheFound(found) = &seen.fact {
                let Entry::Vacant(place) = cache.found.entry(key(found)) else { return None };
                place.insert(found.clone());
            } else if let Fact::CacheUnread { path } = &seen.fact {
                cache.unread.insert(path.clone());
            }
        }
        Some(cache)
    }

    /// Returns what changed since. A result whose file cannot be read now is kept as it was.
    fn changed(mut self, now: &mut Self, list: Vec<Observation>) -> Vec<Observation> {
        let mut reduced = Vec::new();
        for seen in list {
            if let Fact::CacheFound(found) = &seen.fact
                && self.found.remove(&key(found)).as_ref() == Some(found)
            {
                continue;
            }
            if let Fact::ListBegun(_) = seen.fact {
                let mark = Observation { fact: Fact::CacheUnchanged, ..seen.clone() };
                reduced.extend([seen, mark]);
                continue;
            }
            if let Fact::ListEnded { .. } = seen.fact {
                for (key, found) in mem::take(&mut self.found) {
                    if now.unread.iter().any(|path| found.is_in(path)) {
                        now.found.insert(key, found);
                    } else {
                        let (container, ifname) = key;
                        let gone = Fact::CacheGone { container, ifname };
                        reduced.push(Observation { fact: gone, ..seen.clone() });
                    }
                }
            }
            reduced.push(seen);
        }
        reduced
    }
}

fn each(list: Vec<Observation>, mut reduce: impl FnMut(Fact) -> Fact) -> Vec<Observation> {
    list.into_iter().map(|seen| Observation { fact: reduce(seen.fact), ..seen }).collect()
}

fn key(found: &CacheFound) -> (ContainerId, String) {
    (found.container.clone(), found.ifname.clone())
}
