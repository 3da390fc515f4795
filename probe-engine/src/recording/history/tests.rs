//! What is kept of boots is read back the same, whatever power loss has left of the file.

use std::{collections::BTreeMap, time::Duration};

use super::{Heartbeat, History, Record, TOTAL, Why, body, compact, heartbeat, line, read_heartbeat};
use crate::model::{
    change::{End, Process},
    hash::fnv,
    id::{ContainerId, PodUid, TaskKey},
    recovery::{
        BootRead, Calls, Daemon, DaemonEnd, FirstPod, HeldPod, Kind, KubeletListens, LessNetwork,
        NetworkAttempt, OpenAttempt, Order, Ordered, Pod, PreviousBoot, Recovered, RecoveredPod, Recovery,
        Restart, RestartClose, Restarts, RunningPods, Source, TimedSource, Told, Unseen,
    },
    time::Timestamp,
};

fn record(id: &str, revision: u64) -> Record {
    let boot = Some(BootRead { boot_id: id.to_owned(), ..BootRead::default() });
    let recovery = Recovery { boot, revision, ..Recovery::default() };
    Record { made_by: "0".to_owned(), node: "n".to_owned(), recovery }
}

fn pod() -> Pod {
    let uid = PodUid::parse("0123456789abcdef0123456789abcdef");
    let (namespace, name) = (Some("default".to_owned()), Some("\u{1}\"w\u{e9}b\\0".to_owned()));
    Pod {
        namespace,
        name,
        uid,
        kind: Kind::Static,
        listens: true,
        interfaces: vec!["eth0".to_owned(), "\u{e9}".to_owned()],
    }
}

fn running_pods() -> RunningPods {
    RunningPods { pods: vec![pod()], pods_left_out: 6 }
}

fn labels() -> BTreeMap<String, String> {
    [("edge".to_owned(), "\u{1}\"\u{e9}".to_owned())].into()
}

/// All that can be known of a boot, with numbers at their ends.
fn full(recovery: Recovery) -> Recovery {
    let mark = |source| Some(TimedSource { at: Timestamp(u64::MAX), source });
    let ordered = Ordered { wall_ns: i64::MIN, by: "systemctl reboot".to_owned(), source: Source::Journal };
    let before = PreviousBoot {
        boot_id: Some("a".to_owned()),
        ordered: Some(ordered),
        alive_wall_ns: Some(i64::MAX),
        pods: Some(vec![pod()]),
        pods_left_out: 3,
        unseen: Some(Unseen { boots: 2, last_wall_ns: -1, source: Source::Wtmp }),
    };
    let tried = NetworkAttempt {
        sandbox: ContainerId::parse(&"a".repeat(64)).expect("letters"),
        began: Timestamp(1),
        ended: Timestamp(u64::MAX - 1),
        failed: Some("bridge".to_owned()),
    };
    let boot =
        recovery.boot.map(|boot| BootRead { kernel: "6.1".to_owned(), before, labels: labels(), ..boot });
    let back = RecoveredPod {
        pod: pod(),
        mark: TimedSource { at: Timestamp(3), source: Source::FileTime },
        listened: Some(Timestamp(4)),
    };
    Recovery {
        boot,
        quiet: Duration::from_nanos(u64::MAX),
        recovered: Recovered::Listening,
        target: Some(Duration::from_nanos(u64::MAX)),
        hears: true,
        watched_since: Some(Timestamp(5)),
        init: mark(Source::Boot),
        runtime: mark(Source::ProcStart),
        kubelet: mark(Source::Hook),
        runtime_program: Some("containerd 2.1.4".to_owned()),
        kubelet_program: Some("kubelet".to_owned()),
        kubelet_listens: vec![KubeletListens { port: 10_248, at: Timestamp(9) }],
        network_configured: mark(Source::FileTime),
        trying: vec![OpenAttempt { sandbox: tried.sandbox.clone(), began: Timestamp(2) }],
        tries: vec![tried],
        leased_since: Some(Timestamp(6)),
        pods: vec![back],
        order: Some(Order { at: Timestamp(7), by: "reboot".to_owned(), running: running_pods() }),
        restarts: restarts(),
        closed: true,
        seen_until: Timestamp(8),
        ..recovery
    }
}

