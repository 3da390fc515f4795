//! The document is up to date, and every object in it is closed.

use serde_json::Value;

use super::{DOCUMENT, document};
use crate::golden;

#[test]
fn the_document_is_the_one_that_is_kept() {
    golden::expect("docs/openapi.json", &DOCUMENT);
}

#[test]
fn every_parameter_is_described() {
    let document = document();
    let paths = document["paths"].as_object().expect("paths");
    let parameters = paths.values().filter_map(|path| path["get"]["parameters"].as_array()).flatten();
    let described =
        parameters.map(|it| (&it["name"], it["description"].as_str().is_some_and(|it| !it.is_empty())));
    let described: Vec<(&Value, bool)> = described.collect();
    assert!(described.len() > 10, "{described:?}");
    assert!(described.iter().all(|(_, is)| *is), "{described:?}");
}
