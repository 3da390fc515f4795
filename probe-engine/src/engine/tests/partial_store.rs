//! Incomplete readings of a store: a record that such a reading does not show may still exist, or be gone.

use probe_common::event::class;

use super::story::{CONTAINERD, DAEMON, Story, Who, call, run::check_lines};
use crate::{
    engine::{Engine, world::CheckpointEntry},
    model::{
        fact::{
            Bound, CacheFound, Fact, Holder, List, Network, NetworksRead, NodeFolders, Pool, Reservation,
            ReservationState, RuntimeRead, RuntimeSandbox, Store, StoreKind, StoreRead,
        },
        id::{ContainerId, NetnsKey, Subnet},
        time::Timestamp,
    },
};

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;

fn sandbox(n: u8) -> ContainerId {
    ContainerId::parse(&format!("{n:064x}")).expect("an id")
}

fn key(n: u8) -> String {
    format!("leaked_address/podnet/10.1.0.{n}/{}", sandbox(n))
}

/// A node whose pool ends with this address.
fn node(last: u8) -> Story {
    let mut story = Story::new();
    story.at(6 * SECOND).found(DAEMON, CONTAINERD, "/system.slice/containerd.service", "/usr/bin/containerd");
    let address = |n: u8| [10, 1, 0, n].into();
    let pool = Pool {
        subnet: Subnet { address: address(0), prefix: 24 },
        first: address(2),
        last: address(last),
        size: u64::from(last) - 1,
    };
    story.listed(Fact::NetworksRead(NetworksRead {
        networks: vec![Network {
            name: "podnet".to_owned(),
            plugins: vec!["bridge".to_owned()],
            delegates: Vec::new(),
            ipam: Some("host-local".to_owned()),
            pools: vec![pool],
        }],
        complete: true,
        undecodable: Vec::new(),
        loading: None,
        written: None,
        folders: NodeFolders::default(),
    }));
    story
}

/// The runtime has these sandboxes on record.
fn runtime(story: &mut Story, at: u64, sandboxes: &[u8]) {
    let sandboxes = sandboxes.iter().map(|n| RuntimeSandbox { id: sandbox(*n), pod: None }).collect();
    let place = "/var/lib/containerd".to_owned();
    let read = RuntimeRead { place, kind: None, sandboxes, complete: true, unread: 0 };
    story.at(at).list(List::Runtimes, true, |story| {
        story.listed(Fact::RuntimeRead(read));
    });
}

/// A reading of the store that shows these addresses, without the holders of those in `torn`.
fn store(story: &mut Story, shown: &[u8], torn: &[u8], complete: bool) {
    let reservation = |n: &u8, holder| Reservation {
        address: [10, 1, 0, *n].into(),
        holder,
        since: Timestamp(1),
        in_words: false,
        pod: None,
        state: ReservationState::Held,
    };
    let holder = |n: &u8| Some(Holder { container: sandbox(*n), ifname: "eth0".to_owned() });
    let held = shown.iter().map(|n| reservation(n, holder(n)));
    let path = "/var/lib/cni/networks/podnet".to_owned();
    let read = StoreRead {
        store: Store {
            kind: StoreKind::HostLocal,
            path,
            network: Some("podnet".to_owned()),
            bound: Bound::Sandbox,
        },
        reservations: held.chain(torn.iter().map(|n| reservation(n, None))).collect(),
        complete,
    };
    story.list(List::Ipam, complete, |story| {
        story.listed(Fact::StoreRead(read));
    });
}

fn plugin(story: &mut Story, pid: u32, command: &str, n: u8) {
    let mut it = call(pid, CONTAINERD, "/usr/lib/cni/bridge", command, &format!("/run/netns/{n}"), 'a');
    it.variables.container_id = Some(sandbox(n).as_str().to_owned());
    story.kernel(Fact::CniCalled(it));
}

fn netns(n: u8) -> u32 {
    4_026_540_000 + u32::from(n)
}

fn pid(n: u8) -> u32 {
    1000 + 10 * u32::from(n)
}