/// One that goes on, one that is over, and others that are not kept.
fn restarts() -> Restarts {
    let by =
        Process { key: TaskKey::new(1, 2), parent: TaskKey::default(), comm: "\u{1}\"\u{e9}".to_owned() };
    let end = End { code: 137, signal: Some(9), killer: Some(by.clone()), oom: true };
    let ended = Some(DaemonEnd { at: Timestamp(u64::MAX), end, told: Some(Told { signal: 15, by }) });
    let held = HeldPod { pod: pod(), replaced: true, since: Timestamp(1), until: Some(Timestamp(u64::MAX)) };
    let open = Restart {
        daemon: Daemon::Kubelet,
        comm: "kubelet".to_owned(),
        path: "/usr/bin/kubelet".to_owned(),
        was: "kubelet 1.33".to_owned(),
        is: Some("kubelet 1.34".to_owned()),
        ran_since: Timestamp(1),
        noticed_at: Timestamp(2),
        ended: ended.clone(),
        started: Some(TimedSource { at: Timestamp(3), source: Source::ProcStart }),
        process: Some(TaskKey::new(4, u64::MAX)),
        again: u32::MAX,
        ended_again: ended,
        listens: vec![KubeletListens { port: 10_250, at: Timestamp(5) }],
        answers: Some(TimedSource { at: Timestamp(6), source: Source::Cri }),
        first_pod: Some(FirstPod { pod: pod(), at: Timestamp(7) }),
        held: vec![held],
        held_left_out: 8,
        calls: Calls { cut_off: 1, killed: 2, failed: 3, hung: 4 },
        before: vec![pod()],
        less_network: vec![LessNetwork { pod: pod(), missing: vec!["net1".to_owned()] }],
        close: None,
        closed_at: None,
    };
    let past =
        Restart { close: Some(RestartClose::AsBefore), closed_at: Some(Timestamp(u64::MAX)), ..open.clone() };
    Restarts { open: vec![open], past: vec![past], left_out: [("crio".to_owned(), 7)].into() }
}

fn file(records: &[Record]) -> Vec<u8> {
    records.iter().flat_map(|it| line(it).expect("JSON")).collect()
}

#[test]
fn what_is_kept_is_read_back_the_same() {
    let mut it = record("b", u64::MAX);
    it.recovery = full(it.recovery);
    let history = History::read(&file(std::slice::from_ref(&it)));
    assert_eq!((history.records, history.skipped), (vec![it], vec![]));
}

#[test]
fn of_each_boot_the_last_line_counts() {
    let history = History::read(&file(&[record("a", 1), record("b", 1), record("a", 2)]));
    assert_eq!(history.records, [record("a", 2), record("b", 1)]);
    assert_eq!(history.of("b"), Some(&record("b", 1)));
    assert_eq!(history.before("b"), Some(&record("a", 2)));
    assert_eq!((history.before("new"), history.before("a")), (Some(&record("b", 1)), None));
}

/// Power is lost at every byte of a write: at most that line is missing, and what is written next is whole.
#[test]
fn a_torn_write_loses_the_last_line_alone() {
    let whole = file(&[record("a", 1), record("b", 1)]);
    let last = line(&record("b", 2)).expect("JSON");
    for cut in 0..=last.len() {
        let mut bytes = whole.clone();
        bytes.extend(&last[..cut]);
        let history = History::read(&bytes);
        // Only its end is missing: the sum says that it is whole.
        let is_whole = cut + 1 >= last.len();
        let revision = if is_whole { 2 } else { 1 };
        assert_eq!(history.records, [record("a", 1), record("b", revision)], "{cut}");
        let torn = cut > 0 && !is_whole;
        assert_eq!(history.skipped, if torn { vec![(3, Why::Torn)] } else { vec![] }, "{cut}");

        let mut after = compact(&bytes, 50).unwrap_or(bytes);
        after.extend(line(&record("c", 1)).expect("JSON"));
        let history = History::read(&after);
        assert_eq!(history.records.last(), Some(&record("c", 1)), "{cut}");
        assert_eq!((history.records.len(), history.skipped.len()), (3, 0), "{cut}");
    }
}

