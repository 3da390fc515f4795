//! The tables have the values of the lines, and the documents and scripts match the code.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::Arc,
};

use serde_json::{Value, json};
use strum::VariantNames as _;

use super::{
    BOOTS, Context, EVENTS, FINDINGS, Missed, RESTARTS, Rows, STARTS, TABLES, Table, cell::Cell, clickhouse,
    column::Column, columns, duckdb, line::Line,
};
use crate::{
    engine::boot::report::{NodeBoot, RecoveryReport},
    golden,
    model::{
        change::{End, Process},
        id::TaskKey,
        phase,
        recovery::{
            BootRead, Calls, DaemonEnd, FirstPod, HeldPod, Kind, LessNetwork, Pod, Recovery, Restart,
            RestartClose, Restarts, TimedSource, Told as ToldBy,
        },
        time::Timestamp,
    },
    recording::Reader,
    session::Session,
    sink::{
        render::jsonl::{Jsonl, boot, tests::everything},
        select::filter::Filter,
    },
};

#[test]
fn the_documents_and_scripts_are_those_of_the_code() {
    golden::expect("deploy/fleet/clickhouse/tables.sql", &clickhouse::script());
    golden::expect("deploy/fleet/duckdb/tables.sql", &duckdb::views());
    let head = "# The tables of `sandprobe export`\n\n\
                What `sandprobe export --print columns` prints; [fleet.md](fleet.md) says how to fill and to ask them.\n\
                Times are UTC, to the nanosecond; what ends in `_ns` is nanoseconds. *From* names the member of the lines\n\
                ([events.md](events.md), [findings.md](findings.md), [boot.md](boot.md)); where several are named, the first that\n\
                is there counts. *The boot* is the boot's row in `boots`.\n\n";
    golden::expect("docs/fleet-tables.md", &format!("{head}{}\n", columns().trim_end()));
}

