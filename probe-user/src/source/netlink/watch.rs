//! The watched namespaces, and the events that notifications about them become.

use std::{collections::BTreeMap, fs::File, io, mem, os::fd::AsFd as _, path::PathBuf, time::Duration};

use tokio::time::Instant;
use tracing::{debug, warn};

use super::{
    ROOM,
    client::KernelClient,
    namespace::Search,
    nsid_table::{Gone, NsidTable, Watched, WatchedNetns},
    socket::{Listener, Received},
    waiting::{Asked, BATCH_SIZE, Waiting},
    wire::{
        Nsid,
        answer::{self, Body, messages},
    },
};
use crate::{
    model::{
        fact::{Address, Attached, Fact, Loss, Observation, Origin, Task},
        id::NetnsKey,
        time::Timestamp,
    },
    source::{node::clock, task::channel::Batch},
};

#[derive(Debug)]
pub(super) struct Watch {
    client: KernelClient,
    search: Search,
    lives: NsidTable,
    out: Batch,
    resync: Option<Instant>,
    waiting: Waiting,
    /// The earliest time of the notifications that are read now: all earlier ones were read.
    read_up_to: Timestamp,
    /// The failure to resync was logged. It is retried, so it is logged once.
    warned: bool,
}

/// The most datagrams that are read before the engine gets their events.
const MAX_PER_READ: usize = 256;

/// More datagrams than the socket can hold: the kernel doubles the requested size, and charges at least 768
/// bytes for each.
const MAX_DATAGRAMS: usize = 2 * ROOM / 512;

/// A namespace with more addresses is not listed as a whole: not all of its addresses may have been read.
const MAX_LISTED: usize = 256;

/// How long to wait after an overrun, so that the flood that caused it is mostly over; also the shortest time
/// between two resyncs.
const RESYNC_AFTER: Duration = Duration::from_millis(500);

impl Watch {
    pub(super) fn new(client: KernelClient, root: PathBuf) -> Self {
        Self {
            client,
            search: Search::new(root),
            lives: NsidTable::default(),
            out: Batch::new(),
            // Until the first resync it is unknown which ids are in use.
            resync: Some(Instant::now()),
            waiting: Waiting::default(),
            read_up_to: clock::now(),
            warned: false,
        }
    }

    /// Records a wakeup. All notifications had been read before the sleep, so the next ones are from now.
    pub(super) fn woke(&mut self) {
        self.read_up_to = clock::now();
    }

