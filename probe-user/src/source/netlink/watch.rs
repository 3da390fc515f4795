//! What is watched, and what is made of the notifications.

use std::{fs::File, io, mem, os::fd::AsFd as _, path::PathBuf, time::Duration};

use tokio::time::Instant;
use tracing::{debug, warn};

use super::{
    ROOM,
    ask::Asker,
    life::{Gone, Life, Lives, Watched},
    namespace,
    socket::{Listener, Received},
    waiting::{TOGETHER, Waiting},
    wire::{
        Nsid,
        answer::{self, Body, messages},
    },
};
use crate::{
    model::{
        fact::{Address, Fact, Loss, Observation, Origin, Task},
        id::NetnsKey,
        time::Timestamp,
    },
    source::{channel::Batch, clock},
};

#[derive(Debug)]
pub(super) struct Watch {
    asker: Asker,
    root: PathBuf,
    lives: Lives,
    out: Batch,
    resync: Option<Instant>,
    waiting: Waiting,
    /// What is read now was notified at this time at the earliest: all before it had been read.
    read_up_to: Timestamp,
    /// It was said that what was missed cannot be found out: it is tried again and again.
    warned: bool,
}

/// Datagrams read before the engine gets what they told.
const TURN: usize = 256;

/// More datagrams than can wait in the socket: the kernel doubles the room that it is asked for, and counts 768 bytes or
/// more for each.
const MOST_WAITING: usize = 2 * ROOM / 512;

/// After an overrun: until the flood that caused it is over, more or less, and not more often than this.
const RESYNC_AFTER: Duration = Duration::from_millis(500);

impl Watch {
    pub(super) fn new(mut asker: Asker, root: PathBuf) -> io::Result<Self> {
        let mut lives = Lives::default();
        lives.reset(&asker.nsids()?);
        Ok(Self {
            asker,
            root,
            lives,
            out: Batch::new(),
            resync: None,
            waiting: Waiting::default(),
            read_up_to: clock::now(),
            warned: false,
        })
    }

    /// All had been read, and it slept until now: what is to be read was notified just now.
    pub(super) fn woke(&mut self) {
        self.read_up_to = clock::now();
    }

    /// What there is to say.
    pub(super) fn take(&mut self) -> Batch {
        mem::take(&mut self.out)
    }

    pub(super) fn has_nothing_to_say(&self) -> bool {
        self.out.is_empty()
    }

    pub(super) fn resync_due(&self) -> Option<Instant> {
        self.resync
    }

    /// When to look for the namespaces that wait.
    pub(super) fn look_due(&self) -> Option<Instant> {
        self.waiting.due()
    }

    /// A namespace is to be watched: it is looked for with the next ones.
    pub(super) fn ask(&mut self, netns: NetnsKey, by: Task) {
        if !self.waiting.add(netns, by) {
            self.lost(clock::now(), Loss::NetlinkSocket);
        }
    }

    /// So many namespaces were to be watched and found no room on their way here.
    pub(super) fn refused(&mut self, count: u64) {
        if count > 0 {
            let fact = Fact::Lost { what: Loss::NetlinkSocket, count };
            self.out.push(Observation { at: clock::now(), origin: Origin::Netlink, fact });
        }
    }

