//! Reporting only the changes of the records has the same result as reporting whole readings.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use proptest::{collection, option, prelude::*};

use super::{fact::happened, pass, take};
use crate::{
    engine::{
        Engine, Settings,
        tests::story::{id, ms, pod_name},
        world::{
            CheckpointEntry,
            table::{presence::Voucher, record::Record},
        },
    },
    model::{
        fact::{
            Bound, CacheFound, Fact, Holder, List, Observation, Origin, RecordsDiff, Reservation,
            ReservationState, RuntimeRead, RuntimeSandbox, Store, StoreKind, StoreRead,
        },
        id::{ContainerId, Subnet},
        time::Timestamp,
    },
};

/// What the records say at one time. Sandboxes, addresses and interfaces are given by number.
#[derive(Clone, Debug)]
struct Reading {
    /// For each runtime: whether the reading is complete, and the sandboxes, some with pod names.
    runtimes: Vec<Option<(bool, BTreeMap<u8, bool>)>>,
    /// Whether the listing of the cache is complete, and the address of each interface; none: the file is
    /// torn.
    cache: (bool, BTreeMap<(u8, u8), Option<u8>>),
    /// For each store: whether the reading is complete, and the reservations.
    stores: Vec<Option<(bool, Vec<Reserved>)>>,
}

/// An address, and who has it, with or without the interface.
type Reserved = (u8, Option<(u8, bool)>);

fn mostly() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.9)
}

fn reading() -> impl Strategy<Value = Reading> {
    let sandboxes = collection::btree_map(0..4_u8, any::<bool>(), 0..4);
    let runtimes = collection::vec(option::weighted(0.9, (mostly(), sandboxes)), 2);
    let cache = collection::btree_map((0..4_u8, 0..2_u8), option::weighted(0.9, 0..4_u8), 0..5);
    let holder = option::weighted(0.9, (0..4_u8, mostly()));
    // A store is read in the order of its addresses.
    let reservations = collection::vec((0..4_u8, holder), 0..4).prop_map(|mut all| {
        all.sort_by_key(|(address, _)| *address);
        all
    });
    let stores = collection::vec(option::weighted(0.9, (mostly(), reservations)), 2);
    (runtimes, (mostly(), cache), stores).prop_map(|(runtimes, cache, stores)| Reading {
        runtimes,
        cache,
        stores,
    })
}

fn sandbox(number: u8) -> ContainerId {
    id(['a', 'b', 'c', 'd'][usize::from(number)])
}

fn address(number: u8) -> IpAddr {
    [10, 0, 0, number].into()
}

impl Reading {
    fn facts(&self) -> Vec<Fact> {
        let mut facts = Vec::new();
        let mut list = |list: List, complete: bool, found: Vec<Fact>| {
            facts.push(Fact::ListBegun(list));
            facts.extend(found);
            facts.push(Fact::ListEnded { list, complete });
        };
        let runtimes = self.runtimes.iter().enumerate().filter_map(|(number, it)| {
            let (complete, sandboxes) = it.as_ref()?;
            let named =
                |(id, named): (&u8, &bool)| RuntimeSandbox { id: sandbox(*id), pod: named.then(pod_name) };
            Some(Fact::RuntimeRead(RuntimeRead {
                place: format!("/run/{number}"),
                kind: None,
                sandboxes: sandboxes.iter().map(named).collect(),
                complete: *complete,
                unread: 0,
            }))
        });
        let is_whole = |complete: &Option<bool>| complete.is_none_or(|complete| complete);
        let of_runtimes: Vec<_> = self.runtimes.iter().map(|it| it.as_ref().map(|it| it.0)).collect();
        list(List::Runtimes, of_runtimes.iter().all(is_whole), runtimes.collect());
        let cached = self.cache.1.iter().map(|((container, interface), given)| {
            let (container, ifname) =
                (sandbox(*container), ["eth0", "lo"][usize::from(*interface)].to_owned());
            match given {
                Some(given) => Fact::CacheFound(CacheFound {
                    network: "net".to_owned(),
                    container,
                    ifname,
                    addresses: vec![Subnet { address: address(*given), prefix: 24 }],
                    netns: None,
                    args: Vec::new(),
                }),
                None => Fact::CacheUnread { path: format!("/var/lib/cni/results/net-{container}-{ifname}") },
            }
        });
        list(List::CniCache, self.cache.0, cached.collect());
        let stores = self.stores.iter().enumerate().filter_map(|(number, it)| {
            let (complete, reservations) = it.as_ref()?;
            let reservation = |(given, holder): &Reserved| Reservation {
                address: address(*given),
                holder: holder.map(|(container, has_ifname)| Holder {
                    container: sandbox(container),
                    ifname: if has_ifname { "eth0" } else { "" }.to_owned(),
                }),
                since: ms(1),
                in_words: false,
                pod: None,
                state: ReservationState::Held,
            };
            Some(Fact::StoreRead(StoreRead {
                store: Store {
                    kind: StoreKind::HostLocal,
                    path: format!("/var/lib/cni/networks/net{number}"),
                    network: Some("net".to_owned()),
                    bound: Bound::Sandbox,
                },
                reservations: reservations.iter().map(reservation).collect(),
                complete: *complete,
            }))
        });
        let of_stores: Vec<_> = self.stores.iter().map(|it| it.as_ref().map(|it| it.0)).collect();
        list(List::Ipam, of_stores.iter().all(is_whole), stores.collect());
        facts
    }
}

