//! Records in a ring, and the observations that they become.

use probe_common::{
    event::{self, Header, WireError, address, cgroup, cni, exec, flag, kind},
    id::{CgroupKey, NetnsKey, TaskKey},
    text::{Comm, IfName, sixteen},
};
use proptest::prelude::*;
use zerocopy::{FromZeros as _, Immutable, IntoBytes};

use super::decode;
use crate::model::{
    fact::{Fact, Family, Listener, Observation, Origin, Task},
    time::Timestamp,
};

/// A record, aligned as in a ring: the body, with its length and kind set, and what follows it.
struct Record(Vec<u64>);

impl Record {
    fn new(body: &(impl IntoBytes + Immutable), kind: u16, flags: u16, tail: &[u8]) -> Self {
        let len = size_of_val(body) + tail.len();
        let mut words = vec![0_u64; len.div_ceil(8)];
        let bytes = words.as_mut_slice().as_mut_bytes();
        bytes[..size_of_val(body)].copy_from_slice(body.as_bytes());
        bytes[size_of_val(body)..len].copy_from_slice(tail);
        let header = Header {
            at: 7,
            len: u32::try_from(len).expect("short"),
            kind,
            flags,
            cpu: 1,
            hierarchy: 4,
            task: event::Task {
                start: 1_234_567_890,
                parent_start: 60_000_000,
                cgroup: 21,
                pid: 50,
                tid: 51,
                parent: 10,
                netns: 4_026_531_840,
                comm: Comm(sixteen("bridge")),
            },
        };
        bytes[..size_of::<Header>()].copy_from_slice(header.as_bytes());
        Self(words)
    }

    #[track_caller]
    fn read(&self) -> Observation {
        decode(self.0.as_bytes()).expect("a record")
    }
}

fn task() -> Task {
    Task {
        key: TaskKey::new(50, 1_230_000_000),
        tid: 51,
        parent: TaskKey::new(10, 60_000_000),
        comm: "bridge".to_owned(),
        cgroup: CgroupKey::new(4, 21),
        netns: 4_026_531_840,
    }
}

fn len(text: &[u8]) -> u16 {
    u16::try_from(text.len()).expect("short")
}

#[test]
fn an_exec_has_its_arguments_one_by_one() {
    let argv = b"runc\0init\0\xff\0";
    let mut body = event::Exec::new_zeroed();
    (body.class, body.argv_total, body.filename_len, body.argv_len) = (3, 900, 9, len(argv));
    let tail = [b"/bin/runc".as_slice(), argv].concat();
    let seen = Record::new(&body, kind::EXEC, 0, &tail).read();
    assert_eq!((seen.at, seen.origin), (Timestamp(7), Origin::Kernel));
    let Fact::Executed(it) = seen.fact else { panic!("{:?}", seen.fact) };
    assert_eq!(it.task, task());
    assert_eq!(it.argv, ["runc", "init", "\u{fffd}"]);
    assert_eq!((it.filename.as_str(), it.argv_total, it.class), ("/bin/runc", 900, 3));
}

#[test]
fn a_cni_variable_that_is_not_set_is_not_one_that_is_empty() {
    let mut body = event::CniCall::new_zeroed();
    body.caller = TaskKey::new(9, 90);
    body.caller_comm = Comm(sixteen("containerd"));
    body.filename_len = 19;
    body.present = 1 << cni::COMMAND | 1 << cni::NETNS;
    body.lens[cni::COMMAND] = 3;
    for (flags, origin) in [(flag::HOST, Origin::Kernel), (0, Origin::Delegated)] {
        let seen = Record::new(&body, kind::CNI_CALL, flags, b"/usr/lib/cni/bridgeDEL").read();
        assert_eq!(seen.origin, origin);
        let Fact::CniCalled(it) = seen.fact else { panic!("{:?}", seen.fact) };
        assert_eq!((it.filename.as_str(), it.variables.command.as_str()), ("/usr/lib/cni/bridge", "DEL"));
        assert_eq!((it.variables.netns.as_deref(), it.variables.ifname), (Some(""), None));
        assert_eq!(it.caller.map(|caller| caller.comm).as_deref(), Some("containerd"));
        assert_eq!(it.host, origin == Origin::Kernel);
    }
}

#[test]
fn the_last_pair_of_cni_args_that_were_cut_is_left_out() {
    let longest = cni::NAMES[cni::ARGS].1;
    let padded = |len| format!("K8S_POD_NAME=web-0;K8S_POD_NAMESPACE={:a<1$}", "", len - 37);
    let read = |args: &str| {
        let mut body = event::CniCall::new_zeroed();
        body.present = 1 << cni::ARGS;
        body.lens[cni::ARGS] = len(args.as_bytes());
        let seen = Record::new(&body, kind::CNI_CALL, flag::HOST, args.as_bytes()).read();
        let Fact::CniCalled(it) = seen.fact else { panic!("{:?}", seen.fact) };
        it.variables.args
    };
    let whole = padded(longest - 1);
    assert_eq!(whole.len(), longest - 1);
    assert_eq!(read(&whole), Some(whole));
    assert_eq!(read(&padded(longest)).as_deref(), Some("K8S_POD_NAME=web-0"));
    assert_eq!(read(&"a".repeat(longest)).as_deref(), Some(""));
}

