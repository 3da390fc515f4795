//! The connections of one listener, and which one is closed to make room for a new one.
//!
//! An idle connection costs its client nothing, so with a plain limit any pod could lock out the kubelet's
//! probes. Instead, the connection that has been idle longest is closed for the new one. (tower's limits
//! count requests, make the new client wait, and know neither idle connections nor addresses.)
//!
//! A client that follows the events keeps its seat for as long as it likes, so there is a smaller limit for
//! such clients.
//!
//! **Invariant:** a client that connects and sends its request at once is answered, unless all seats have
//! clients that read their responses.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::oneshot, time::Instant};

/// A connection whose client reads nothing of its response for this long counts as idle.
const STALLED: Duration = Duration::from_secs(5);
/// The prefix length of IPv6 addresses that count as one client, because the owner of one such address has
/// the whole network.
const NETWORK_BITS: u32 = 64;

/// The limits on connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) total: usize,
    /// How many connections are reserved for the node itself: for the kubelet's probes and for commands.
    pub(super) reserved: usize,
    /// How many connections each other address may have.
    pub(super) per_address: usize,
    /// How many clients may follow the events.
    pub(super) followers: usize,
    /// How many followers one client may have. A client is an address, or the whole node itself, because each
    /// user of the node has all its loopback addresses.
    pub(super) followers_per_client: usize,
}

impl Limits {
    /// The limits for a connection that comes from no listener.
    pub(super) const ONE: Self =
        Self { total: 1, reserved: 0, per_address: 1, followers: 1, followers_per_client: 1 };
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// The address for the limit; `None` for the Unix socket.
    address: Option<IpAddr>,
    is_own: bool,
}

impl Origin {
    pub(super) const SOCKET: Self = Self { address: None, is_own: true };

    /// The origin of a connection from `peer` to the node's address `reached`. If both are the same, it comes
    /// from the node's own network.
    pub(super) fn new(peer: IpAddr, reached: IpAddr) -> Self {
        let peer = peer.to_canonical();
        let reached = reached.to_canonical();
        let is_own = peer.is_loopback() || peer == reached;
        let address = match peer {
            IpAddr::V6(peer) if !is_own => {
                IpAddr::V6((peer.to_bits() & (u128::MAX << (u128::BITS - NETWORK_BITS))).into())
            }
            peer => peer,
        };
        Self { address: Some(address), is_own }
    }

    fn is_same_client(self, other: Self) -> bool {
        self == other || self.is_own && other.is_own
    }
}

/// All connections of one listener.
#[derive(Debug)]
pub(super) struct Seats {
    limits: Limits,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    taken: BTreeMap<u64, Taken>,
    /// The number of connections of each address.
    addresses: BTreeMap<Option<IpAddr>, usize>,
}

#[derive(Debug)]
struct Taken {
    origin: Origin,
    is_answered: bool,
    /// Whether it follows the events.
    follows: bool,
    /// When it last became busy or idle, or when its client last read.
    since: Instant,
    /// Dropped with the seat, which closes the connection.
    _leave: oneshot::Sender<()>,
}

impl Seats {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, table: Mutex::default() })
    }

    /// Takes a seat for a new connection. Also returns a future that completes when the connection must
    /// close. `None` if no other connection can be closed.
    pub(super) fn take(self: &Arc<Self>, origin: Origin) -> Option<(Seat, oneshot::Receiver<()>)> {
        let (id, left) = self.table().take(self.limits, origin, Instant::now())?;
        Some((Seat { seats: Arc::clone(self), id }, left))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // No holder of the lock panics.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn take(&mut self, limits: Limits, origin: Origin, now: Instant) -> Option<(u64, oneshot::Receiver<()>)> {
        let Limits { total, reserved, per_address, .. } = limits;
        let others = self.taken.values().filter(|it| !it.origin.is_own).count();
        if !origin.is_own && self.count(origin) >= per_address {
            self.free(now, |it| it == origin)?;
        } else if !origin.is_own && others >= total.saturating_sub(reserved) {
            self.free(now, |it| !it.is_own)?;
        } else if self.taken.len() >= total {
            self.free(now, |_| true)?;
        }
        let (leave, left) = oneshot::channel();
        let id = self.next;
        self.next += 1;
        let taken = Taken { origin, is_answered: false, follows: false, since: now, _leave: leave };
        self.taken.insert(id, taken);
        *self.addresses.entry(origin.address).or_default() += 1;
        Some((id, left))
    }

    fn answers(&mut self, id: u64, is_answered: bool, now: Instant) {
        if let Some(taken) = self.taken.get_mut(&id) {
            taken.is_answered = is_answered;
            taken.since = now;
        }
    }

    fn has_taken(&mut self, id: u64, now: Instant) {
        if let Some(taken) = self.taken.get_mut(&id).filter(|it| it.is_answered) {
            taken.since = now;
        }
    }

    /// Lets this connection follow the events, if it may. Returns whether it may.
    fn follow(&mut self, id: u64, limits: Limits) -> bool {
        let Some(origin) = self.taken.get(&id).map(|it| it.origin) else { return false };
        let followers = self.taken.values().filter(|it| it.follows);
        let of_client = followers.clone().filter(|it| it.origin.is_same_client(origin)).count();
        if followers.count() >= limits.followers || of_client >= limits.followers_per_client {
            return false;
        }
        if let Some(taken) = self.taken.get_mut(&id) {
            taken.follows = true;
        }
        true
    }

    fn leave(&mut self, id: u64) {
        if let Some(taken) = self.taken.get_mut(&id) {
            taken.follows = false;
        }
    }

    fn count(&self, origin: Origin) -> usize {
        self.addresses.get(&origin.address).copied().unwrap_or(0)
    }

    /// Frees the seat of one of the connections that may go: first one that is not being answered, then one
    /// of the address with the most seats, then the one that has been idle longest.
    fn free(&mut self, now: Instant, may_go: impl Fn(Origin) -> bool) -> Option<()> {
        let idle = self.taken.iter().filter(|(_, it)| !it.is_answered || it.since + STALLED <= now);
        let candidates = idle.filter(|(_, it)| may_go(it.origin));
        let first =
            candidates.min_by_key(|(_, it)| (it.is_answered, Reverse(self.count(it.origin)), it.since));
        let id = *first?.0;
        self.remove(id);
        Some(())
    }

    fn remove(&mut self, id: u64) {
        let Some(Taken { origin, .. }) = self.taken.remove(&id) else { return };
        if let Some(count) = self.addresses.get_mut(&origin.address) {
            *count -= 1;
            if *count == 0 {
                self.addresses.remove(&origin.address);
            }
        }
    }
}