/// The columns that have no value in any of these lines. A member whose name is wrong would have none.
fn empty(table: &'static Table, lines: &[Value]) -> Vec<&'static str> {
    let context = Context {
        kernel: Some("6.12".to_owned()),
        runtime: Some("containerd 2.1.4".to_owned()),
        kubelet: Some("kubelet 1.34.0".to_owned()),
        labels: Arc::new(BTreeMap::from([("pool".to_owned(), "blue".to_owned())])),
    };
    let is_empty = |column: &&Column| {
        let values = lines.iter().map(|value| column.value(&Line { value, context: &context }));
        values.into_iter().all(|cell| match cell {
            Cell::Null | Cell::Flag(false) => true,
            Cell::Map(entries) => entries.is_empty(),
            Cell::Text(_) | Cell::Integer(_) | Cell::Flag(true) => false,
        })
    };
    table.columns().filter(is_empty).map(|column| column.name).collect()
}

#[test]
fn every_column_has_the_value_of_its_member() {
    let events = everything();
    assert_eq!(empty(&EVENTS, &events), Vec::<&str>::new());
    let starts: Vec<Value> = events.iter().filter(|line| line.get("start").is_some()).cloned().collect();
    // The start has every mark, so it is not comparable; all its phases are as long as the first one.
    assert_eq!(empty(&STARTS, &starts), ["comparable", "slowest_plugin"]);
    let findings: Vec<Value> = events.iter().filter(|line| line.get("finding").is_some()).cloned().collect();
    // The plugin of these findings is not among their programs.
    assert_eq!(empty(&FINDINGS, &findings), ["plugin_version"]);
    let mut leak =
        findings.iter().find(|line| line["finding"]["kind"] == "leaked_address").expect("one").clone();
    leak["finding"]["programs"] = json!([{ "path": "/opt/cni/bin/bridge", "version": "1.6.2" }]);
    assert!(!empty(&FINDINGS, &[leak]).contains(&"plugin_version"));
    let boot = json!({
        "node": "edge-1", "boot_id": "b", "boot_wall_ns": "5", "zero": "order", "no_order": "not_seen",
        "order": { "by": "reboot", "wall_ns": "1" },
        "columns": { "kubelet_ns": "1", "static_pod_ns": "2", "first_service_ns": "3", "last_service_ns": "4" },
        "periods": { "first_ns": "1", "second_ns": "2", "third_ns": "3", "fourth_ns": "4" },
        "whole_ns": "4", "target": { "target_ns": "9", "outcome": "met" }, "recovered": "started", "close": "all",
        "cni": { "failed": 4, "hung": 1, "plugin": "flannel", "lost_ns": "9" }, "late": true, "inexact": [],
        "milestones": [{ "boot_ns": "7" }], "pods": [{ "boot_ns": "8", "listening_boot_ns": "9" }], "missing": ["a/b"],
    });
    assert_eq!(empty(&BOOTS, &[boot]), Vec::<&str>::new());
    assert_eq!(empty(&RESTARTS, &restarts()), Vec::<&str>::new());
}

fn at(second: u64) -> Timestamp {
    Timestamp(second * 1_000_000_000)
}

/// Two restarts with everything that one can have, as `boot --restarts -o json` writes them.
fn restarts() -> Vec<Value> {
    let pod = |name: &str| Pod {
        namespace: Some("default".to_owned()),
        name: Some(name.to_owned()),
        uid: None,
        kind: Kind::Service,
        listens: false,
        interfaces: Vec::new(),
    };
    let by = || Process { key: TaskKey::new(7, 0), parent: TaskKey::default(), comm: "systemd".to_owned() };
    let held = |name: &str, replaced, until: Option<u64>| HeldPod {
        pod: pod(name),
        replaced,
        since: at(100),
        until: until.map(at),
    };
    let began = || {
        let (comm, was) = ("containerd".to_owned(), "containerd 2.1.4".to_owned());
        Restart { comm, was, ran_since: at(40), noticed_at: at(100), ..Restart::default() }
    };
    let killed = End { code: 137, signal: Some(9), killer: Some(by()), oom: true };
    let whole = Restart {
        is: Some("containerd 2.1.5".to_owned()),
        ended: Some(DaemonEnd {
            at: at(100),
            end: killed.clone(),
            told: Some(ToldBy { signal: 15, by: by() }),
        }),
        started: Some(TimedSource::hooked(at(101))),
        answers: Some(TimedSource::hooked(at(102))),
        again: 2,
        ended_again: Some(DaemonEnd { at: at(100), end: killed, told: None }),
        first_pod: Some(FirstPod { pod: pod("web-0"), at: at(103) }),
        held: vec![held("web-0", false, Some(103)), held("db-0", true, Some(109))],
        calls: Calls { cut_off: 1, killed: 2, failed: 3, hung: 4 },
        less_network: vec![LessNetwork { pod: pod("db-0"), missing: vec!["net1".to_owned()] }],
        close: Some(RestartClose::AsBefore),
        closed_at: Some(at(222)),
        ..began()
    };
    let waiting =
        Restart { held: vec![held("web-9", false, None)], held_left_out: 3, noticed_at: at(150), ..began() };
    let boot = BootRead { boot_id: "b".to_owned(), ..BootRead::default() };
    let restarts = Restarts { open: vec![waiting], past: vec![whole], ..Restarts::default() };
    let recovery = Recovery { boot: Some(boot), restarts, ..Recovery::default() };
    let study = RecoveryReport::of(&recovery, at(300));
    let (told, _) = boot::restarts(&[NodeBoot { node: "edge-1", recovery: &recovery, report: &study }]);
    told.iter().map(|it| serde_json::to_value(it).expect("JSON")).collect()
}

#[test]
fn a_restart_has_the_time_until_which_it_is_known() {
    let context = Context::default();
    let told = restarts();
    let all: Vec<BTreeMap<&str, Cell>> = told
        .iter()
        .map(|value| {
            let line = Line { value, context: &context };
            RESTARTS.columns().map(|column| (column.name, column.value(&line))).collect()
        })
        .collect();
    let [whole, waiting] = all.as_slice() else { panic!("{told:#?}") };
    let second = |seconds: i64| Cell::Integer(seconds * 1_000_000_000);
    let count = Cell::Integer;
    for (name, cell) in [
        ("ts", second(100)),
        ("seen_at", second(222)),
        ("whole_ns", second(9)),
        ("waited", count(1)),
        ("replaced", count(1)),
        ("waiting", count(0)),
        ("longest_wait_ns", second(9)),
        ("less_network", count(1)),
        ("end_seen", Cell::Flag(true)),
    ] {
        assert_eq!(whole[name], cell, "{name}");
    }
    for (name, cell) in [
        ("ts", second(150)),
        ("seen_at", second(150)),
        ("whole_ns", Cell::Null),
        ("close", Cell::Null),
        ("waiting", count(1)),
        ("again", count(0)),
        ("pods_left_out", count(3)),
        ("end_seen", Cell::Flag(false)),
    ] {
        assert_eq!(waiting[name], cell, "{name}");
    }
}

/// The latest report counts, whichever line comes first. Restarts of one program are distinguished by the
/// process that ended.
#[test]
fn a_restart_that_was_told_while_it_went_on_is_one_row() {
    let contexts = BTreeMap::new();
    let [whole, waiting] = &restarts()[..] else { panic!("two restarts") };
    let mut open = whole.clone();
    for absent in ["close", "closed_boot_ns"] {
        open.as_object_mut().expect("an object").remove(absent).expect(absent);
    }
    let mut later = whole.clone();
    later["ran_since_boot_ns"] = "1".into();
    let rows = |order: &[&Value]| {
        let mut rows = Rows::new(&contexts);
        order.iter().for_each(|it| rows.add(&json!({ "restart": it })).expect("a row"));
        let files = rows.finish().expect("files");
        files.into_iter().map(|file| (file.table.name, file.rows, file.bytes)).collect::<Vec<_>>()
    };
    let once = rows(&[whole]);
    assert_eq!(rows(&[whole, &open]), once);
    assert_eq!(rows(&[&open, whole]), once);
    assert_eq!(rows(&[whole, &later]).iter().map(|it| (it.0, it.1)).collect::<Vec<_>>(), [("restarts", 2)]);
    // The process is the same, so the restart is the same.
    assert_eq!(rows(&[waiting, whole]), once);
    let mut unknown = whole.clone();
    unknown.as_object_mut().expect("an object").remove("wall_ns").expect("a time");
    let why = Rows::new(&contexts).add(&json!({ "restart": unknown })).expect_err("no time").to_string();
    assert_eq!(why, "it has nothing for the column ts");
}

#[test]
fn every_phase_has_a_column() {
    let own: Vec<&str> = STARTS.own.iter().filter_map(|column| column.name.strip_suffix("_ns")).collect();
    // Listening is no phase of a start (docs/phases.md); its column is of another member.
    let missing: Vec<_> = phase::Kind::VARIANTS.iter().filter(|name| !own.contains(*name)).collect();
    assert_eq!(missing, Vec::<&&str>::new());
}

#[test]
fn a_key_and_the_time_that_counts_are_in_every_row() {
    for table in TABLES {
        for name in table.key.iter().copied().chain(table.latest).chain(["ts"]) {
            let column = table.columns().find(|column| column.name == name).expect(name);
            assert!(column.is_required, "{}.{name}", table.name);
        }
    }
}

fn demo() -> Vec<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/recordings/demo.jsonl");
    let recording = fs::read(file).expect("the recording");
    let mut reader = Reader::open(&recording[..]).expect("a recording");
    let mut session = Session::new(&reader.header().clone(), Filter::default(), Box::new(Jsonl));
    while let Some(call) = reader.next_call().expect("a whole recording") {
        session.call(call).expect("no recording is written");
    }
    let lines = String::from_utf8(session.output().clone()).expect("JSON is UTF-8");
    lines.lines().map(str::to_owned).collect()
}

