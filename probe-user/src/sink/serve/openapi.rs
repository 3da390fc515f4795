//! The description of the API (OpenAPI 3.1). Its paths come from the table of routes, and its schemas from
//! the types that are serialized.

use std::sync::LazyLock;

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::{
    api::{BootList, FindingList, IncidentList, PodList, PoolList},
    health::Doctor,
    query::{EVENTS, Findings},
    reply::{Error, JSON},
    route::{Protection, ROUTES, Route},
};
use crate::sink::{
    render::jsonl::{Event, Explained, StreamNotice, schema},
    verdict::Verdict,
};

const TEXT: &str = "text/plain";
const LINES: &str = "application/x-ndjson";

/// The document as it is served.
pub(super) static DOCUMENT: LazyLock<String> = LazyLock::new(|| schema::text(&document()));

/// An operation of a path.
struct Operation {
    summary: &'static str,
    parameters: Vec<Value>,
    /// The responses by status.
    responses: Map<String, Value>,
}

fn document() -> Value {
    let mut generator = schema::generator("/components/schemas");
    let page = Route::of("/").map(|route| ("/", route));
    let paths: Map<String, Value> = page
        .into_iter()
        .chain(ROUTES)
        .map(|(path, route)| (path.to_owned(), json!({ "get": get(route, &mut generator) })))
        .collect();
    let error = generator.subschema_for::<Error<'_>>();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "sandprobe",
            "version": "1",
            "summary": "What the sandprobe agent of a node knows. Nothing can be changed.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "security": [{}, { "token": [] }, { "certificate": [] }],
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "responses": { "Error": response("The request failed.", JSON, error) },
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer" },
                "certificate": { "type": "mutualTLS" },
            },
        },
    })
}

fn get(route: Route, generator: &mut SchemaGenerator) -> Value {
    let Operation { summary, parameters, mut responses } = operation(route, generator);
    responses.insert("default".to_owned(), json!({ "$ref": "#/components/responses/Error" }));
    let mut get =
        Map::from_iter([("summary".to_owned(), summary.into()), ("responses".to_owned(), responses.into())]);
    if !parameters.is_empty() {
        get.insert("parameters".to_owned(), parameters.into());
    }
    if route.protection() == Protection::Open {
        get.insert("security".to_owned(), json!([]));
    }
    get.into()
}

/// A parameter that is a part of the path.
fn in_path(name: &str, description: &str) -> Value {
    json!({
        "name": name,
        "in": "path",
        "description": description,
        "schema": { "type": "string" },
        "required": true,
    })
}