    /// Takes the observations so far.
    pub(super) fn take(&mut self) -> Batch {
        mem::take(&mut self.out)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    pub(super) fn resync_due(&self) -> Option<Instant> {
        self.resync
    }

    /// Returns when to search for the namespaces that wait.
    pub(super) fn search_due(&self) -> Option<Instant> {
        self.waiting.due()
    }

    /// Adds a namespace to watch. The next search finds it.
    pub(super) fn ask(&mut self, asked: Asked) {
        let netns = asked.netns;
        let unheard_since = asked.unheard_since;
        if !self.waiting.add(asked) {
            self.lost(clock::now(), Loss::NetlinkSocket);
            self.unwatched(netns, unheard_since);
        }
    }

    /// Reports that `count` requests to watch a namespace were refused on their way here.
    pub(super) fn refused(&mut self, count: u64) {
        if count > 0 {
            let fact = Fact::Lost { what: Loss::NetlinkSocket, count, since: None };
            self.out.push(Observation { at: clock::now(), origin: Origin::Netlink, fact });
        }
    }

    /// Reads notifications; false if more are left.
    ///
    /// Each is reported with the earliest time at which it can have happened, so that a late one is not
    /// attributed to a namespace that has reused the id.
    pub(super) fn read(&mut self, listener: &mut Listener) -> io::Result<bool> {
        for _ in 0..MAX_PER_READ {
            let now = clock::now();
            match listener.receive()? {
                Received::Datagram(datagram, nsid) => {
                    let at = self.read_up_to;
                    for message in messages(datagram) {
                        match message {
                            Ok(message) => self.notified(at, nsid, message.body),
                            Err(error) => {
                                debug!(%error, "netlink notification unreadable");
                                self.lost(at, Loss::Record);
                            }
                        }
                    }
                }
                Received::Overrun => self.missed(),
                Received::Nothing => {
                    self.read_up_to = now;
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Reports that notifications were lost. The next resync finds what they were about.
    pub(super) fn missed(&mut self) {
        self.lost(clock::now(), Loss::NetlinkSocket);
        self.resync.get_or_insert_with(|| Instant::now() + RESYNC_AFTER);
    }

    /// Reports how signals are seen from now on.
    pub(super) fn report(&mut self, attached: Vec<Attached>) {
        let at = clock::now();
        for it in attached {
            self.out.push(Observation { at, origin: Origin::Agent, fact: Fact::Attached(it) });
        }
    }

    /// Searches for the namespaces that wait, gives each an id, and lists the addresses that it already has.
    /// An error affects only its own namespace, and is reported: the engine may ask again.
    pub(super) fn search(&mut self, listener: &mut Listener) {
        let begun = Instant::now();
        let asked = self.waiting.take();
        let wanted = asked.iter().filter(|it| !it.is_over).map(|it| (it.netns.inode, &it.by));
        let found = self.search.open_all(wanted).unwrap_or_else(|error| {
            warn!(%error, "cannot search for namespaces to watch");
            BTreeMap::new()
        });
        for Asked { netns, by, unheard_since, is_over } in asked {
            let open = if is_over { None } else { found.get(&netns.inode) };
            let Some(open) = open else {
                debug!(inode = netns.inode, "namespace to watch not found");
                self.unwatched(netns, unheard_since);
                continue;
            };
            if let Err(error) = self.begin(listener, netns, by, open) {
                warn!(inode = netns.inode, %error, "namespace cannot be watched");
                self.unwatched(netns, unheard_since);
            }
        }
        self.waiting.searched(begun);
    }

    fn begin(&mut self, listener: &mut Listener, netns: NetnsKey, by: Task, open: &File) -> io::Result<()> {
        let nsid = self.client.name(open.as_fd())?;
        self.read_all(listener)?;
        match self.lives.watch(nsid, netns, by) {
            // If the engine asked again, the addresses may not have been listed.
            Watched::Begun | Watched::Again => {}
            Watched::After(before) => self.dropped(self.read_up_to, &before),
        }
        self.list(nsid)
    }

    /// Finds what was missed: which namespaces are gone, and which addresses the others have. Fails if
    /// notifications cannot be read; then it is still due.
    pub(super) fn resync(&mut self, listener: &mut Listener) -> io::Result<()> {
        // The waiting notifications are from before the listing, so the listing includes them.
        self.read_all(listener)?;
        self.resync = None;
        let found = self.try_resync();
        if found.is_err() {
            self.resync = Some(Instant::now() + RESYNC_AFTER);
        }
        match found {
            Ok(()) => self.warned = false,
            Err(_) if self.warned => {}
            Err(error) => {
                self.warned = true;
                warn!(%error, "cannot find what was missed");
            }
        }
        Ok(())
    }

    fn try_resync(&mut self) -> io::Result<()> {
        let in_use = self.client.nsids()?;
        let now = clock::now();
        for life in self.lives.reset(&in_use) {
            self.dropped(now, &life);
        }
        // Only a few are listed at a time, because each is an open file meanwhile.
        for nsids in self.lives.nsids().chunks(BATCH_SIZE) {
            let lives = nsids.iter().filter_map(|nsid| self.lives.get(*nsid));
            let found = self.search.open_all(lives.map(|life| (life.netns.inode, &life.by)))?;
            for nsid in nsids {
                let open = self.lives.get(*nsid).and_then(|life| found.get(&life.netns.inode));
                match open {
                    Some(open) if self.client.name(open.as_fd())? == *nsid => self.list(*nsid)?,
                    // It was not found, or the id has passed to another one. A later listing reports it.
                    Some(_) | None => {}
                }
            }
        }
        Ok(())
    }

    fn notified(&mut self, at: Timestamp, about: Option<Nsid>, body: Body) {
        match (about, body) {
            // A notification without an id is about our own namespace, whose table of ids counts here.
            (None, Body::NsidNamed(nsid)) => self.lives.name(nsid),
            (None, Body::NsidGone(nsid)) => match self.lives.end(nsid) {
                // The notification was about the namespace that had the id before the count began.
                Gone::Watched(life) if self.has_still(nsid, &life) => self.lives.keep(nsid, life),
                Gone::Watched(life) => self.dropped(at, &life),
                // The kernel is asked too, in case the count is wrong.
                Gone::Earlier if self.client.is_named(nsid).is_ok_and(|is_named| !is_named) => {
                    if let Some(life) = self.lives.clear(nsid) {
                        self.dropped(at, &life);
                    }
                }
                Gone::Earlier | Gone::NotWatched => {}
            },
            (Some(nsid), Body::AddressAdded(address)) => self.address_added(at, nsid, &address),
            (Some(nsid), Body::AddressRemoved(address)) => self.address_removed(at, nsid, &address),
            _ => {}
        }
    }

    /// Returns whether a namespace that was reported gone still exists under the same id. This is costly only
    /// if a namespace has that id.
    fn has_still(&mut self, nsid: Nsid, life: &WatchedNetns) -> bool {
        if !self.client.is_named(nsid).is_ok_and(|is_named| is_named) {
            return false;
        }
        match self.search.open(life.netns.inode, &life.by) {
            Ok(Some(open)) => self.client.nsid(open.as_fd()).is_ok_and(|id| id == Some(nsid)),
            Ok(None) | Err(_) => false,
        }
    }

    fn address_added(&mut self, at: Timestamp, nsid: Nsid, address: &answer::Address) {
        // A known address was already reported: only its state or lifetime changed.
        if self.lives.get_mut(nsid).is_none_or(|life| life.reported.has(address.index, address.subnet)) {
            return;
        }
        let ifname = self.ifname(at, nsid, address);
        if let Some(life) = self.lives.get_mut(nsid) {
            life.reported.add(address.index, address.subnet, ifname.clone());
            let fact = Fact::AddressAdded(reported(life.netns, address, ifname));
            self.out.push(Observation { at, origin: Origin::Netlink, fact });
        }
    }

    fn address_removed(&mut self, at: Timestamp, nsid: Nsid, address: &answer::Address) {
        if let Some(life) = self.lives.get_mut(nsid) {
            let known = life.reported.remove(address.index, address.subnet);
            let ifname = known.unwrap_or_else(|| labelled(address).to_owned());
            let fact = Fact::AddressRemoved(reported(life.netns, address, ifname));
            self.out.push(Observation { at, origin: Origin::Netlink, fact });
        }
    }

    /// Reports the addresses of a namespace that were not reported yet, then which ones it has. The caller
    /// holds the namespace open.
    fn list(&mut self, nsid: Nsid) -> io::Result<()> {
        let (found, is_steady) = self.client.addresses(nsid)?;
        let at = clock::now();
        if let Some(life) = self.lives.get_mut(nsid) {
            life.reported.retain(|index, subnet| found.contains_key(&(index, subnet)));
        }
        for address in found.values() {
            if self.lives.get_mut(nsid).is_none_or(|life| life.reported.has(address.index, address.subnet)) {
                continue;
            }
            let ifname = self.ifname(at, nsid, address);
            if let Some(life) = self.lives.get_mut(nsid) {
                life.reported.add(address.index, address.subnet, ifname.clone());
                let fact = Fact::AddressFound(reported(life.netns, address, ifname));
                self.out.push(Observation { at, origin: Origin::Listed, fact });
            }
        }
        if let Some(life) = self.lives.get_mut(nsid)
            && is_steady
            && found.len() <= MAX_LISTED
        {
            let present = found.values().map(|it| it.subnet.address).collect();
            let fact = Fact::AddressesListed { netns: life.netns, present };
            // Notifications that are read after this have this time, too. They may be newer than the list.
            self.out.push(Observation { at: self.read_up_to, origin: Origin::Listed, fact });
        }
        Ok(())
    }

    /// Returns the name of the interface of `address`; from the label if there is no other source.
    fn ifname(&mut self, at: Timestamp, nsid: Nsid, address: &answer::Address) -> String {
        let life = self.lives.get_mut(nsid);
        if let Some(name) = life.and_then(|life| life.reported.name(address.index, at)) {
            return name.to_owned();
        }
        let name = self.client.ifname(nsid, address.index).unwrap_or_else(|error| {
            debug!(%error, index = address.index, "interface's name unreadable");
            None
        });
        let Some(name) = name else { return labelled(address).to_owned() };
        if let Some(life) = self.lives.get_mut(nsid) {
            life.reported.set_name(address.index, at, &name);
        }
        name
    }

    /// Reads all waiting notifications, up to a limit, because a pod can change its addresses without end.
    fn read_all(&mut self, listener: &mut Listener) -> io::Result<()> {
        for _ in 0..MAX_DATAGRAMS.div_ceil(MAX_PER_READ) {
            if self.read(listener)? {
                break;
            }
        }
        Ok(())
    }

    fn dropped(&mut self, at: Timestamp, life: &WatchedNetns) {
        let fact = Fact::NetnsDropped { netns: life.netns, by: Task::default() };
        self.out.push(Observation { at, origin: Origin::Netlink, fact });
    }

    /// Reports that a namespace is not watched, although the engine asked for it.
    fn unwatched(&mut self, netns: NetnsKey, unheard_since: Option<Timestamp>) {
        let fact = Fact::NetnsUnwatched { netns, unheard_since };
        self.out.push(Observation { at: clock::now(), origin: Origin::Netlink, fact });
    }

    fn lost(&mut self, at: Timestamp, what: Loss) {
        self.out.push(Observation {
            at,
            origin: Origin::Netlink,
            fact: Fact::Lost { what, count: 1, since: None },
        });
    }
}

fn reported(netns: NetnsKey, address: &answer::Address, ifname: String) -> Address {
    let answer::Address { subnet, index, scope, flags, .. } = *address;
    Address { netns, address: subnet, ifname, ifindex: index, flags, scope, by: Task::default() }
}

/// Returns the name of the interface, with which a label begins.
fn labelled(address: &answer::Address) -> &str {
    let label = address.label.as_deref().unwrap_or_default();
    label.split_once(':').map_or(label, |(name, _)| name)
}
