//! Pools of addresses: who has the addresses, and when none is free.

use probe_common::event::class;

use super::story::{CONTAINERD, DAEMON, Story, Who, call, ms, run::check_lines};
use crate::{
    engine::{Engine, view::PoolView},
    model::{
        change::Finding,
        fact::{
            Bound, Fact, Holder, List, Network, NetworksRead, NodeFolders, Pool, Reservation,
            ReservationState, RuntimeRead, RuntimeSandbox, Store, StoreKind, StoreRead,
        },
        finding::{Explain as _, Kind, PoolExhaustion, Severity},
        id::{ContainerId, NetnsKey, Subnet},
        time::Timestamp,
    },
};

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const KEY: &str = "pool_exhaustion/podnet/10.1.0.2-10.1.0.254";
const SMALL: &str = "pool_exhaustion/podnet/10.1.0.2-10.1.0.5";

fn sandbox(n: u8) -> ContainerId {
    ContainerId::parse(&format!("{n:064x}")).expect("an id")
}

/// A network whose pool ends with this address.
fn networks(story: &mut Story, last: u8, more: &[Pool]) {
    let pool = pool("10.1.0", last);
    let networks = vec![Network {
        name: "podnet".to_owned(),
        plugins: vec!["bridge".to_owned()],
        delegates: Vec::new(),
        ipam: Some("host-local".to_owned()),
        pools: [pool].iter().chain(more).copied().collect(),
    }];
    story.listed(Fact::NetworksRead(NetworksRead {
        networks,
        complete: true,
        undecodable: Vec::new(),
        loading: None,
        written: None,
        folders: NodeFolders::default(),
    }));
}

fn pool(net: &str, last: u8) -> Pool {
    let address = |n: u8| format!("{net}.{n}").parse().expect("an address");
    Pool {
        subnet: Subnet { address: address(0), prefix: 24 },
        first: address(2),
        last: address(last),
        size: u64::from(last) - 1,
    }
}

/// The records of the store and of the runtime. Each address is given by its last part.
fn records(story: &mut Story, at: u64, store: &[u8], runtime: &[u8]) {
    records_since(story, at, store, runtime, Timestamp::ZERO);
}

fn records_since(story: &mut Story, at: u64, store: &[u8], runtime: &[u8], since: Timestamp) {
    let sandboxes = runtime.iter().map(|n| RuntimeSandbox { id: sandbox(*n), pod: None }).collect();
    let place = "/var/lib/containerd".to_owned();
    story.at(at).list(List::Runtimes, true, |story| {
        story.listed(Fact::RuntimeRead(RuntimeRead {
            place,
            kind: None,
            sandboxes,
            complete: true,
            unread: 0,
        }));
    });
    read_store(story, store.iter().map(|n| held(*n, sandbox(*n), since)).collect());
}

fn held(n: u8, container: ContainerId, since: Timestamp) -> Reservation {
    Reservation {
        address: [10, 1, 0, n].into(),
        holder: Some(Holder { container, ifname: "eth0".to_owned() }),
        since,
        in_words: false,
        pod: None,
        state: ReservationState::Held,
    }
}

fn read_store(story: &mut Story, reservations: Vec<Reservation>) {
    let path = "/var/lib/cni/networks/podnet".to_owned();
    let read = StoreRead {
        store: Store {
            kind: StoreKind::HostLocal,
            path,
            network: Some("podnet".to_owned()),
            bound: Bound::Sandbox,
        },
        reservations,
        complete: true,
    };
    story.list(List::Ipam, true, |story| {
        story.listed(Fact::StoreRead(read));
    });
}

fn node(last: u8) -> Story {
    let mut story = Story::new();
    story.at(6 * SECOND).found(DAEMON, CONTAINERD, "/system.slice/containerd.service", "/usr/bin/containerd");
    networks(&mut story, last, &[]);
    story
}

/// A sandbox whose only DEL names no namespace.
fn comes_and_goes(story: &mut Story, at: u64, n: u8) {
    let pid = 1000 + 10 * u32::from(n);
    let path = format!("/run/netns/{n}");
    let one = |pid: u32, command: &str, path: &str| {
        let mut it = call(pid, CONTAINERD, "/usr/lib/cni/bridge", command, path, 'a');
        it.variables.container_id = Some(sandbox(n).as_str().to_owned());
        it
    };
    let plugin = |pid: u32| Who::new(pid, CONTAINERD, "bridge");
    let netns = 4_026_540_000 + u32::from(n);
    story.at(at).netns(DAEMON, netns, u64::from(n)).kernel(Fact::CniCalled(one(pid, "ADD", &path)));
    story.address(plugin(pid), netns, &format!("10.1.0.{n}/24"), "eth0").exit(plugin(pid), class::CNI, 0);
    story.listed(Fact::NetnsFound {
        netns: NetnsKey::new(netns, u64::from(n)),
        mounts: vec![path],
        vacant: false,
    });
    story.dropped(netns, u64::from(n)).freed(netns);
    story.kernel(Fact::CniCalled(one(pid + 1, "DEL", ""))).exit(plugin(pid + 1), class::CNI, 0);
}