fn comes(story: &mut Story, at: u64, n: u8) {
    let caller = Who::new(pid(n), CONTAINERD, "bridge");
    story.at(at).netns(DAEMON, netns(n), u64::from(n));
    plugin(story, pid(n), "ADD", n);
    story.address(caller, netns(n), &format!("10.1.0.{n}/24"), "eth0").exit(caller, class::CNI, 0);
    story.listed(Fact::NetnsFound {
        netns: NetnsKey::new(netns(n), u64::from(n)),
        mounts: vec![format!("/run/netns/{n}")],
        vacant: false,
    });
}

/// The sandbox's DEL succeeds, and its network namespace ends.
fn goes(story: &mut Story, at: u64, n: u8) {
    story.at(at);
    plugin(story, pid(n) + 1, "DEL", n);
    story.exit(Who::new(pid(n) + 1, CONTAINERD, "bridge"), class::CNI, 0);
    story.dropped(netns(n), u64::from(n)).freed(netns(n));
}

fn told(story: &Story, until: u64, kind: &str) -> (String, Engine) {
    let (told, engine) = story.judge(until);
    let lines: Vec<&str> = told.lines().filter(|line| line.contains(kind)).collect();
    (lines.join("\n"), engine)
}

/// Each reading catches the record of a pod that lives then.
fn pods_one_after_another() -> Story {
    let mut story = node(9);
    for n in 2..10 {
        let at = u64::from(n) * 10 * SECOND;
        comes(&mut story, at, n);
        runtime(&mut story, at + SECOND, &[n]);
        store(&mut story, &[n], &[], false);
        goes(&mut story, at + 2 * SECOND, n);
    }
    for minute in 2..6 {
        runtime(&mut story, minute * MINUTE, &[]);
        store(&mut story, &[], &[], false);
    }
    story
}

#[test]
fn pods_that_a_partial_reading_showed_once_leave_nothing() {
    let story = pods_one_after_another();
    assert_eq!(told(&story, 40 * MINUTE, "leaked_address").0, "");
    let (lines, engine) = told(&story, 40 * MINUTE, "pool_exhaustion");
    assert_eq!(lines, "");
    assert_eq!(engine.pools()[0].free, 8);
    let kept = engine.dump().into_iter().filter(|it| matches!(it, CheckpointEntry::Attachment(_))).count();
    assert_eq!(kept, 0, "each DEL succeeded, and no reading showed the record after it");
}

/// No DEL was seen, so the records may still exist, or somebody removed them.
#[test]
fn a_record_that_a_partial_reading_does_not_show_opens_nothing_and_fills_no_pool() {
    let mut story = node(5);
    runtime(&mut story, 10 * SECOND, &[2, 3, 4, 5]);
    store(&mut story, &[2, 3, 4, 5], &[], true);
    for minute in 1..6 {
        runtime(&mut story, minute * MINUTE, &[]);
        store(&mut story, &[], &[], false);
    }
    assert_eq!(told(&story, 10 * MINUTE, "leaked_address").0, "");
    // The pool was full as long as the reading was whole, and nothing shows that it is not any more.
    let (lines, engine) = told(&story, 10 * MINUTE, "pool_exhaustion");
    assert!(lines.contains("confirmed") && !lines.contains("closed"), "{lines}");
    assert_eq!(engine.pools()[0].free, 0);
}

#[test]
fn a_pool_that_partial_readings_alone_fill_is_not_full() {
    let mut story = node(5);
    for n in 2..6 {
        runtime(&mut story, u64::from(n) * 10 * SECOND, &[]);
        store(&mut story, &[n], &[], false);
    }
    assert_eq!(told(&story, 10 * MINUTE, "pool_exhaustion").0, "");
}

#[test]
fn what_a_partial_reading_shows_is_read_again() {
    let mut story = node(9);
    for at in [10 * SECOND, MINUTE, 3 * MINUTE] {
        runtime(&mut story, at, &[]);
        store(&mut story, &[2], &[], false);
    }
    let (lines, _) = told(&story, 5 * MINUTE, "leaked_address");
    assert!(lines.contains(&format!("finding.confirmed {}", key(2))), "{lines}");

    // It stays open while no reading shows more.
    runtime(&mut story, 6 * MINUTE, &[]);
    store(&mut story, &[], &[], false);
    let (lines, _) = told(&story, 40 * MINUTE, "leaked_address");
    assert!(!lines.contains("closed"), "{lines}");
    runtime(&mut story, 41 * MINUTE, &[]);
    store(&mut story, &[], &[], true);
    let (lines, _) = told(&story, 42 * MINUTE, "leaked_address");
    assert!(lines.contains(&format!("finding.closed {}", key(2))), "{lines}");
}

