//! Answers of an ipamd of UCloud, over gRPC at a real socket.

#[path = "../../../../../tests/leaks/ipamd.rs"]
mod ipamd;

use std::{
    cell::Cell,
    fs,
    os::unix::{fs::chown, net::UnixListener},
    path::{Path, PathBuf},
    time::Instant,
};

use proptest::prelude::*;
use tempfile::TempDir;

use super::{
    super::super::network::Configured, Bytes, Fact, Given, Ipamd, Kind as _, Listing, MAX_RECORDS, Memory,
    Node, ReadError, Reservation, Timestamp, parse,
};
use crate::{
    model::fact::{List, Network, StoreRead},
    source::{host::HostRoot, host::skipped::Skipped, node::cgroup::Hierarchy},
};
use ipamd::{Answer, PodNetwork, Records};

const SECOND: u64 = 1_000_000_000;
const SOCKET: &str = "/run/cni-vpc-ipamd.sock";

/// A node that was booted at the epoch.
struct Uk8s {
    root: TempDir,
    memory: Memory,
    /// Seconds.
    now: u64,
    plugin: &'static str,
}

impl Uk8s {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir(root.path().join("run")).expect("a folder");
        Self { root, memory: Memory::default(), now: 1000, plugin: "cnivpc" }
    }

    fn socket(&self) -> PathBuf {
        self.root.path().join(&SOCKET[1..])
    }

    /// Starts another ipamd, which takes the path of the one before.
    fn answers(&self, answer: Answer) {
        fs::remove_file(self.socket()).ok();
        ipamd::start(&self.socket(), answer);
    }

    fn has(&self, networks: Vec<PodNetwork>) {
        self.answers(Answer::Records(Records { code: 0, networks }));
    }

    fn read(&mut self) -> (Option<StoreRead>, Skipped) {
        let host = HostRoot::open(self.root.path()).expect("the root");
        let hierarchy = Hierarchy { id: 0, controllers: Vec::new(), mount: "/sys/fs/cgroup".to_owned() };
        let now = Cell::new(self.now);
        let clock = || Timestamp(now.get() * SECOND);
        let node = Node { root: &host, hierarchy: &hierarchy, clock: &clock, boot_wall_ns: 0, stores: &[] };
        let network = Network {
            name: "cni-vpc-uk8s".to_owned(),
            plugins: vec![self.plugin.to_owned()],
            delegates: Vec::new(),
            ipam: None,
            pools: Vec::new(),
        };
        let networks = [Configured { network, data_dir: None }];
        let mut list = Listing::begin(List::Ipam, node);
        Ipamd.report(Given { node, daemons: &[], networks: &networks }, &mut self.memory, &mut list);
        let (told, skipped) = list.end();
        let read = told.into_iter().find_map(|it| match it.fact {
            Fact::StoreRead(read) => Some(read),
            _ => None,
        });
        (read, skipped)
    }

    /// Returns the records of a whole answer.
    fn rows(&mut self) -> Vec<String> {
        let (read, skipped) = self.read();
        let read = read.expect("a store");
        assert!(read.complete && skipped.partial.is_empty(), "{skipped:?}");
        told(&read)
    }

    /// Returns how many records were read, and why the store is incomplete.
    fn fault(&mut self) -> (usize, ReadError) {
        let (read, skipped) = self.read();
        let read = read.expect("a store");
        assert!(!read.complete);
        let (path, why) = skipped.partial.get(&List::Ipam).expect("a reason");
        assert_eq!(path, Path::new(SOCKET));
        (read.reservations.len(), *why)
    }
}

/// The address, the first letter of the sandbox or that the address may be kept, the pod, and the second.
fn told(read: &StoreRead) -> Vec<String> {
    let one = |it: &Reservation| {
        let holder = it.holder.as_ref().map_or("kept", |holder| &holder.container.as_str()[..1]);
        assert_eq!(it.in_words, it.holder.is_none());
        let pod = it.pod.as_ref().and_then(|pod| pod.name.as_deref()).unwrap_or("-");
        format!("{} {holder} {pod} {}", it.address, it.since.0 / SECOND)
    };
    read.reservations.iter().map(one).collect()
}

fn id(digit: char) -> String {
    digit.to_string().repeat(64)
}

