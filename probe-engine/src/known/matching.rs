//! Finds the known problems that a finding is or may be.

use std::cmp::Reverse;

use probe_common::runtime::RUNTIMES;
use serde_json::Value;

use super::{Catalogue, Problem, file::Condition, release};
use crate::model::{
    change::Finding,
    fact::Speaker,
    finding::{Detail, Kind},
};

/// The agent keeps no longer messages. A recording may have them.
const MAX_TEXT: usize = 4096;

/// A problem that a program named, and the parts of its words.
#[derive(Debug)]
pub(super) struct Named<'a> {
    pub(super) problem: &'a Problem,
    pub(super) parts: Vec<(&'a str, &'a str)>,
}

/// The problems of a finding.
#[derive(Debug)]
pub(super) struct Matches<'a> {
    pub(super) named: Option<Named<'a>>,
    /// What findings with these members can be, in the order of their ids.
    pub(super) possible: Vec<&'a Problem>,
    /// The members of the finding's kind.
    pub(super) members: Value,
}

impl<'a> Matches<'a> {
    pub(super) fn of(catalogue: &'a Catalogue, finding: &'a Finding) -> Self {
        let members = serde_json::to_value(Detail(&finding.kind)).unwrap_or_default();
        let mut with_words = Vec::new();
        let mut possible: Vec<&Problem> = Vec::new();
        for problem in catalogue.problems() {
            for condition in problem.conditions.iter().filter(|it| it.admits(finding, &members)) {
                if let Some(words) = &condition.words {
                    with_words.push((problem, condition.from, words));
                } else if !release::are_excluded(&problem.fixes, finding)
                    && possible.last().is_none_or(|last| last.id != problem.id)
                {
                    possible.push(problem);
                }
            }
        }
        // The first message that names a problem counts, and of its patterns the one with the longest text.
        let mut named = None;
        for (speaker, text) in said(&finding.kind) {
            let mut found = Vec::new();
            for (problem, from, words) in &with_words {
                if from.is_some_and(|from| from.repeats(speaker))
                    && let Some(parts) = words.find(text)
                {
                    found.push((Reverse(words.weight()), Named { problem, parts }));
                }
            }
            named = found.into_iter().min_by_key(|(weight, it)| (*weight, &it.problem.id)).map(|(_, it)| it);
            if named.is_some() {
                break;
            }
        }
        if let Some(named) = &named {
            possible.retain(|it| it.id != named.problem.id);
        }
        Self { named, possible, members }
    }

    /// Returns the problem that was named, then the possible ones.
    pub(super) fn problems(&self) -> impl Iterator<Item = &'a Problem> {
        self.named.iter().map(|it| it.problem).chain(self.possible.iter().copied())
    }
}

/// Returns what programs of the node said about it, and who: first what concerns the most pods, or what is
/// most telling.
fn said(kind: &Kind) -> Vec<(Speaker, &str)> {
    let mut all: Vec<(Speaker, &str)> = Vec::new();
    if let Kind::CniFailing(it) = kind {
        all.extend(it.messages.iter().map(|said| (Speaker::Plugin, &*said.text)));
        let latest = it.message.as_ref().and_then(|message| message.text.as_deref());
        let latest = latest.map(|text| (Speaker::Plugin, text));
        all.extend(latest.filter(|said| !all.contains(said)));
    }
    all.extend(kind.said().iter().map(|it| (it.by, &*it.text)));
    all.into_iter().map(|(by, text)| (by, &text[..text.floor_char_boundary(MAX_TEXT)])).collect()
}

impl Condition {
    /// Whether a finding with these members is what the condition asks for, but for its words.
    fn admits(&self, finding: &Finding, members: &Value) -> bool {
        let kind = finding.kind.into_str();
        self.kinds.iter().any(|it| it == kind)
            && self
                .members
                .iter()
                .all(|(path, values)| reach(members, path).iter().any(|it| values.contains(&text(it))))
            && self.has.iter().all(|path| !reach(members, path).is_empty())
            && self.lacks.iter().all(|path| reach(members, path).is_empty())
            && self.runtime.as_ref().is_none_or(|runtime| may_be_runtime(runtime, finding))
    }
}

/// Whether this runtime took part in the finding, or it is unknown which one did.
fn may_be_runtime(runtime: &str, finding: &Finding) -> bool {
    let names = finding.programs.iter().filter_map(|it| it.path.rsplit('/').next());
    let mut runtimes = names.filter(|name| RUNTIMES.iter().any(|row| row.daemon == *name)).peekable();
    runtimes.peek().is_none() || runtimes.any(|name| name == runtime)
}

/// Returns a text, or a number or truth value as JSON has it.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
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