#[test]
fn a_line_that_is_damaged_takes_no_other_with_it() {
    let whole = file(&[record("a", 1), record("b", 1), record("c", 1)]);
    let ends: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] == b'\n').collect();
    for at in ends[0] + 1..ends[1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x01;
        let history = History::read(&bytes);
        assert_eq!(history.records, [record("a", 1), record("c", 1)], "{at}");
        assert!(history.skipped.iter().all(|(_, why)| *why == Why::Damaged), "{at}");
        assert!(!history.skipped.is_empty(), "{at}");
    }
    // As a file system leaves it that had made room and not yet written.
    let mut zeros = whole[..=ends[0]].to_vec();
    zeros.extend([0; 512]);
    assert_eq!(History::read(&zeros).records, [record("a", 1)]);
}

#[test]
fn only_so_many_boots_are_kept_and_what_is_newer_stays() {
    let mut bytes = file(&[record("a", 1), record("b", 1), record("b", 2), record("c", 1)]);
    assert_eq!(compact(&bytes, 2), Some(file(&[record("b", 2), record("c", 1)])));
    let body = r#"{"schema":3,"x":1}"#;
    let newer = format!("{{\"sum\":\"{:016x}\",\"boot\":{body}}}\n", fnv(body.as_bytes()));
    bytes.extend(newer.as_bytes());
    assert_eq!(History::read(&bytes).skipped, [(5, Why::Newer(3))]);
    let compacted = compact(&bytes, 50).expect("less");
    assert!(compacted.ends_with(newer.as_bytes()));
    assert_eq!(compact(&compacted, 50), None);
}

#[test]
fn boots_of_format_1_are_read() {
    let line = String::from_utf8(line(&record("a", 1)).expect("a line")).expect("JSON is UTF-8");
    let body = body(line.trim_end()).expect("its own sum").replacen("\"schema\":2", "\"schema\":1", 1);
    let older = format!("{{\"sum\":\"{:016x}\",\"boot\":{body}}}\n", fnv(body.as_bytes()));
    assert_ne!(older, line);
    assert_eq!(History::read(older.as_bytes()).records, [record("a", 1)]);
}

#[test]
fn boots_are_bounded_by_bytes_too() {
    let large = |id: &str| {
        let mut it = record(id, 1);
        it.node = "n".repeat(TOTAL / 4);
        it
    };
    let bytes = file(&["a", "b", "c", "d", "e", "f"].map(large));
    let less = compact(&bytes, 50).expect("too many bytes");
    assert!(less.len() <= TOTAL, "{}", less.len());
    assert_eq!(less, file(&["d", "e", "f"].map(large)), "the last ones stay");
    // However large they are, this boot and the one before stay.
    let huge = |id: &str| Record { node: "n".repeat(TOTAL), ..record(id, 1) };
    assert_eq!(compact(&file(&["a", "b", "c"].map(huge)), 50), Some(file(&["b", "c"].map(huge))));
    assert_eq!(compact(&file(&["b", "c"].map(huge)), 50), None);
}

#[test]
fn a_heartbeat_is_one_or_none() {
    let pods = vec![pod(); 20];
    let beat = Heartbeat {
        boot_id: "b".to_owned(),
        boot_wall_ns: 1_795_000_000_000_000_000,
        at: Timestamp(5),
        ended: true,
        running: RunningPods { pods, pods_left_out: 2 },
    };
    let bytes = heartbeat(&beat).expect("JSON");
    assert_eq!(beat.wall_ns(), 1_795_000_000_000_000_005);
    assert_eq!(read_heartbeat(&bytes), Some(beat));
    for cut in 0..bytes.len() - 1 {
        assert_eq!(read_heartbeat(&bytes[..cut]), None, "{cut}");
    }
}