/// It is confirmed neither by a reading that does not show the record, nor by one that does not show the
/// holder.
#[test]
fn a_candidate_is_not_confirmed_by_a_reading_that_does_not_show_its_record() {
    for (torn, complete) in [(&[][..], false), (&[2][..], true), (&[2][..], false)] {
        let mut story = node(9);
        runtime(&mut story, 10 * SECOND, &[]);
        store(&mut story, &[2], &[], true);
        runtime(&mut story, MINUTE, &[]);
        store(&mut story, &[2], &[], true);
        for minute in 3..6 {
            runtime(&mut story, minute * MINUTE, &[]);
            store(&mut story, &[], torn, complete);
        }
        let (lines, _) = told(&story, 10 * MINUTE, "leaked_address");
        assert_eq!(lines.lines().count(), 1, "{torn:?} {complete} {lines}");
        assert!(lines.contains(&format!("finding.opened {}", key(2))), "{torn:?} {complete} {lines}");
        // The reading that shows it again confirms it.
        runtime(&mut story, 11 * MINUTE, &[]);
        store(&mut story, &[2], &[], false);
        let (lines, _) = told(&story, 12 * MINUTE, "leaked_address");
        assert!(lines.contains(&format!("finding.confirmed {}", key(2))), "{lines}");
    }
}

/// The store's content after a DEL counts more than the success of the DEL.
#[test]
fn a_record_that_was_shown_after_the_del_stays_in_doubt() {
    let mut story = node(9);
    comes(&mut story, 10 * SECOND, 2);
    goes(&mut story, 20 * SECOND, 2);
    for at in [30 * SECOND, MINUTE + 30 * SECOND, 4 * MINUTE] {
        runtime(&mut story, at, &[]);
        store(&mut story, &[2], &[], false);
    }
    for minute in 5..8 {
        runtime(&mut story, minute * MINUTE, &[]);
        store(&mut story, &[], &[], false);
    }
    let (lines, engine) = told(&story, 30 * MINUTE, "leaked_address");
    assert!(!lines.contains("closed"), "{lines}");
    assert!(lines.contains(&format!("finding.confirmed {}", key(2))), "{lines}");
    let mut restored = Engine::new(engine.settings().clone());
    engine.dump().into_iter().for_each(|entry| restored.restore(entry));
    assert_eq!(restored.dump(), engine.dump());
}

/// The runtime never called DEL, and the part of libcni's cache that was read does not show the result.
#[test]
fn a_partial_reading_of_libcnis_cache_confirms_only_what_it_shows() {
    let cache = |story: &mut Story, shown: bool, complete: bool| {
        story.list(List::CniCache, complete, |story| {
            if shown {
                story.listed(Fact::CacheFound(CacheFound {
                    network: "other".to_owned(),
                    container: sandbox(2),
                    ifname: "eth0".to_owned(),
                    addresses: vec![Subnet { address: [10, 1, 0, 2].into(), prefix: 24 }],
                    netns: None,
                    args: Vec::new(),
                }));
            }
        });
    };
    for shown in [true, false] {
        let mut story = node(9);
        comes(&mut story, 10 * SECOND, 2);
        runtime(&mut story, 11 * SECOND, &[2]);
        cache(&mut story, true, true);
        story.at(20 * SECOND).dropped(netns(2), 2).freed(netns(2));
        for at in [30 * SECOND, MINUTE + 30 * SECOND, 4 * MINUTE] {
            runtime(&mut story, at, &[]);
            cache(&mut story, shown, false);
        }
        let (lines, _) = told(&story, 10 * MINUTE, "leaked_address");
        let key = format!("leaked_address/other/10.1.0.2/{}", sandbox(2));
        assert_eq!(lines.contains(&format!("finding.confirmed {key}")), shown, "{lines}");
        if !shown {
            check_lines(&lines, "");
        }
    }
}
