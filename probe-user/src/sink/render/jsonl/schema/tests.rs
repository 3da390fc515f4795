//! The output matches its schema, and the schema leaves nothing open.

use std::{fs::File, io::BufReader, path::Path};

use jsonschema::Validator;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::{super::Finding, events, generator};
use crate::{
    engine::Engine,
    golden,
    model::change::Output,
    recording::Reader,
    sink::{
        Format as _, Label, Missing,
        render::jsonl::{Jsonl, finding::tests as findings, start::Line, tests as changes},
    },
};

/// Fails with each member that is wrong, missing or not described.
#[track_caller]
pub(in crate::sink) fn matches(schema: &Validator, value: &Value) {
    let wrong: Vec<String> =
        schema.iter_errors(value).map(|it| format!("{}: {it}", it.instance_path())).collect();
    assert!(wrong.is_empty(), "{wrong:#?}\n{value}");
}

fn of_events() -> Validator {
    let schema = serde_json::from_str(&events()).expect("JSON");
    jsonschema::draft202012::new(&schema).expect("a schema")
}

fn of<T: JsonSchema>() -> Validator {
    let mut generator = generator("/$defs");
    let mut schema = Value::from(generator.subschema_for::<T>());
    schema["$defs"] = generator.take_definitions(true).into();
    jsonschema::draft202012::new(&schema).expect("a schema")
}

#[test]
fn the_schema_of_events_is_the_one_that_is_kept() {
    golden::expect("docs/events.schema.json", &events());
}

#[test]
fn each_kind_of_event_matches_with_all_its_members() {
    let schema = of_events();
    for what in changes::all() {
        let line = changes::line(&changes::full(what));
        matches(&schema, &serde_json::from_str(&line).expect("JSON"));
    }
    let mut missed = Vec::new();
    Jsonl.missed(3, Missing::Unwritten, &changes::label(), &mut missed);
    matches(&schema, &serde_json::from_slice(&missed).expect("JSON"));
}

#[test]
fn each_kind_of_finding_matches_with_all_its_members() {
    let schema = of::<Finding<'_>>();
    findings::all().into_iter().for_each(|kind| matches(&schema, &findings::written(kind)));
}

#[test]
fn a_start_matches_with_all_its_members() {
    let (start, label) = (changes::start(), changes::label());
    matches(&of::<Line<'_>>(), &serde_json::to_value(Line::of(&start, &label)).expect("JSON"));
}

/// Checks the engine's events of recorded runs.
#[test]
fn every_event_of_the_recordings_matches() {
    let schema = of_events();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/recordings");
    for name in ["demo.jsonl", "boots/restart.jsonl"] {
        let file = File::open(folder.join(name)).expect("the recording");
        let mut reader = Reader::open(BufReader::new(file)).expect("a recording");
        let header = reader.header().clone();
        let label = Label { node: header.node, boot_id: header.boot_id, boot_wall_ns: header.boot_wall_ns };
        let mut engine = Engine::new(header.settings);
        let mut count = 0;
        while let Some(call) = reader.next_call().expect("a call") {
            engine.call(call);
            while let Some(output) = engine.poll() {
                let Output::Change(change) = output else { continue };
                let mut line = Vec::new();
                Jsonl.write(&change, &label, &mut line);
                matches(&schema, &serde_json::from_slice(&line).expect("JSON"));
                count += 1;
            }
        }
        assert!(count > 100, "{name} has {count} events");
    }
}

#[test]
fn a_member_that_no_type_has_does_not_match() {
    #[derive(Serialize, JsonSchema)]
    struct Inner {
        known: u32,
    }
    #[derive(Serialize, JsonSchema)]
    struct Outer {
        #[serde(flatten)]
        inner: Inner,
        #[serde(skip_serializing_if = "Option::is_none")]
        absent: Option<String>,
    }
    let schema = of::<Outer>();
    assert!(
        schema.is_valid(
            &serde_json::to_value(Outer { inner: Inner { known: 1 }, absent: None }).expect("JSON")
        )
    );
    assert!(!schema.is_valid(&json!({ "known": 1, "other": 2 })));
    assert!(!schema.is_valid(&json!({ "known": 1, "absent": null })));
    assert!(!schema.is_valid(&json!({ "absent": "x" })));
}
