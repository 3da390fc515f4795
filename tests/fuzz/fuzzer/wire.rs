//! Records as the hooks write them to a ring, one after the other, each at a multiple of eight bytes.

use std::time::Duration;

use probe_common::{
    event::{self, Event, Header, KINDS, Task, address, kind},
    id::{CgroupKey, NetnsKey, TaskKey},
    text::{Comm, sixteen},
};
use probe_user::{
    engine::decode::decode,
    model::{fact::Fact, time::Timestamp},
};
use zerocopy::{FromZeros as _, Immutable, IntoBytes};

use super::player::Player;

/// The maximum size of a ring, because the engine gets each of its records.
const RING: usize = 16 << 10;

const POD: &[u8] = b"/kubepods/besteffort/pod11111111-2222-3333-4444-555555555555";

pub fn seeds() -> Vec<Vec<u8>> {
    let mut call = event::CniCall::new_zeroed();
    call.caller = TaskKey::new(7, 10_000_000);
    call.caller_comm = Comm(sixteen("containerd"));
    let values = [
        "ADD",
        "c1",
        "/run/netns/cni-1",
        "eth0",
        "K8S_POD_NAME=web-0;K8S_POD_NAMESPACE=default",
        "/opt",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "vendor=1",
    ];
    (call.present, call.filename_len) = (0xff, 12);
    call.lens = values.map(len);
    let mut run = event::Exec::new_zeroed();
    (run.class, run.ns_pid, run.argv_total, run.filename_len, run.argv_len) = (0x23, 1, 7, 6, 7);
    let mut made = event::Cgroup::new_zeroed();
    (made.cgroup, made.member) = (CgroupKey::new(0, 21), TaskKey::new(50, 1_230_000_000));
    (made.level, made.path_len) = (3, u16::try_from(POD.len()).expect("short"));
    let mut given = event::Address::new_zeroed();
    (given.netns, given.family, given.prefix) = (NetnsKey::new(4_026_531_999, 3), address::IPV6, 64);
    given.address[..4].copy_from_slice(&[10, 88, 0, 2]);
    let mut netns = event::Netns::new_zeroed();
    netns.netns = NetnsKey::new(4_026_531_999, 3);
    let mut signal = event::Signal::new_zeroed();
    (signal.target, signal.signal) = (task(), 9);
    let mut socket = event::Listen::new_zeroed();
    (socket.container, socket.port) = (21, 80);
    let mut all = vec![
        record(&run, kind::EXEC, b"/pause/pause\0"),
        record(&call, kind::CNI_CALL, format!("/opt/cni/ptp{}", values.concat()).as_bytes()),
        record(&event::Exit::new_zeroed(), kind::EXIT, &[]),
        record(&socket, kind::LISTEN, &[]),
    ];
    all.extend([kind::SIGNAL, kind::OOM_KILL].map(|kind| record(&signal, kind, &[])));
    let netns_kinds = [kind::NETNS_CREATED, kind::NETNS_DROPPED, kind::NETNS_FREED];
    all.extend(netns_kinds.map(|kind| record(&netns, kind, &[])));
    all.extend([kind::ADDRESS_ADDED, kind::ADDRESS_REMOVED].map(|kind| record(&given, kind, &[])));
    let cgroup_kinds = [
        kind::CGROUP_CREATED,
        kind::CGROUP_ATTACHED,
        kind::CGROUP_EMPTIED,
        kind::CGROUP_REMOVED,
        kind::CGROUP_RELEASED,
    ];
    all.extend(cgroup_kinds.map(|kind| record(&made, kind, POD)));
    assert_eq!(all.len(), KINDS, "a kind of record has no seed");
    let ring = all.concat();
    all.into_iter().chain([ring]).collect()
}

pub fn run(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(RING)];
    let mut words = vec![0_u64; bytes.len().div_ceil(8)];
    words.as_mut_slice().as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
    let ring = words.as_slice().as_bytes();
    let mut player = Player::new();
    let mut at = 0;
    while let Some(left) = ring.get(at..).filter(|left| !left.is_empty() && !player.is_full()) {
        // A ring has no record at another place. Decoding there must fail.
        assert!(left.get(1..).is_none_or(|left| decode(left).is_err()));
        let parsed = Event::parse(left).map(|event| *event.header());
        let Ok(seen) = decode(left) else {
            assert!(parsed.is_err());
            at += 8;
            continue;
        };
        let header = parsed.expect("what is decoded was parsed");
        assert_eq!(seen.at.0, header.at);
        let len = header.len as usize;
        assert!(decode(&left[..len]).is_ok_and(|again| again == seen), "it looks behind its end");
        assert!(decode(&left[..len - 1]).is_err(), "it is whole without its end");
        at += len.next_multiple_of(8);
        // In order, and sometimes late.
        player.pass(Duration::from_millis(1));
        let late = Timestamp(player.now().0.saturating_sub(seen.at.0 % 5_000_000));
        assert_ne!(seen.fact, Fact::Watermark);
        player.observe(late, seen.origin, seen.fact);
        if header.cpu.is_multiple_of(4) {
            player.watermark();
        }
    }
    player.end();
}

fn task() -> Task {
    Task {
        start: 1_234_567_890,
        parent_start: 10_000_000,
        cgroup: 21,
        pid: 50,
        tid: 50,
        parent: 7,
        netns: 4_026_531_999,
        comm: Comm(sixteen("pause")),
    }
}

fn record(body: &(impl IntoBytes + Immutable), kind: u16, tail: &[u8]) -> Vec<u8> {
    let mut bytes = [body.as_bytes(), tail].concat();
    let len = u32::try_from(bytes.len()).expect("short");
    let header = Header { at: 2_000_000_000, len, kind, flags: 0, cpu: 1, hierarchy: 0, task: task() };
    bytes[..size_of::<Header>()].copy_from_slice(header.as_bytes());
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

fn len(text: &str) -> u16 {
    u16::try_from(text.len()).expect("short")
}
