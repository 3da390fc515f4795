//! Records of a store that name no sandbox.

use std::net::IpAddr;

use super::story::{CONTAINERD, DAEMON, Story, ms, run::check_lines};
use crate::{
    engine::Engine,
    model::{
        fact::{
            Bound, Fact, Holder, List, Reservation, ReservationState, RuntimeRead, RuntimeSandbox, Store,
            StoreKind, StoreRead,
        },
        finding::{Kind, OwnerlessReservation},
        id::ContainerId,
    },
};

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const KEY: &str = "ownerless_reservation/:var:lib:cni:networks:podnet";

fn node() -> Story {
    let mut story = Story::new();
    story.at(SECOND).list(List::Processes, true, |story| {
        story.found(DAEMON, CONTAINERD, "/system.slice/containerd.service", "/usr/bin/containerd");
    });
    story
}

/// A reading of a store, with the last part of each address that has an empty file, and the time of the file.
fn read(story: &mut Story, at: u64, kind: StoreKind, empty: &[(u8, u64)], complete: bool) {
    let reservation = |(part, since): &(u8, u64)| Reservation {
        address: [10, 1, 0, *part].into(),
        holder: None,
        since: ms(*since),
        in_words: false,
        pod: None,
        state: ReservationState::Held,
    };
    let path = "/var/lib/cni/networks/podnet".to_owned();
    let store = Store { kind, path, network: Some("podnet".to_owned()), bound: Bound::Sandbox };
    let reservations = empty.iter().map(reservation).collect();
    story.at(at).list(List::Ipam, complete, |story| {
        story.listed(Fact::StoreRead(StoreRead { store, reservations, complete }));
    });
}

fn found(engine: &Engine) -> OwnerlessReservation {
    let it = engine.findings().find(|it| it.key.as_str() == KEY).expect("the finding");
    let Kind::OwnerlessReservation(it) = it.kind.clone() else { panic!("another kind") };
    it
}

fn told(story: &Story, until: u64) -> (String, Engine) {
    let (told, engine) = story.judge(until);
    let lines: Vec<&str> = told.lines().filter(|line| line.contains(KEY)).collect();
    (lines.join("\n"), engine)
}

#[test]
fn one_finding_grows_with_each_file_that_is_as_old() {
    let mut story = node();
    let host_local = StoreKind::HostLocal;
    read(&mut story, 10 * SECOND, host_local, &[(8, 5 * SECOND)], true);
    read(&mut story, 2 * MINUTE + 30 * SECOND, host_local, &[(8, 5 * SECOND)], true);
    let both = [(7, 4 * MINUTE), (8, 5 * SECOND)];
    read(&mut story, 5 * MINUTE, host_local, &both, true);
    let (lines, engine) = told(&story, 5 * MINUTE + SECOND);
    check_lines(
        &lines,
        "
            35640 finding.opened ownerless_reservation/:var:lib:cni:networks:podnet Agent
            150100 finding.confirmed ownerless_reservation/:var:lib:cni:networks:podnet Agent
        ",
    );
    let first: Vec<IpAddr> = vec![[10, 1, 0, 8].into()];
    assert_eq!((found(&engine).count, found(&engine).first), (1, first));

    read(&mut story, 7 * MINUTE, host_local, &both, true);
    let (_, engine) = told(&story, 8 * MINUTE);
    let all: Vec<IpAddr> = vec![[10, 1, 0, 7].into(), [10, 1, 0, 8].into()];
    assert_eq!((found(&engine).count, found(&engine).first), (2, all));

    read(&mut story, 9 * MINUTE, host_local, &[], true);
    let (lines, _) = told(&story, 10 * MINUTE);
    assert!(lines.ends_with(&format!("540100 finding.closed {KEY} Agent")), "{lines}");
}

/// The plugin writes into the file right after the store was read, and the next reading is late.
#[test]
fn a_file_that_was_being_written_is_looked_at_again_first() {
    let mut story = node();
    read(&mut story, 5 * SECOND + 10, StoreKind::HostLocal, &[(8, 5 * SECOND)], true);
    let (lines, _) = told(&story, 80 * SECOND);
    assert_eq!(lines, "");
    read(&mut story, 90 * SECOND, StoreKind::HostLocal, &[(8, 5 * SECOND)], true);
    let (lines, _) = told(&story, 95 * SECOND);
    assert!(lines.contains("opened"), "{lines}");
}

