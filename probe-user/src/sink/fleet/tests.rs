//! The tables hold what the lines have, and the documents and scripts are those of the code.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::Arc,
};

use serde_json::{Value, json};
use strum::VariantNames as _;

use super::{
    BOOTS, Context, EVENTS, FINDINGS, Rows, STARTS, TABLES, Table, cell::Cell, clickhouse, column::Column,
    columns, duckdb, line::Line,
};
use crate::{
    golden,
    model::phase,
    recording::Reader,
    session::Session,
    sink::{
        filter::Filter,
        jsonl::{Jsonl, tests::everything},
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
    // What it has of everything makes it incomparable; all its phases are as long as the first one.
    assert_eq!(empty(&STARTS, &starts), ["comparable", "slowest_plugin"]);
    let findings: Vec<Value> = events.iter().filter(|line| line.get("finding").is_some()).cloned().collect();
    // The plugin of these is not among their programs.
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
    // The same lines give the same bytes.
    let again = files(&lines);
    assert!(made.iter().zip(&again).all(|(one, other)| one.bytes == other.bytes));
}

#[test]
fn a_line_that_is_none_of_ours_is_refused_with_the_reason() {
    let contexts = BTreeMap::new();
    let mut rows = Rows::new(&contexts);
    let mut why = |line: &str| rows.add_line(line.as_bytes()).expect_err(line).to_string();
    assert!(why("{").starts_with("it is no line of sandprobe's JSON (EOF"));
    assert_eq!(why("{}"), "it is none that sandprobe writes with -o json");
    assert_eq!(why(r#"{"schema":2}"#), "it has schema 2, and this sandprobe knows 1");
    assert_eq!(why(r#"{"schema":1,"event":"gap"}"#), "it has no text as \"node\", for the column node");
    assert_eq!(
        why(r#"{"schema":1,"event":"gap","node":"n","boot_id":"b","at":"then","seq":1}"#),
        "it has no time of these centuries as \"at\", for the column ts"
    );
    assert_eq!(why(r#"{"schema":1}"#), "it is none that sandprobe writes with -o json");
    // What tells of the stream itself has no row.
    assert!(rows.add_line(br#"{"schema":1,"event":"stream.missed","stream":{}}"#).is_ok());
    assert!(rows.add_line(br#"{"average":{}}"#).is_ok());
    assert!(matches!(rows.finish(), Ok(files) if files.is_empty()));
}
