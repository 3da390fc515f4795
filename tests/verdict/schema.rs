//! Checks every event of a story against `docs/events.schema.json`.

use std::sync::LazyLock;

use jsonschema::Validator;
use probe_user::{
    model::change::Change,
    sink::{Format as _, Label, render::jsonl::Jsonl},
};
use serde_json::Value;

static SCHEMA: LazyLock<Validator> = LazyLock::new(|| {
    let schema: Value = serde_json::from_str(include_str!("../../docs/events.schema.json")).expect("JSON");
    jsonschema::draft202012::new(&schema).expect("a schema")
});

/// Panics with each member of the event that is wrong, missing or not described.
pub(crate) fn check(change: &Change) {
    let label = Label { node: "node".to_owned(), boot_id: "boot".to_owned(), boot_wall_ns: 0 };
    let mut line = Vec::new();
    Jsonl.write(change, &label, &mut line);
    let event: Value = serde_json::from_slice(&line).expect("JSON");
    let wrong: Vec<String> =
        SCHEMA.iter_errors(&event).map(|it| format!("{}: {it}", it.instance_path())).collect();
    assert!(wrong.is_empty(), "docs/events.schema.json: {wrong:#?}\n{event}");
}