fn told(story: &Story, until: u64) -> (String, Engine) {
    let (told, engine) = story.judge(until);
    let lines: Vec<&str> = told.lines().filter(|line| line.contains("pool_exhaustion")).collect();
    (lines.join("\n"), engine)
}

fn exhaustion(engine: &Engine, key: &str) -> (Severity, PoolExhaustion) {
    let finding = engine.findings().find(|it| it.key.as_str() == key).expect("the finding");
    let Kind::PoolExhaustion(it) = finding.kind.clone() else { panic!("another kind") };
    (finding.severity, it)
}

#[test]
fn a_pool_without_a_free_address_is_critical_after_a_moment() {
    let mut story = node(5);
    // The runtime has all of them on record.
    records(&mut story, 10 * SECOND, &[2, 3, 4, 5], &[2, 3, 4, 5]);
    story.at(50 * SECOND).moment();
    let (lines, engine) = told(&story, MINUTE);
    check_lines(
        &lines,
        &format!("10100 finding.opened {SMALL} Agent\n30000 finding.confirmed {SMALL} Agent"),
    );
    let (severity, it) = exhaustion(&engine, SMALL);
    assert_eq!((severity, it.size, it.used, it.leaked, it.free), (Severity::Critical, 4, 4, 0, 0));
    let view = engine.pools();
    let PoolView { in_use, pending_cleanup, leaked, free, .. } = view[0];
    assert_eq!((in_use, pending_cleanup, leaked, free), (0, 4, 0, 0));
    // One address is given back.
    records(&mut story, MINUTE, &[2, 3, 4], &[2, 3, 4]);
    let (lines, _) = told(&story, 2 * MINUTE);
    assert!(lines.ends_with(&format!("finding.closed {SMALL} Agent")), "{lines}");
}

/// Returns the engine that saw four addresses of which none is free. Files of `nameless` name no sandbox; the
/// runtime has these sandboxes on record.
fn full(nameless: &[u8], runtime: &[u8]) -> Engine {
    let mut story = node(5);
    for at in [10 * SECOND, 5 * MINUTE] {
        records(&mut story, at, &[], runtime);
        let reservations = (2..=5).map(|n| {
            let it = held(n, sandbox(n), Timestamp::ZERO);
            if nameless.contains(&n) { Reservation { holder: None, ..it } } else { it }
        });
        read_store(&mut story, reservations.collect());
    }
    told(&story, 6 * MINUTE).1
}

fn repair(it: &PoolExhaustion) -> String {
    it.repair(&[], &[]).join("\n")
}

#[test]
fn the_repair_of_a_pool_that_leaks_frees_what_leaked() {
    let (_, it) = exhaustion(&full(&[5], &[2, 3]), SMALL);
    assert_eq!((it.used, it.ownerless, it.leaked, it.free), (3, 1, 1, 0));
    assert!(it.cause().contains("some have leaked"), "{}", it.cause());
    assert!(repair(&it).contains("frees the leaked addresses"), "{}", repair(&it));
    assert!(repair(&it).ends_with("sandprobe leaks --repair-script > free.sh"), "{}", repair(&it));
}

#[test]
fn the_repair_of_a_pool_that_ownerless_files_fill_frees_these() {
    let (_, it) = exhaustion(&full(&[4, 5], &[2, 3]), SMALL);
    assert_eq!((it.used, it.ownerless, it.leaked, it.free), (4, 2, 0, 0));
    assert!(it.cause().contains("names no sandbox"), "{}", it.cause());
    assert!(
        repair(&it).starts_with("# 2 of the addresses have a file that names no sandbox."),
        "{}",
        repair(&it)
    );
    assert!(repair(&it).ends_with("sandprobe leaks --repair-script > free.sh"), "{}", repair(&it));
}