fn operation(route: Route, generator: &mut SchemaGenerator) -> Operation {
    match route {
        Route::Page(_) => plain("The page.", "text/html"),
        Route::Docs => Operation {
            parameters: vec![in_path(
                "page",
                "runbooks/ALERT.md, findings/KIND.md or findings.md; /docs/ lists them.",
            )],
            ..plain("A page of the documentation.", "text/html")
        },
        Route::Healthz => plain("Whether the agent is alive: ok once its loop has answered.", TEXT),
        Route::Readyz => {
            let mut ready = plain(
                "Whether all is seen that is to be seen: ok, then what is degraded all the same, a line each.",
                TEXT,
            );
            let not =
                response("Not all is seen. The reasons, a line each.", TEXT, json!({ "type": "string" }));
            ready.responses.insert("503".to_owned(), not);
            ready
        }
        Route::Metrics => plain("Metrics in Prometheus' text format (docs/metrics.md).", TEXT),
        Route::Findings => Operation {
            parameters: Findings::NAMES.into_iter().map(parameter).collect(),
            ..object::<FindingList<'_>>("What is wrong on the node.", generator)
        },
        Route::Incidents => Operation {
            parameters: Findings::NAMES.into_iter().map(parameter).collect(),
            ..object::<IncidentList<'_>>(
                "What is wrong on the node, with what led to it: the incidents of which a finding is asked for.",
                generator,
            )
        },
        Route::Finding => Operation {
            parameters: vec![in_path("key", "The finding's key, or any part of it that no other has.")],
            ..object::<Explained<'_>>("One finding with all that explains it.", generator)
        },
        Route::Pods => object::<PodList<'_>>("The pods of the node and how they started.", generator),
        Route::Pools => object::<PoolList<'_>>(
            "The pools of addresses, and the balance of each CNI plugin and network.",
            generator,
        ),
        Route::Boot => object::<BootList<'_>>("What each restart of the node cost.", generator),
        Route::Doctor => object::<Doctor<'_>>("What the agent can see, and how it does.", generator),
        Route::Verdict => {
            let mut verdict = object::<Verdict>(
                "Whether the node is well, for engines that write conditions of nodes. Clients on the machine need no token.",
                generator,
            );
            let body = generator.subschema_for::<Verdict>();
            let not = response("It is not well, or that is not known.", JSON, body);
            verdict.responses.insert("503".to_owned(), not);
            verdict
        }
        Route::Events => events(generator),
        Route::State => answer(
            "Findings and starts in the form in which the state directory has them; for sandprobe's own commands.",
            JSON,
            json!({ "type": "object" }),
        ),
        Route::History => plain(
            "Boots in the form in which the state directory has them; for sandprobe's own commands.",
            LINES,
        ),
        Route::OpenApi => answer("This document (OpenAPI 3.1).", JSON, json!({ "type": "object" })),
    }
}

fn events(generator: &mut SchemaGenerator) -> Operation {
    let line = json!({
        "anyOf": [generator.subschema_for::<StreamNotice<'_>>(), generator.subschema_for::<Event<'_>>()],
    });
    let content = json!({
        LINES: { "schema": line },
        "text/event-stream": { "schema": { "type": "string" } },
    });
    let description = "One JSON object a line; server-sent events for a client that accepts those.";
    let ok = json!({ "description": description, "content": content });
    Operation {
        summary: "Events as they come.",
        parameters: EVENTS.into_iter().map(parameter).collect(),
        responses: Map::from_iter([("200".to_owned(), ok)]),
    }
}

fn object<T: JsonSchema>(summary: &'static str, generator: &mut SchemaGenerator) -> Operation {
    let schema = generator.subschema_for::<T>();
    answer(summary, JSON, schema)
}

fn plain(summary: &'static str, kind: &str) -> Operation {
    answer(summary, kind, json!({ "type": "string" }))
}

fn answer(summary: &'static str, kind: &str, schema: impl Into<Value>) -> Operation {
    let responses = Map::from_iter([("200".to_owned(), response(summary, kind, schema))]);
    Operation { summary, parameters: Vec::new(), responses }
}

fn response(description: &str, kind: &str, schema: impl Into<Value>) -> Value {
    json!({ "description": description, "content": { kind: { "schema": schema.into() } } })
}

/// A query parameter. An unknown name has no description, which a test finds.
fn parameter(name: &str) -> Value {
    let text = json!({ "type": "string" });
    let many = json!({ "type": "array", "items": { "type": "string" } });
    let (description, schema) = match name {
        "state" => {
            ("open, or all with closed findings.", json!({ "type": "string", "enum": ["open", "all"] }))
        }
        "kind" => ("Only findings of this kind; may be repeated.", many),
        "namespace" => ("Only of pods in this namespace; may be repeated.", many),
        "pod" => ("Only of pods of this name; may be repeated.", many),
        "container" => ("Only of containers of this name; may be repeated.", many),
        "event" => ("Only events of this kind; may be repeated.", many),
        "since" => (
            "Go on behind this event: its seq, or INSTANCE:SEQ as the stream gives it; without it, from now on.",
            text,
        ),
        "follow" => {
            ("false: end with what there is.", json!({ "type": "string", "enum": ["true", "false"] }))
        }
        _ => ("", text),
    };
    json!({ "name": name, "in": "query", "description": description, "schema": schema })
}

#[cfg(test)]
mod tests;