#[test]
fn a_store_that_cannot_be_read_opens_and_closes_nothing() {
    let mut story = node();
    let empty = [(8, 5 * SECOND)];
    read(&mut story, 10 * SECOND, StoreKind::HostLocal, &empty, true);
    read(&mut story, 3 * MINUTE, StoreKind::HostLocal, &empty, true);
    read(&mut story, 4 * MINUTE, StoreKind::HostLocal, &[], false);
    let (lines, _) = told(&story, 20 * MINUTE);
    assert!(lines.contains("confirmed") && !lines.contains("closed"), "{lines}");
}

/// ipamd's checkpoint is one file, and not a file for each address.
#[test]
fn only_stores_with_a_file_for_each_address_count() {
    let mut story = node();
    for at in [10 * SECOND, 3 * MINUTE] {
        read(&mut story, at, StoreKind::AwsIpamd, &[(8, 5 * SECOND)], true);
    }
    assert_eq!(told(&story, 20 * MINUTE).0, "");
}

/// Somebody wrote into the file why the address must not be given out.
#[test]
fn an_address_that_is_reserved_by_hand_is_not_reported() {
    for in_words in [false, true] {
        let mut story = node();
        for at in [10 * SECOND, 3 * MINUTE] {
            let address = [10, 1, 0, 8].into();
            let it = Reservation {
                address,
                holder: None,
                since: ms(5 * SECOND),
                in_words,
                pod: None,
                state: ReservationState::Held,
            };
            let store = Store {
                kind: StoreKind::HostLocal,
                path: "/var/lib/cni/networks/podnet".to_owned(),
                network: Some("podnet".to_owned()),
                bound: Bound::Sandbox,
            };
            story.at(at).list(List::Ipam, true, |story| {
                story.listed(Fact::StoreRead(StoreRead { store, reservations: vec![it], complete: true }));
            });
        }
        assert_eq!(told(&story, 20 * MINUTE).0.is_empty(), in_words);
    }
}

/// Other users of CNI write names of their own. A sandbox, and a file of nobody, are judged.
#[test]
fn what_names_no_sandbox_is_not_judged_and_not_forgotten() {
    let id = |name: &str| ContainerId::parse(name).expect("an id");
    let held = |part: u8, holder: Option<&str>, in_words| Reservation {
        address: [10, 1, 0, part].into(),
        holder: holder.map(|name| Holder { container: id(name), ifname: "eth0".to_owned() }),
        since: ms(SECOND),
        in_words,
        pod: None,
        state: ReservationState::Held,
    };
    let of_sandbox = "a".repeat(64);
    let reservations = vec![
        held(2, Some(&of_sandbox), false),
        held(3, Some("default-web-0"), false),
        held(4, Some("on-record"), false),
        held(5, None, true),
        held(6, None, false),
    ];
    let path = "/var/lib/cni/networks/podnet".to_owned();
    let store =
        Store { kind: StoreKind::HostLocal, path, network: Some("podnet".to_owned()), bound: Bound::Sandbox };
    let mut story = node();
    story.at(10 * SECOND).list(List::Runtimes, true, |story| {
        let sandboxes = vec![RuntimeSandbox { id: id("on-record"), pod: None }];
        let place = "/var/lib/containerd".to_owned();
        story.listed(Fact::RuntimeRead(RuntimeRead {
            place,
            kind: None,
            sandboxes,
            complete: true,
            unread: 0,
        }));
    });
    story.at(11 * SECOND).list(List::Ipam, true, |story| {
        story.listed(Fact::StoreRead(StoreRead { store: store.clone(), reservations, complete: true }));
    });
    let (_, engine) = story.judge(20 * MINUTE);
    let unjudged: Vec<_> = engine.unjudged().map(|(of, it)| (of.clone(), it.address)).collect();
    let addresses: [IpAddr; 2] = [[10, 1, 0, 3].into(), [10, 1, 0, 5].into()];
    assert_eq!(unjudged, addresses.map(|address| (store.clone(), address)));
}