#[test]
fn what_is_told_several_times_has_one_row_and_the_rest_a_row_each() {
    let contexts = BTreeMap::new();
    let files = |lines: &[String]| {
        let mut rows = Rows::new(&contexts);
        lines.iter().for_each(|line| rows.add_line(line.as_bytes()).expect("a line"));
        rows.finish().expect("files")
    };
    let lines = demo();
    let told = |member: &str, key: &str| {
        let values = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let keys = values.filter_map(|it| it.pointer(member)?.pointer(key).map(Value::to_string));
        keys.collect::<BTreeSet<_>>().len()
    };
    let made = files(&lines);
    let rows: Vec<_> = made.iter().map(|file| (file.table.name, file.rows)).collect();
    let count = |number: usize| u64::try_from(number).expect("few");
    assert_eq!(
        rows,
        [
            ("events", count(lines.len())),
            ("findings", count(told("/finding", "/key"))),
            ("starts", count(told("/start", "/begin_ns"))),
        ]
    );
    assert!(made.iter().all(|file| file.bytes.starts_with(b"PAR1") && file.bytes.ends_with(b"PAR1")));
    assert!(made.iter().all(|file| file.date.to_string() == "2026-11-21"), "{:?}", made[0].date);
    // Equal lines give equal bytes.
    let again = files(&lines);
    assert!(made.iter().zip(&again).all(|(one, other)| one.bytes == other.bytes));
}

#[test]
fn a_line_that_is_none_of_ours_is_refused_with_the_reason() {
    let contexts = BTreeMap::new();
    let mut rows = Rows::new(&contexts);
    let mut why = |line: &str| rows.add_line(line.as_bytes()).expect_err(line).to_string();
    assert!(why("{").starts_with("not JSON from sandprobe (EOF"));
    assert_eq!(why("{}"), "it is not a line that sandprobe writes with -o json");
    assert_eq!(why(r#"{"schema":2}"#), "it has schema 2, and this sandprobe knows 1");
    assert_eq!(why(r#"{"schema":1,"event":"gap"}"#), "it has no text as \"node\", for the column node");
    assert_eq!(
        why(r#"{"schema":1,"event":"gap","node":"n","boot_id":"b","at":"then","seq":1}"#),
        "it has no time of these centuries as \"at\", for the column ts"
    );
    assert_eq!(why(r#"{"schema":1}"#), "it is not a line that sandprobe writes with -o json");
    // A line about the stream itself has no row.
    assert!(rows.add_line(br#"{"schema":1,"event":"stream.missed","stream":{"missed":"311"}}"#).is_ok());
    assert_eq!(rows.missed(), Missed { events: 311, and_more: false });
    assert!(rows.add_line(br#"{"schema":1,"event":"stream.missed","stream":{}}"#).is_ok());
    assert_eq!(rows.missed(), Missed { events: 311, and_more: true });
    assert!(rows.add_line(br#"{"average":{}}"#).is_ok());
    assert!(rows.add_line(br#"{"restart_statistics":{}}"#).is_ok());
    assert!(matches!(rows.finish(), Ok(files) if files.is_empty()));
}
