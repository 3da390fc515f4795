//! Reduces each whole reading of the records to what changed since the previous reading. Most readings change
//! nothing, and then the engine has almost nothing to do.
//!
//! **Invariant:** a consumer of all reduced readings knows what the whole readings say. A reading stays whole
//! if a difference cannot express it: the first one, one after or before an incomplete one, and one that
//! names an address or an attachment twice.

use std::{
    collections::{BTreeMap, BTreeSet},
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
    /// The results of each container, which has few.
    found: BTreeMap<ContainerId, Vec<Cached>>,
    /// The paths of the files that cannot be read.
    unread: BTreeSet<String>,
    /// Changes with each reading.
    reading: bool,
}

#[derive(Debug)]
struct Cached {
    found: CacheFound,
    /// The last reading that has it.
    reading: bool,
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
        let place = read.place.clone();
        let (now, fact) = match before.filter(|before| before.is_comparable(&read)) {
            Some(before) => {
                let now = Runtime::of(read);
                let changed = before.changed(&now);
                (now, Fact::RuntimeChanged(changed))
            }
            None => (Runtime::of(read.clone()), Fact::RuntimeRead(read)),
        };
        self.runtimes.insert(place, now);
        fact
    }

    fn store(&mut self, before: Option<Reservations>, read: StoreRead) -> Fact {
        let path = read.store.path.clone();
        let before = before.filter(|before| before.store == read.store && read.complete);
        let (now, fact) = match before {
            Some(before) => match Reservations::of(read) {
                Ok(now) => {
                    let changed = before.changed(&now);
                    (now, Fact::StoreChanged(changed))
                }
                Err(read) => return Fact::StoreRead(read),
            },
            None => match Reservations::of(read.clone()) {
                Ok(now) => (now, Fact::StoreRead(read)),
                Err(_sorted) => return Fact::StoreRead(read),
            },
        };
        self.stores.insert(path, now);
        fact
    }

    fn reduce_cache(&mut self, complete: bool, list: Vec<Observation>) -> Vec<Observation> {
        let before = self.cache.take();
        if !complete || has_twice(&list) {
            return list;
        }
        let mut unread = BTreeSet::new();
        for seen in &list {
            if let Fact::CacheUnread { path } = &seen.fact {
                unread.insert(path.clone());
            }
        }
        let (mut cache, is_reduced) = match before {
            Some(before) if before.unread.is_subset(&unread) => (before, true),
            Some(_) | None => (Cache::default(), false),
        };
        cache.unread = unread;
        cache.reading = !cache.reading;
        let reduced = if is_reduced { cache.reduce(list) } else { cache.fill(list) };
        self.cache = Some(cache);
        reduced
    }
}

impl Runtime {
    fn of(read: RuntimeRead) -> Self {
        let sandboxes = read.sandboxes.into_iter().map(|it| (it.id, it.pod)).collect();
        Self { head: RuntimeRead { sandboxes: Vec::new(), ..read }, sandboxes }
    }

    /// Whether this reading differs in its sandboxes only.
    fn is_comparable(&self, read: &RuntimeRead) -> bool {
        let RuntimeRead { place, kind, sandboxes: _, complete, unread } = read;
        let head = &self.head;
        (&head.place, &head.kind, &head.complete, &head.unread) == (place, kind, complete, unread)
    }

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
    /// Gives the reading back if it is not whole, or has an address twice.
    fn of(read: StoreRead) -> Result<Self, StoreRead> {
        let StoreRead { store, reservations: mut all, complete } = read;
        all.sort_unstable_by_key(|it| it.address);
        let is_once = all.is_sorted_by(|one, next| one.address < next.address);
        if complete && is_once {
            Ok(Self { store, all })
        } else {
            Err(StoreRead { store, reservations: all, complete })
        }
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
    /// Takes in the first reading.
    fn fill(&mut self, list: Vec<Observation>) -> Vec<Observation> {
        for seen in &list {
            if let Fact::CacheFound(found) = &seen.fact {
                self.take(found);
            }
        }
        list
    }

    /// Notes that this reading has the result. Returns whether it is as it was.
    fn take(&mut self, found: &CacheFound) -> bool {
        let reading = self.reading;
        let Some(all) = self.found.get_mut(&found.container) else {
            let cached = Cached { found: found.clone(), reading };
            self.found.insert(found.container.clone(), vec![cached]);
            return false;
        };
        let Some(known) = all.iter_mut().find(|it| it.found.ifname == found.ifname) else {
            all.push(Cached { found: found.clone(), reading });
            return false;
        };
        known.reading = reading;
        let is_same = known.found == *found;
        if !is_same {
            known.found = found.clone();
        }
        is_same
    }

    /// Takes in a further reading, and returns what changed. A result whose file cannot be read now is kept
    /// as it was.
    fn reduce(&mut self, list: Vec<Observation>) -> Vec<Observation> {
        let mut reduced = Vec::new();
        for seen in list {
            if let Fact::CacheFound(found) = &seen.fact
                && self.take(found)
            {
                continue;
            }
            if let Fact::ListBegun(_) = seen.fact {
                let mark = Observation { fact: Fact::CacheUnchanged, ..seen.clone() };
                reduced.extend([seen, mark]);
                continue;
            }
            if let Fact::ListEnded { .. } = seen.fact {
                for CacheFound { container, ifname, .. } in self.forget_missing() {
                    let gone = Fact::CacheGone { container, ifname };
                    reduced.push(Observation { fact: gone, ..seen.clone() });
                }
            }
            reduced.push(seen);
        }
        reduced
    }

    /// Takes out the results that this reading does not have.
    fn forget_missing(&mut self) -> Vec<CacheFound> {
        let Self { found, unread, reading } = self;
        let mut missing = Vec::new();
        found.retain(|_, all| {
            missing.extend(all.extract_if(.., |it| {
                it.reading != *reading && !unread.iter().any(|path| it.found.is_in(path))
            }));
            all.iter_mut().for_each(|it| it.reading = *reading);
            !all.is_empty()
        });
        missing.sort_by(|one, other| key(&one.found).cmp(&key(&other.found)));
        missing.into_iter().map(|it| it.found).collect()
    }
}

/// Whether a list has two results of one attachment.
fn has_twice(list: &[Observation]) -> bool {
    let mut keys = Vec::new();
    for seen in list {
        if let Fact::CacheFound(found) = &seen.fact {
            keys.push(key(found));
        }
    }
    keys.sort_unstable();
    keys.windows(2).any(|pair| matches!(pair, [one, next] if one == next))
}

fn each(list: Vec<Observation>, mut reduce: impl FnMut(Fact) -> Fact) -> Vec<Observation> {
    list.into_iter().map(|seen| Observation { fact: reduce(seen.fact), ..seen }).collect()
}

fn key(found: &CacheFound) -> (&ContainerId, &str) {
    (&found.container, &found.ifname)
}