    /// Reads what was notified; false if a turn was not enough.
    ///
    /// It is told with the earliest time at which it can have happened, so that what is read late is not taken for the
    /// doing of a namespace that got the same number meanwhile.
    pub(super) fn read(&mut self, listener: &mut Listener) -> io::Result<bool> {
        for _ in 0..TURN {
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
                Received::Overrun => {
                    self.lost(clock::now(), Loss::NetlinkSocket);
                    self.resync.get_or_insert_with(|| Instant::now() + RESYNC_AFTER);
                }
                Received::Nothing => {
                    self.read_up_to = now;
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Looks for the namespaces that wait, gives each an id, and lists the addresses that it has already. What goes wrong
    /// with one costs this one.
    pub(super) fn look(&mut self, listener: &mut Listener) {
        let begun = Instant::now();
        let asked = self.waiting.take();
        let wanted = asked.iter().map(|(netns, by)| (netns.inode, by));
        match namespace::open_all(&self.root, wanted) {
            Ok(found) => {
                for (netns, by) in asked {
                    let Some(open) = found.get(&netns.inode) else {
                        debug!(inode = netns.inode, "namespace to watch is not to be found");
                        continue;
                    };
                    if let Err(error) = self.begin(listener, netns, by, open) {
                        warn!(inode = netns.inode, %error, "namespace cannot be watched");
                    }
                }
            }
            Err(error) => warn!(%error, "namespaces to watch cannot be looked for"),
        }
        self.waiting.looked(begun);
    }

    fn begin(&mut self, listener: &mut Listener, netns: NetnsKey, by: Task, open: &File) -> io::Result<()> {
        let nsid = self.asker.name(open.as_fd())?;
        self.read_all(listener)?;
        match self.lives.watch(nsid, netns, by) {
            Watched::Begun => {}
            Watched::After(before) => self.dropped(self.read_up_to, &before),
            Watched::Again => return Ok(()),
        }
        self.list(nsid)
    }

    /// Finds out what was missed: which namespaces are gone, and which addresses the others have.
    pub(super) fn resync(&mut self, listener: &mut Listener) {
        self.resync = None;
        let found = self.try_resync(listener);
        if found.is_err() {
            self.resync = Some(Instant::now() + RESYNC_AFTER);
        }
        match found {
            Ok(()) => self.warned = false,
            Err(_) if self.warned => {}
            Err(error) => {
                self.warned = true;
                warn!(%error, "what was missed cannot be found out");
            }
        }
    }

    fn try_resync(&mut self, listener: &mut Listener) -> io::Result<()> {
        // What is still to be read was notified before the listing, so it counts as told by it.
        self.read_all(listener)?;
        let in_use = self.asker.nsids()?;
        let now = clock::now();
        for life in self.lives.reset(&in_use) {
            self.dropped(now, &life);
        }
        // A few at a time: each is a file that stays open for as long as it is asked about.
        for nsids in self.lives.nsids().chunks(TOGETHER) {
            let lives = |nsid: &Nsid| self.lives.get(*nsid).map(|life| (life.netns.inode, &life.by));
            let found = namespace::open_all(&self.root, nsids.iter().filter_map(lives))?;
            for nsid in nsids {
                let open = self.lives.get(*nsid).and_then(|life| found.get(&life.netns.inode));
                match open {
                    Some(open) if self.asker.name(open.as_fd())? == *nsid => self.list(*nsid)?,
                    // Held by something that is not to be found, or the id passed on meanwhile: a later listing tells.
                    Some(_) | None => {}
                }
            }
        }
        Ok(())
    }

    fn notified(&mut self, at: Timestamp, about: Option<Nsid>, body: Body) {
        match (about, body) {
            // Without an id it is about our own namespace, whose ids are those that count here.
            (None, Body::NsidNamed(nsid)) => self.lives.name(nsid),
            (None, Body::NsidGone(nsid)) => match self.lives.end(nsid) {
                // Meant for who had the id before the count began.
                Gone::Watched(life) if self.has_still(nsid, &life) => self.lives.keep(nsid, life),
                Gone::Watched(life) => self.dropped(at, &life),
                // Which the kernel's own word makes sure of, should a count ever be wrong.
                Gone::Earlier if self.asker.is_named(nsid).is_ok_and(|is_named| !is_named) => {
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

    /// Whether a namespace that is said to be gone is there, under the same id. Costly only where somebody has it.
    fn has_still(&mut self, nsid: Nsid, life: &Life) -> bool {
        if !self.asker.is_named(nsid).is_ok_and(|is_named| is_named) {
            return false;
        }
        let found = namespace::open(&self.root, life.netns.inode, &life.by);
        let id = found.and_then(|open| open.map_or(Ok(None), |open| self.asker.nsid(open.as_fd())));
        id.is_ok_and(|id| id == Some(nsid))
    }

    fn address_added(&mut self, at: Timestamp, nsid: Nsid, address: &answer::Address) {
        // One that is known was told already: its state or its lifetime changed.
        if self.lives.get_mut(nsid).is_none_or(|life| life.known.has(address.index, address.subnet)) {
            return;
        }
        let ifname = self.ifname(at, nsid, address);
        if let Some(life) = self.lives.get_mut(nsid) {
            life.known.add(address.index, address.subnet, ifname.clone());
            let fact = Fact::AddressAdded(told(life.netns, address, ifname));
            self.out.push(Observation { at, origin: Origin::Netlink, fact });
        }
    }

    fn address_removed(&mut self, at: Timestamp, nsid: Nsid, address: &answer::Address) {
        if let Some(life) = self.lives.get_mut(nsid) {
            let known = life.known.remove(address.index, address.subnet);
            let ifname = known.unwrap_or_else(|| labelled(address).to_owned());
            let fact = Fact::AddressRemoved(told(life.netns, address, ifname));
            self.out.push(Observation { at, origin: Origin::Netlink, fact });
        }
    }

    /// Tells the addresses that a namespace has and that are not told yet. Must be held open meanwhile.
    fn list(&mut self, nsid: Nsid) -> io::Result<()> {
        let found = self.asker.addresses(nsid)?;
        let at = clock::now();
        if let Some(life) = self.lives.get_mut(nsid) {
            life.known.retain(|index, subnet| found.contains_key(&(index, subnet)));
        }
        for address in found.values() {
            if self.lives.get_mut(nsid).is_none_or(|life| life.known.has(address.index, address.subnet)) {
                continue;
            }
            let ifname = self.ifname(at, nsid, address);
            if let Some(life) = self.lives.get_mut(nsid) {
                life.known.add(address.index, address.subnet, ifname.clone());
                let fact = Fact::AddressFound(told(life.netns, address, ifname));
                self.out.push(Observation { at, origin: Origin::Listed, fact });
            }
        }
        Ok(())
    }

    /// The name of the interface that `address` is on; by its label if that is all there is.
    fn ifname(&mut self, at: Timestamp, nsid: Nsid, address: &answer::Address) -> String {
        let life = self.lives.get_mut(nsid);
        if let Some(name) = life.and_then(|life| life.known.name(address.index, at)) {
            return name.to_owned();
        }
        let name = self.asker.ifname(nsid, address.index).unwrap_or_else(|error| {
            debug!(%error, index = address.index, "interface's name unreadable");
            None
        });
        let Some(name) = name else { return labelled(address).to_owned() };
        if let Some(life) = self.lives.get_mut(nsid) {
            life.known.set_name(address.index, at, &name);
        }
        name
    }

    /// Reads all that waits. What comes meanwhile may go on for ever: a pod can change its addresses without end.
    fn read_all(&mut self, listener: &mut Listener) -> io::Result<()> {
        for _ in 0..MOST_WAITING.div_ceil(TURN) {
            if self.read(listener)? {
                break;
            }
        }
        Ok(())
    }

    fn dropped(&mut self, at: Timestamp, life: &Life) {
        let fact = Fact::NetnsDropped { netns: life.netns, by: Task::default() };
        self.out.push(Observation { at, origin: Origin::Netlink, fact });
    }

    pub(super) fn lost(&mut self, at: Timestamp, what: Loss) {
        self.out.push(Observation { at, origin: Origin::Netlink, fact: Fact::Lost { what, count: 1 } });
    }
}

fn told(netns: NetnsKey, address: &answer::Address, ifname: String) -> Address {
    let answer::Address { subnet, index, scope, flags, .. } = *address;
    Address { netns, address: subnet, ifname, ifindex: index, flags, scope, by: Task::default() }
}

/// A label begins with the interface's name.
fn labelled(address: &answer::Address) -> &str {
    let label = address.label.as_deref().unwrap_or_default();
    label.split_once(':').map_or(label, |(name, _)| name)
}