#[test]
fn addresses_of_both_families() {
    let mut body = event::Address::new_zeroed();
    body.netns = NetnsKey::new(41, 5);
    body.ifname = IfName(sixteen("eth0"));
    body.prefix = 24;
    body.family = address::IPV4;
    body.address[..4].copy_from_slice(&[10, 88, 0, 5]);
    let text = |body: &event::Address| {
        let seen = Record::new(body, kind::ADDRESS_ADDED, 0, &[]).read();
        let Fact::AddressAdded(it) = seen.fact else { panic!("{:?}", seen.fact) };
        format!("{} {} {}", it.address, it.ifname, it.netns.inode)
    };
    assert_eq!(text(&body), "10.88.0.5/24 eth0 41");
    body.family = address::IPV6;
    body.address = std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).octets();
    assert_eq!(text(&body), "fd00::1/24 eth0 41");
}

#[test]
fn a_socket_listens_in_its_container() {
    let mut body = event::Listen::new_zeroed();
    (body.container, body.port, body.family) = (77, 8080, address::IPV6);
    let seen = Record::new(&body, kind::LISTEN, 0, &[]).read();
    let Fact::Listened(it) = seen.fact else { panic!("{:?}", seen.fact) };
    assert_eq!((it.container.id, it.container.hierarchy), (77, it.task.cgroup.hierarchy));
    assert_eq!(it.socket, Listener { port: 8080, family: Family::Ipv6 });
    body.family = address::IPV4;
    let seen = Record::new(&body, kind::LISTEN, 0, &[]).read();
    let Fact::Listened(it) = seen.fact else { panic!("{:?}", seen.fact) };
    assert_eq!(it.socket.family, Family::Ipv4);
}

/// As the hook writes it if `mark_victim` passes a pid: the process that asked for memory is not the victim.
#[test]
fn an_oom_killers_victim_can_be_no_more_than_a_pid() {
    let mut body = event::Signal::new_zeroed();
    body.target = event::Task { pid: 77, tid: 77, ..event::Task::default() };
    (body.signal, body.code) = (9, 0x80);
    let Fact::OomKilled(it) = Record::new(&body, kind::OOM_KILL, 0, &[]).read().fact else {
        panic!("another fact")
    };
    assert_eq!((it.target.key, it.target.tid), (TaskKey::new(77, 0), 77));
    assert_eq!(it.sender, task());
}

#[test]
fn a_cgroup_has_its_path() {
    let mut body = cgroup::Cgroup::new_zeroed();
    body.cgroup = CgroupKey::new(4, 99);
    body.level = 2;
    body.path_len = 9;
    let seen = Record::new(&body, kind::CGROUP_EMPTIED, flag::NESTED, b"/kubepods").read();
    let Fact::CgroupEmptied { cgroup } = seen.fact else { panic!("{:?}", seen.fact) };
    assert_eq!((cgroup.path.as_str(), cgroup.level, cgroup.nested), ("/kubepods", 2, true));
}

/// A recording does not keep the padding, so a replay would use another key.
#[test]
fn padding_is_no_part_of_an_identity() {
    let mut netns = event::Netns::new_zeroed();
    netns.netns = NetnsKey { _pad: [0, 159, 0, 0], ..NetnsKey::new(41, 5) };
    let mut given = event::Address::new_zeroed();
    given.netns = netns.netns;
    let mut made = cgroup::Cgroup::new_zeroed();
    made.cgroup = CgroupKey { _pad: [1; 4], ..CgroupKey::new(4, 99) };
    let records = [kind::NETNS_CREATED, kind::NETNS_DROPPED, kind::NETNS_FREED]
        .map(|kind| Record::new(&netns, kind, 0, &[]))
        .into_iter()
        .chain([
            Record::new(&given, kind::ADDRESS_ADDED, 0, &[]),
            Record::new(&made, kind::CGROUP_EMPTIED, 0, &[]),
        ]);
    for record in records {
        let fact = record.read().fact;
        if let Fact::NetnsCreated { netns, .. }
        | Fact::NetnsDropped { netns, .. }
        | Fact::NetnsFreed { netns } = fact
        {
            assert_eq!(netns, NetnsKey::new(41, 5));
        } else if let Fact::AddressAdded(it) = fact {
            assert_eq!(it.netns, NetnsKey::new(41, 5));
        } else if let Fact::CgroupEmptied { cgroup } = fact {
            assert_eq!(cgroup.key, CgroupKey::new(4, 99));
        } else {
            panic!("{fact:?}");
        }
    }
}

#[test]
fn what_is_no_record_is_refused() {
    let mut body = exec::Exec::new_zeroed();
    body.filename_len = 100;
    let short = Record::new(&body, kind::EXEC, 0, b"/bin/sh");
    assert!(matches!(decode(short.0.as_bytes()), Err(WireError::Short { kind: kind::EXEC, .. })));
    let unknown = Record::new(&body.header, 999, 0, &[]);
    assert_eq!(decode(unknown.0.as_bytes()).err(), Some(WireError::UnknownKind(999)));
    assert!(decode(&[]).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_are_too_bad(mut words in proptest::collection::vec(any::<u64>(), 0..40), kind in 0_u64..17, whole: bool) {
        let len = words.len() * 8;
        if let Some(word) = words.get_mut(1) && whole {
            *word = kind << 32 | u64::try_from(len).unwrap_or(0);
        }
        let _any = decode(words.as_slice().as_bytes());
    }
}
