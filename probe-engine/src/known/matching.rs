//! Finds the known problems that a finding is or may be.

use std::cmp::Reverse;

use serde_json::Value;

use super::{
    Catalogue, MAX_ALSO, Problem,
    file::{Condition, OneOf, Speaker},
    release,
};
use crate::model::{
    change::Finding,
    finding::{Detail, Kind},
};

/// A problem, and the parts of the words by which it was found.
#[derive(Debug)]
pub(super) struct Match<'a> {
    pub(super) problem: &'a Problem,
    pub(super) parts: Vec<(&'a str, &'a str)>,
    /// The members of the finding's kind.
    pub(super) members: Value,
}

/// Returns the problem that a program named, and those that are known by members alone.
pub(super) fn problems<'a>(
    catalogue: &'a Catalogue,
    finding: &'a Finding,
) -> (Option<Match<'a>>, Vec<Match<'a>>) {
    let kind = finding.kind.into_str();
    let members = serde_json::to_value(Detail(&finding.kind)).unwrap_or_default();
    let said = said(&finding.kind);
    let mut named = Vec::new();
    let mut also = Vec::new();
    for problem in catalogue.problems() {
        for condition in &problem.conditions {
            if !condition.kinds.iter().any(|it| it == kind) || !condition.admits(&members) {
                continue;
            }
            let Some(words) = &condition.words else {
                if !release::are_fixed(&problem.fixes, finding) {
                    also.push(Match { problem, parts: Vec::new(), members: members.clone() });
                }
                break;
            };
            let of_speaker = said.iter().filter(|(speaker, _)| condition.from == Some(*speaker));
            let found = of_speaker.filter_map(|(_, text)| words.find(text)).next();
            if let Some(parts) = found {
                named.push((words.weight(), Match { problem, parts, members: members.clone() }));
            }
        }
    }
    // The one with the most words says the most.
    let named = named.into_iter().min_by_key(|(weight, it)| (Reverse(*weight), &it.problem.id));
    let named = named.map(|(_, it)| it);
    also.retain(|it| named.as_ref().is_none_or(|named| named.problem.id != it.problem.id));
    also.truncate(MAX_ALSO);
    (named, also)
}

/// Returns what programs of the node said about it, and who. The most important first.
fn said(kind: &Kind) -> Vec<(Speaker, &str)> {
    let Kind::CniFailing(it) = kind else { return Vec::new() };
    // If the messages differ, the latest is one of them.
    let mut all: Vec<&str> = it.messages.iter().map(|said| &*said.text).collect();
    if all.is_empty() {
        all.extend(it.message.as_ref().and_then(|message| message.text.as_deref()));
    }
    all.into_iter().map(|text| (Speaker::Plugin, text)).collect()
}

impl Condition {
    /// Whether these members of a finding are what the condition asks for.
    fn admits(&self, members: &Value) -> bool {
        self.members.iter().all(|(path, values)| reach(members, path).iter().any(|it| values.has(it)))
            && self.has.iter().all(|path| !reach(members, path).is_empty())
            && self.lacks.iter().all(|path| reach(members, path).is_empty())
    }
}

impl OneOf {
    fn has(&self, value: &Value) -> bool {
        let text = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        self.values().contains(&text)
    }
}

/// Returns the values to which a path such as `a.b` leads, through objects and lists of objects. An empty
/// list, text or object is no value.
pub(super) fn reach<'a>(from: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut reached = vec![from];
    for name in path.split('.') {
        let mut next = Vec::new();
        for value in reached {
            match value {
                Value::Array(all) => next.extend(all.iter().filter_map(|it| it.get(name))),
                other => next.extend(other.get(name)),
            }
        }
        reached = next;
    }
    reached.retain(|value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(all) => !all.is_empty(),
        Value::Object(all) => !all.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    });
    reached
}
