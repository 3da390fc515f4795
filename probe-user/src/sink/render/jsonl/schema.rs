//! JSON schemas of all output, made from the types that are serialized.
//!
//! **Invariant:** every object is closed: an object with a member that its type does not have does not match.

use std::borrow::Cow;

use schemars::{
    Schema, SchemaGenerator,
    generate::SchemaSettings,
    transform::{Transform, transform_subschemas},
};
use serde_json::{Value, json};

use super::{Event, StreamNotice};

/// Returns a generator that puts the definitions at `path` in the document.
pub(crate) fn generator(path: &'static str) -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings
        .with(|settings| settings.definitions_path = Cow::Borrowed(path))
        .with_transform(Closed)
        .into_generator()
}

/// The schema of every line of the event stream.
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

/// The text of a document, as it is served and kept.
pub(crate) fn text(document: &Value) -> String {
    // This cannot fail, because all keys are strings.
    let mut text = serde_json::to_string_pretty(document).unwrap_or_default();
    text.push('\n');
    text
}

/// Closes objects, and removes null from the types of members that are absent when they are unknown.
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
