//! JSON schemas of all that is written, made from the types that are serialized.
//!
//! **Invariant:** every object is closed: one with a member that its type does not have does not match.

use std::borrow::Cow;

use schemars::{
    Schema, SchemaGenerator,
    generate::SchemaSettings,
    transform::{Transform, transform_subschemas},
};
use serde_json::{Value, json};

use super::{Event, StreamNotice};

/// One whose definitions are to stand at `path` in the document.
pub(crate) fn generator(path: &'static str) -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let place = |settings: &mut SchemaSettings| settings.definitions_path = Cow::Borrowed(path);
    settings.with(place).with_transform(Closed).into_generator()
}

/// The schema of the event stream: of each of its lines.
#[must_use]
pub fn events() -> String {
    let mut generator = generator("/$defs");
    let notice = generator.subschema_for::<StreamNotice<'_>>();
    let event = generator.subschema_for::<Event<'_>>();
    text(&json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of sandprobe's event stream",
        "anyOf": [event, notice],
        "$defs": generator.take_definitions(true),
    }))
}

/// A document, as it is served and kept.
pub(crate) fn text(document: &Value) -> String {
    // Its keys are strings: that does not fail.
    let mut text = serde_json::to_string_pretty(document).unwrap_or_default();
    text.push('\n');
    text
}

/// Closes objects, and takes null from members that are absent when they are not known.
#[derive(Clone, Debug)]
struct Closed;

impl Transform for Closed {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(object) = schema.as_object_mut() else { return };
        let required = object.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        let Some(Value::Object(properties)) = object.get_mut("properties") else { return };
        for (name, property) in properties {
            if !required.iter().any(|it| it == name) {
                without_null(property);
            }
        }
        object.entry("additionalProperties").or_insert(Value::Bool(false));
    }
}

fn without_null(property: &mut Value) {
    let Some(object) = property.as_object_mut() else { return };
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|it| it != "null");
        if let [one] = &**types {
            let one = one.clone();
            object.insert("type".to_owned(), one);
        }
    }
    if let Some(Value::Array(any)) = object.get_mut("anyOf") {
        any.retain(|it| it["type"] != "null");
        if let [Value::Object(one)] = &mut **any {
            let one = std::mem::take(one);
            object.remove("anyOf");
            object.extend(one);
        }
    }
}

#[cfg(test)]
pub(in crate::sink) mod tests;