#[test]
fn a_record_has_its_sandbox_its_pod_and_the_latest_time_of_its_address() {
    let mut node = Uk8s::new();
    assert!(node.read().0.is_none(), "no ipamd is installed");
    let given_back = PodNetwork {
        recycled: true,
        recycle_time: 700,
        ..PodNetwork::new("cart-5f7b-x2x9z", &id('b'), "10.5.0.10", 200)
    };
    node.has(vec![PodNetwork::new("cart-5f7b-k4j2m", &id('a'), "10.5.0.9", 600), given_back]);
    let (read, _) = node.read();
    let read = read.expect("a store");
    let store = (read.store.kind.into_str(), read.store.path.as_str(), read.store.network.as_deref());
    assert_eq!(store, ("ucloud-ipamd", SOCKET, Some("cni-vpc-uk8s")));
    assert_eq!(told(&read), ["10.5.0.9 a cart-5f7b-k4j2m 600", "10.5.0.10 b cart-5f7b-x2x9z 700"]);
    let pod = read.reservations[0].pod.as_ref().expect("a pod");
    assert_eq!(
        (pod.namespace.as_deref(), pod.uid.as_ref().map(|uid| uid.as_str())),
        (Some("shop"), Some("11111111-2222-3333-4444-555555555555"))
    );
    // An address of ipamd's pool is older than the record. The sandbox is new since the last reading.
    node.now = 1060;
    node.has(vec![
        PodNetwork::new("cart-5f7b-k4j2m", &id('a'), "10.5.0.9", 600),
        PodNetwork::new("cart-5f7b-k4j2m", &id('c'), "10.5.0.11", 100),
    ]);
    let rows = ["10.5.0.9 a cart-5f7b-k4j2m 600", "10.5.0.11 c cart-5f7b-k4j2m 1060"];
    assert_eq!(node.rows(), rows);
    node.now = 1120;
    assert_eq!(node.rows(), rows);
    // A record that is gone and comes again is new.
    node.has(Vec::new());
    assert_eq!(node.rows(), Vec::<String>::new());
    node.has(vec![PodNetwork::new("cart-5f7b-k4j2m", &id('a'), "10.5.0.9", 600)]);
    assert_eq!(node.rows(), ["10.5.0.9 a cart-5f7b-k4j2m 1120"]);
}

#[test]
fn an_address_that_the_pod_may_keep_is_no_sandbox_s() {
    let mut node = Uk8s::new();
    let own = PodNetwork {
        dedicated_uni: true,
        interface_id: "uni-a".to_owned(),
        ..PodNetwork::new("gate-5f7b-k4j2m", &id('a'), "10.5.0.8", 10)
    };
    let of_other_pod =
        PodNetwork { pod_uid: String::new(), ..PodNetwork::new("db-1", &id('f'), "10.5.0.13", 10) };
    node.has(vec![
        own,
        PodNetwork::new("db-0", &id('b'), "10.5.0.9", 10),
        // The second sandbox of the pod has the same address: it is static.
        PodNetwork::new("db-0", &id('c'), "10.5.0.9", 20),
        // A pod with two addresses has no static one.
        PodNetwork::new("db-1", &id('d'), "10.5.0.11", 10),
        PodNetwork::new("db-1", &id('e'), "10.5.0.12", 20),
        of_other_pod,
        PodNetwork::new("web-", &id('7'), "10.5.0.14", 10),
        // It has no address.
        PodNetwork::new("web-5f7b-k4j2m", &id('9'), "", 10),
    ]);
    assert_eq!(
        node.rows(),
        [
            "10.5.0.8 kept gate-5f7b-k4j2m 10",
            "10.5.0.9 kept db-0 10",
            "10.5.0.9 kept db-0 20",
            "10.5.0.11 d db-1 10",
            "10.5.0.12 e db-1 20",
            "10.5.0.13 kept db-1 10",
            "10.5.0.14 7 web- 10",
        ]
    );
}

#[test]
fn an_ipamd_that_cannot_answer_is_told_and_not_asked_on_other_nodes() {
    for (answer, why) in [
        (Answer::Records(Records { code: 1014, networks: Vec::new() }), ReadError::Unanswered),
        (Answer::Error(13), ReadError::Unanswered),
        (Answer::Cut, ReadError::Unanswered),
        (Answer::Error(12), ReadError::Malformed),
        (Answer::Bytes(vec![0xff; 64]), ReadError::Malformed),
    ] {
        let mut node = Uk8s::new();
        node.answers(answer.clone());
        assert_eq!(node.fault(), (0, why), "{answer:?}");
        node.plugin = "calico";
        assert!(node.read().0.is_none());
    }
}