/// What is known, but for when each result in libcni's cache was last read, for the order of leases, and for
/// names that are only remembered for a moment after each reading.
fn known(engine: &Engine) -> Vec<CheckpointEntry> {
    let mut rows = engine.dump();
    rows.retain(|row| {
        let is_of_moment = matches!(
            row,
            CheckpointEntry::Engine(_)
                | CheckpointEntry::Timer { .. }
                | CheckpointEntry::Hint(_)
                | CheckpointEntry::Record { record: Record::CacheRead, .. }
        );
        !is_of_moment
    });
    for row in &mut rows {
        // When a record is reported, its confirmation of a sandbox is noted, and nothing is concluded from
        // it.
        if let CheckpointEntry::Sandbox(row) = row {
            row.presence.withdraw(Voucher::Cni);
        }
        if let CheckpointEntry::Attachment(row) = row {
            row.cached_at = row.cached_at.map(|_| Timestamp::ZERO);
            row.leases.sort_by_key(|lease| lease.address);
            // Without a name it is the first plugin that was called (`Attachment::plugin_of`), which a whole
            // reading names.
            row.leases.iter_mut().for_each(|lease| lease.plugin = None);
        }
    }
    rows
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changes_lead_to_what_whole_readings_lead_to(
        steps in collection::vec((collection::vec(happened(), 0..4), reading(), any::<bool>(), 0_u64..5), 1..12),
    ) {
        let [mut by_changes, mut by_readings] = [(); 2].map(|()| Engine::new(Settings::default()));
        // All of it takes less than a minute. After that rows of what is over go, a moment earlier or later.
        let mut diff = RecordsDiff::default();
        let mut now = ms(1);
        let mut before: Option<Reading> = None;
        for (kernel, read, is_unchanged, pause) in steps {
            let read = before.take().filter(|_| is_unchanged).unwrap_or(read);
            for fact in kernel {
                now = now + Duration::from_millis(1);
                let seen = Observation { at: now, origin: Origin::Kernel, fact };
                by_changes.observe(seen.clone());
                by_readings.observe(seen);
            }
            pass(&mut by_changes, now);
            pass(&mut by_readings, now);
            now = now + Duration::from_secs(pause);
            let whole = read.facts().into_iter().map(|fact| {
                now = now + Duration::from_millis(1);
                Observation { at: now, origin: Origin::Listed, fact }
            });
            let whole: Vec<_> = whole.collect();
            diff.reduce(whole.clone()).into_iter().for_each(|seen| by_changes.observe(seen));
            whole.into_iter().for_each(|seen| by_readings.observe(seen));
            pass(&mut by_changes, now);
            pass(&mut by_readings, now);
            prop_assert_eq!(take(&mut by_changes), take(&mut by_readings));
            let (one, other) = (known(&by_changes), known(&by_readings));
            let only = |rows: &[CheckpointEntry], others: &[CheckpointEntry]| {
                rows.iter().filter(|row| !others.contains(row)).cloned().collect::<Vec<_>>()
            };
            prop_assert_eq!(only(&one, &other), only(&other, &one));
            before = Some(read);
        }
    }
}