#[test]
fn the_repair_of_a_pool_without_leaks_is_fewer_pods_or_a_larger_range() {
    let (_, it) = exhaustion(&full(&[], &[2, 3, 4, 5]), SMALL);
    assert_eq!((it.used, it.ownerless, it.leaked, it.free), (4, 0, 0, 0));
    assert!(it.cause().contains("none of them is known to have leaked"), "{}", it.cause());
    assert!(repair(&it).contains("4 addresses, and those of the network"), "{}", repair(&it));
    assert!(!repair(&it).contains("--repair-script"), "{}", repair(&it));
    // One leak of many addresses does not explain why none is free.
    for (leaked, is_few) in [(63, true), (64, false)] {
        let it = PoolExhaustion { size: 254, leaked, ..it.clone() };
        assert!(repair(&it).contains("--repair-script"), "{}", repair(&it));
        assert_eq!(repair(&it).contains("maxPods"), is_few, "{}", repair(&it));
    }
}

#[test]
fn the_cause_of_a_warning_does_not_say_that_add_fails() {
    let mut story = node(21);
    let most: Vec<u8> = (2..=20).collect();
    for at in [10 * SECOND, 5 * MINUTE] {
        records(&mut story, at, &most, &most[1..]);
    }
    let (severity, it) = exhaustion(&told(&story, 6 * MINUTE).1, "pool_exhaustion/podnet/10.1.0.2-10.1.0.21");
    assert_eq!((severity, it.free, it.leaked), (Severity::Warning, 1, 1));
    assert!(it.cause().contains("ADD succeeds"), "{}", it.cause());
}

#[test]
fn a_pool_with_one_free_address_and_no_leak_is_well_used() {
    let mut story = node(5);
    records(&mut story, 10 * SECOND, &[2, 3, 4], &[2, 3, 4]);
    assert_eq!(told(&story, 10 * MINUTE).0, "");
}

#[test]
fn a_full_range_beside_one_with_free_addresses_is_none() {
    let mut story = node(5);
    networks(&mut story, 5, &[pool("10.2.0", 9)]);
    records(&mut story, 10 * SECOND, &[2, 3, 4, 5], &[2, 3, 4, 5]);
    assert_eq!(told(&story, 10 * MINUTE).0, "");
}

/// The namespaces that had the addresses may have ended.
#[test]
fn a_pool_that_only_the_kernel_fills_is_not_full_after_a_gap() {
    let filled = |lost: bool| {
        let mut story = node(2);
        story.at(10 * SECOND).netns(DAEMON, 4_026_540_002, 2);
        let mut add = call(900, CONTAINERD, "/usr/lib/cni/bridge", "ADD", "/run/netns/2", 'a');
        add.variables.container_id = Some(sandbox(2).as_str().to_owned());
        story.listed(Fact::NetnsFound {
            netns: NetnsKey::new(4_026_540_002, 2),
            mounts: vec!["/run/netns/2".to_owned()],
            vacant: false,
        });
        story.kernel(Fact::CniCalled(add));
        let plugin = Who::new(900, CONTAINERD, "bridge");
        story.address(plugin, 4_026_540_002, "10.1.0.2/24", "eth0").exit(plugin, class::CNI, 0);
        if lost {
            story.lost();
        }
        told(&story, 5 * MINUTE).0
    };
    assert!(filled(false).contains("finding.confirmed pool_exhaustion/podnet/10.1.0.2-10.1.0.2"));
    assert_eq!(filled(true), "");
}

/// Twelve addresses leak in an hour, so the rest of 253 does not last a day.
#[test]
fn a_pool_that_leaks_fast_is_reported_before_it_is_empty() {
    let leaking = |count: u8| {
        let mut story = node(254);
        let leaked: Vec<u8> = (10..10 + count).collect();
        for n in &leaked {
            comes_and_goes(&mut story, (10 + u64::from(*n)) * SECOND, *n);
        }
        records(&mut story, 60 * SECOND, &leaked, &[]);
        records(&mut story, 5 * MINUTE, &leaked, &[]);
        let (lines, engine) = told(&story, 6 * MINUTE);
        assert_eq!(engine.pools()[0].leaked, u64::from(count));
        (lines, engine)
    };
    let (lines, engine) = leaking(12);
    assert!(lines.contains(&format!("finding.confirmed {KEY}")), "{lines}");
    let (severity, it) = exhaustion(&engine, KEY);
    assert_eq!((severity, it.leaked, it.free), (Severity::Warning, 12, 241));
    assert_eq!(it.runs_out_in.map(|left| left.as_secs() / 3600), Some(20));
    // Two leaks give no rate, and enough addresses are free.
    assert_eq!(leaking(2).0, "");
}