/// The seat of one connection, until this is dropped or another connection needs the seat more.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    id: u64,
}

impl Seat {
    /// Marks the connection as busy, for as long as the result lives.
    pub(super) fn answers(self: &Arc<Self>) -> Answering {
        self.seats.table().answers(self.id, true, Instant::now());
        Answering(Arc::clone(self))
    }

    /// Lets the client follow the events for as long as the result lives; `None` if too many do.
    pub(super) fn follow(self: &Arc<Self>) -> Option<Following> {
        let may = self.seats.table().follow(self.id, self.seats.limits);
        may.then(|| Following(Arc::clone(self)))
    }

    /// Records that the client has read a part of its response.
    pub(super) fn has_taken(&self) {
        self.seats.table().has_taken(self.id, Instant::now());
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.table().remove(self.id);
    }
}

/// Marks a connection as busy.
#[derive(Debug)]
pub(super) struct Answering(Arc<Seat>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.seats.table().answers(self.0.id, false, Instant::now());
    }
}

/// Marks a connection as one that follows the events.
#[derive(Debug)]
pub(super) struct Following(Arc<Seat>);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.seats.table().leave(self.0.id);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use tokio::{sync::oneshot, time::Instant};

    use super::{Limits, Origin, STALLED, Table};

    const LIMITS: Limits =
        Limits { total: 8, reserved: 2, per_address: 4, followers: 4, followers_per_client: 2 };
    const NODE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

    fn from(last: u8) -> Origin {
        Origin::new(Ipv4Addr::new(10, 0, 0, last).into(), NODE)
    }

    /// A table and a clock.
    struct Room(Table, Limits, Instant);

    /// A connection by its number, and whether it still has its seat.
    struct Client(u64, oneshot::Receiver<()>);

    impl Room {
        fn new(limits: Limits) -> Self {
            Self(Table::default(), limits, Instant::now())
        }

        /// Another client connects a while later.
        fn take(&mut self, last: u8) -> Option<Client> {
            self.2 += STALLED / 10;
            self.0.take(self.1, from(last), self.2).map(|(id, left)| Client(id, left))
        }

        fn taken(&mut self, last: u8) -> Client {
            self.take(last).expect("there is room, or somebody goes")
        }
    }

    impl Client {
        fn is_there(&mut self) -> bool {
            self.1.try_recv() == Err(oneshot::error::TryRecvError::Empty)
        }
    }

    fn there(clients: &mut [Client]) -> Vec<bool> {
        clients.iter_mut().map(Client::is_there).collect()
    }

    #[test]
    fn an_address_has_a_limit_and_its_idlest_connection_goes() {
        let mut room = Room::new(LIMITS);
        let mut other = room.taken(2);
        let mut clients: Vec<Client> = (0..6).map(|_| room.taken(3)).collect();
        assert_eq!(there(&mut clients), [false, false, true, true, true, true]);
        assert!(other.is_there(), "though it has been idle for longer");
    }

    #[test]
    fn others_leave_the_node_s_share_alone() {
        let mut room = Room::new(LIMITS);
        let mut own = [room.taken(1), room.taken(1)];
        let mut others: Vec<Client> = (2..=7).map(|last| room.taken(last)).collect();
        let mut last = room.taken(8);
        assert_eq!(there(&mut others), [false, true, true, true, true, true]);
        assert_eq!(there(&mut own), [true, true]);
        // A connection of the node itself goes first only if the node has more seats than any other address.
        let mut probe = room.taken(1);
        assert!(probe.is_there() && last.is_there());
        assert_eq!(there(&mut own), [false, true]);
    }

    #[test]
    fn a_client_that_is_answered_stays_unless_it_reads_nothing() {
        let mut room = Room::new(Limits { total: 2, reserved: 0, per_address: 2, ..LIMITS });
        let mut asking = room.taken(2);
        room.0.answers(asking.0, true, room.2);
        let mut silent = room.taken(3);
        let mut next = room.taken(4);
        assert!(asking.is_there() && !silent.is_there());
        room.0.answers(next.0, true, room.2);
        assert!(room.take(5).is_none(), "both are answered");
        room.2 += STALLED / 2;
        room.0.has_taken(asking.0, room.2);
        room.2 += STALLED / 2;
        let mut third = room.taken(5);
        assert!(asking.is_there() && !next.is_there() && third.is_there(), "one took nothing");
        // A call about a closed connection has no effect; the end of a response makes the seat idle.
        room.0.answers(next.0, false, room.2);
        room.2 += STALLED / 10;
        room.0.answers(asking.0, false, room.2);
        let mut fourth = room.taken(6);
        assert!(!third.is_there() && asking.is_there() && fourth.is_there(), "idle for longer");
    }

    #[test]
    fn one_of_many_goes_before_the_only_one() {
        let mut room = Room::new(Limits { total: 4, reserved: 0, per_address: 4, ..LIMITS });
        let mut only = room.taken(2);
        let mut many: Vec<Client> = (0..3).map(|_| room.taken(3)).collect();
        let mut probe = room.taken(4);
        assert!(only.is_there() && probe.is_there());
        assert_eq!(there(&mut many), [false, true, true]);
    }

    #[test]
    fn a_place_is_free_again() {
        let mut room = Room::new(Limits::ONE);
        for _ in 0..3 {
            let client = room.taken(2);
            room.0.answers(client.0, true, room.2);
            assert!(room.take(2).is_none());
            room.0.remove(client.0);
            assert!(room.0.addresses.is_empty() && room.0.taken.is_empty());
        }
    }

    #[test]
    fn followers_are_limited_for_each_client_and_for_all() {
        let mut room = Room::new(LIMITS);
        let mut follows = |last| {
            let client = room.taken(last);
            room.0.follow(client.0, LIMITS).then_some(client)
        };
        let clients = [follows(2), follows(2), follows(2), follows(3), follows(4), follows(5)];
        let may = clients.each_ref().map(Option::is_some);
        assert_eq!(may, [true, true, false, true, true, false]);
        // A client that leaves makes room, and so does one that is closed.
        let [first, ..] = clients.map(|it| it.map(|it| it.0));
        let first = first.expect("it follows");
        room.0.leave(first);
        let next = room.taken(5);
        assert!(room.0.follow(next.0, LIMITS));
        room.0.remove(next.0);
        let last = room.taken(6);
        assert!(room.0.follow(last.0, LIMITS) && !room.0.follow(next.0, LIMITS));
    }

    /// Each user of the node has all addresses of the node.
    #[test]
    fn all_clients_on_the_node_itself_follow_as_one() {
        let mut room = Room::new(LIMITS);
        let mut follows = |peer: IpAddr, reached: IpAddr| {
            let (id, left) = room.0.take(LIMITS, Origin::new(peer, reached), room.2).expect("there is room");
            room.0.follow(id, LIMITS).then_some(left)
        };
        let loopback = |last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
        let clients = [
            follows(loopback(2), loopback(1)),
            follows(NODE, NODE),
            follows(loopback(3), loopback(1)),
            follows(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9)), NODE),
        ];
        assert_eq!(clients.map(|it| it.is_some()), [true, true, false, true]);
    }

    #[test]
    fn addresses_of_one_network_of_version_6_are_one_and_the_node_s_own_are_known() {
        let of = |peer: &str, reached: &str| {
            Origin::new(peer.parse().expect("an address"), reached.parse().expect("an address"))
        };
        assert_eq!(of("fd00::1:2", "fd00::1"), of("fd00::ffff:3", "fd00::1"));
        assert_ne!(of("fd00:0:0:1::2", "fd00::1"), of("fd00::2", "fd00::1"));
        assert!(of("fd00::1", "fd00::1").is_own && of("::1", "::1").is_own);
        assert!(of("::ffff:127.0.0.9", "::ffff:127.0.0.1").is_own && !of("fd00::2", "fd00::1").is_own);
        assert_eq!(of("::ffff:10.0.0.2", "::ffff:10.0.0.1"), from(2));
    }
}