#[test]
fn an_ipamd_that_hangs_is_waited_for_once_in_a_minute() {
    let mut node = Uk8s::new();
    node.answers(Answer::Never);
    assert_eq!(node.fault(), (0, ReadError::Unanswered));
    node.has(Vec::new());
    node.now += 59;
    let begun = Instant::now();
    assert_eq!(node.fault(), (0, ReadError::Unanswered));
    assert!(begun.elapsed().as_millis() < 500, "it was asked");
    node.now += 1;
    assert_eq!(node.rows(), Vec::<String>::new());
}

/// ipamd removes its socket when it is told to end, and leaves it behind when it is killed.
#[test]
fn records_of_an_ipamd_that_has_ended_are_not_freed() {
    let mut node = Uk8s::new();
    drop(UnixListener::bind(node.socket()).expect("a socket"));
    assert_eq!(node.fault(), (0, ReadError::Unanswered));
    node.has(Vec::new());
    node.rows();
    fs::remove_file(node.socket()).expect("a socket");
    assert_eq!(node.fault(), (0, ReadError::Unanswered));
    node.has(Vec::new());
    node.rows();
}

#[test]
fn only_a_socket_of_the_folder_s_owner_is_asked() {
    let mut node = Uk8s::new();
    node.has(Vec::new());
    // Only root may give it away.
    let is_given_away = chown(node.root.path().join("run"), Some(65534), None).is_ok();
    assert_eq!(node.read().0.map(|read| read.complete), Some(!is_given_away));
    fs::remove_file(node.socket()).expect("a socket");
    fs::write(node.socket(), "").expect("a file");
    assert_eq!(node.fault(), (0, ReadError::NotPlain));
}

#[test]
fn too_many_records_and_too_long_answers_are_told() {
    let record = |n: usize| PodNetwork {
        sandbox_id: format!("{n:x}"),
        vpc_ip: format!("10.{}.{}.{}", n >> 16, n >> 8 & 255, n & 255),
        ..PodNetwork::default()
    };
    let mut node = Uk8s::new();
    node.has((0..MAX_RECORDS).map(record).collect());
    assert_eq!(node.rows().len(), MAX_RECORDS);
    node.has((0..=MAX_RECORDS).map(record).collect());
    assert_eq!(node.fault(), (MAX_RECORDS, ReadError::TooMany(MAX_RECORDS)));
    let whole = |n| PodNetwork::new("cart-5f7b-k4j2m", &format!("{n:064x}"), "10.5.0.9", 10);
    node.has((0..65_000).map(whole).collect());
    assert_eq!(node.fault(), (0, ReadError::Unanswered));
}

#[test]
fn hostile_records_spoil_no_other() {
    let good = PodNetwork::new("cart-5f7b-k4j2m", &id('a'), "10.5.0.9", 10);
    for bad in [
        PodNetwork { vpc_ip: "10.5.0.999".to_owned(), ..good.clone() },
        PodNetwork { sandbox_id: "../../etc".to_owned(), ..good.clone() },
        PodNetwork { sandbox_id: String::new(), ..good.clone() },
    ] {
        let mut node = Uk8s::new();
        node.has(vec![bad, good.clone()]);
        assert_eq!(node.fault(), (1, ReadError::Malformed));
    }
    // Names that no pod has are no names, and a time may be any number.
    let mut node = Uk8s::new();
    let odd = PodNetwork {
        pod_ns: "a b".to_owned(),
        create_time: i64::MAX,
        recycle_time: i64::MIN,
        ..PodNetwork::new("\u{1b}[2J", &id('b'), "fd00::9", 0)
    };
    node.has(vec![good, odd]);
    assert_eq!(node.rows(), ["10.5.0.9 a cart-5f7b-k4j2m 10", "fd00::9 b - 0"]);
}

proptest! {
    #[test]
    fn no_bytes_are_too_strange(bytes: Vec<u8>) {
        let _parsed = parse(Bytes::from(bytes));
    }
}