#[test]
fn leaks_in_a_pool_that_is_nearly_full_are_reported() {
    let story = |store: &[u8]| {
        let mut story = node(21);
        let runtime: Vec<u8> = store.iter().copied().filter(|n| *n != 2).collect();
        records(&mut story, 10 * SECOND, store, &runtime);
        records(&mut story, 5 * MINUTE, store, &runtime);
        told(&story, 6 * MINUTE)
    };
    let most: Vec<u8> = (2..=20).collect();
    let (lines, engine) = story(&most);
    assert!(lines.contains("finding.confirmed pool_exhaustion/podnet/10.1.0.2-10.1.0.21"), "{lines}");
    let view = &engine.pools()[0];
    assert_eq!((view.leaked, view.pending_cleanup, view.free), (1, 18, 1));
    assert_eq!(exhaustion(&engine, "pool_exhaustion/podnet/10.1.0.2-10.1.0.21").1.runs_out_in, None);
    // A tenth of the addresses is free.
    assert_eq!(story(&most[..18]).0, "");
    assert!(engine.findings().any(|it| it.since >= ms(0)));
}

/// No source gives such a pool, but a recording may.
#[test]
fn a_pool_that_ends_before_it_begins_has_nothing_in_it() {
    let mut story = node(1);
    records(&mut story, 7 * SECOND, &[3], &[3]);
    let (told, engine) = told(&story, 2 * MINUTE);
    assert_eq!(told, "");
    let view = engine.pools();
    assert_eq!((view.len(), view[0].in_use, view[0].free), (1, 0, 0), "{view:?}");
}

/// Somebody frees an address that leaked, and it is reserved for the same sandbox again.
#[test]
fn an_address_that_is_reserved_anew_leaks_since_then() {
    for seen in [true, false] {
        let mut story = node(254);
        if seen {
            comes_and_goes(&mut story, 10 * SECOND, 2);
        }
        let first = ms(10 * SECOND);
        records_since(&mut story, 30 * SECOND, &[2], &[], first);
        records_since(&mut story, 5 * MINUTE, &[2], &[], first);
        let since = |engine: &Engine| {
            let is_open = |it: &&Finding| matches!(it.kind, Kind::LeakedAddress(_)) && it.closed_at.is_none();
            engine.findings().find(is_open).map(|it| it.since)
        };
        let before = since(&story.judge(5 * MINUTE + SECOND).1).expect("it leaked");
        assert!(before < ms(11 * SECOND), "{before:?}");
        records(&mut story, 6 * MINUTE, &[], &[]);
        assert_eq!(since(&story.judge(6 * MINUTE + SECOND).1), None, "it was freed");
        let anew = ms(7 * MINUTE);
        for at in [8, 9, 10, 11, 12] {
            records_since(&mut story, at * MINUTE, &[2], &[], anew);
        }
        assert_eq!(since(&story.judge(12 * MINUTE + SECOND).1), Some(anew), "seen: {seen}");
    }
}

/// A plugin may give an address to the same sandbox again and again.
#[test]
fn each_address_of_one_sandbox_leaks() {
    let mut story = node(254);
    for at in [10 * SECOND, 8 * MINUTE] {
        records(&mut story, at, &[], &[]);
        read_store(&mut story, (2..202).map(|n| held(n, sandbox(2), Timestamp::ZERO)).collect());
    }
    let (_, engine) = told(&story, 10 * MINUTE);
    assert_eq!((engine.pools()[0].leaked, engine.pools()[0].free), (200, 53));
}

fn a_hundred_leaks() -> Engine {
    let mut story = node(254);
    let leaked: Vec<u8> = (10..110).collect();
    for n in &leaked {
        comes_and_goes(&mut story, (10 + u64::from(*n)) * SECOND, *n);
    }
    records(&mut story, 2 * MINUTE, &leaked, &[]);
    records(&mut story, 8 * MINUTE, &leaked, &[]);
    told(&story, 10 * MINUTE).1
}

#[test]
fn leaks_that_are_reported_together_name_the_plugin_that_all_have() {
    let engine = a_hundred_leaks();
    let joined = engine.findings().filter_map(|it| {
        let Kind::LeakedAddress(leak) = &it.kind else { return None };
        Some((leak.many.as_ref()?.count, leak.plugin.as_deref()))
    });
    assert_eq!(joined.collect::<Vec<_>>(), [(100, Some("bridge"))]);
}

/// Nothing may happen for a while after a restart, and the counts are asked for meanwhile.
#[test]
fn a_restored_engine_counts_pools_before_its_first_look() {
    let engine = a_hundred_leaks();
    assert_eq!(engine.pools()[0].leaked, 100);
    assert!(!engine.many().is_empty());
    let mut restored = Engine::new(engine.settings().clone());
    engine.dump().into_iter().for_each(|entry| restored.restore(entry));
    assert_eq!(restored.pools(), engine.pools());
    assert_eq!(restored.many(), engine.many());
}
