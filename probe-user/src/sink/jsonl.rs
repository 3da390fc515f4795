//! One JSON object a line, for programs. `docs/events.md` describes every member; a test keeps the two the same.
//!
//! **Invariant:** members always come in the same order; one that is not known is absent, never null; a number that
//! may pass 2^53 (ids of 64 bits, nanoseconds) is a decimal string.

pub mod boot;
mod event;
pub(crate) mod finding;
pub mod pod;
mod start;

use event::Event;
use serde::Serialize;

use super::{Format, Label, evidence, meaning, repair};
use crate::{
    engine::{share::Share, view::PodView},
    model::{
        change::Change,
        finding::Finding,
        phase::{self},
    },
};

/// The version of what is written. Members may be added within one; a member that goes or changes raises it.
pub const SCHEMA: u32 = 1;

#[derive(Debug, Default)]
pub struct Jsonl;

impl Format for Jsonl {
    fn write(&mut self, change: &Change, label: &Label, out: &mut Vec<u8>) {
        line(&Event::of(change, label), out);
    }

    fn missed(&mut self, count: u64, label: &Label, out: &mut Vec<u8>) {
        let stream = Missed { why: "slow", missed: count.to_string() };
        let Label { node, boot_id, .. } = label;
        line(&About { schema: SCHEMA, node, boot_id, event: "stream.missed", stream }, out);
    }
}

/// A word of the stream about itself, in the form of those of the API's.
#[derive(Serialize)]
struct About<'a> {
    schema: u32,
    node: &'a str,
    boot_id: &'a str,
    event: &'static str,
    stream: Missed,
}

#[derive(Serialize)]
struct Missed {
    why: &'static str,
    /// A decimal string.
    missed: String,
}

/// One finding, as a whole line.
pub fn finding(it: &Finding, label: &Label, out: &mut Vec<u8>) {
    line(&finding::Finding::of(it, label), out);
}

/// One finding as it stands in an event, as a value to be put into another object.
#[must_use]
pub fn found<'a>(it: &'a Finding, label: &Label) -> impl Serialize + use<'a> {
    finding::Finding::of(it, label)
}

/// One finding with all that explains it.
#[derive(Serialize)]
struct Explained<'a> {
    #[serde(flatten)]
    finding: finding::Finding<'a>,
    evidence: Vec<Event<'a>>,
    cause: &'a str,
    known: &'a [&'a str],
    repair: &'a [String],
    documentation: &'a str,
}

/// One finding and all that explains it, as a whole line.
pub fn explained(it: &Finding, label: &Label, out: &mut Vec<u8>) {
    let evidence = evidence::changes(it);
    let explained = Explained {
        finding: finding::Finding::of(it, label),
        evidence: evidence.iter().map(|change| Event::of(change, label)).collect(),
        cause: meaning::cause(&it.kind),
        known: meaning::known(&it.kind),
        repair: &repair::repair(it),
        documentation: &meaning::page(&it.kind),
    };
    line(&explained, out);
}

/// One pod, as a whole line.
pub fn pod(it: &PodView, out: &mut Vec<u8>) {
    line(&pod::object(it), out);
}

/// One start, as a whole line.
pub fn started(it: &phase::Start, label: &Label, out: &mut Vec<u8>) {
    line(&start::Line::of(it, label), out);
}

/// How long a phase takes on the node, as a value to be put into another object.
#[must_use]
pub fn shared(it: &Share) -> impl Serialize + '_ {
    start::Shared::of(it)
}

/// How long a phase takes on the node, as a whole line.
pub fn share(it: &Share, out: &mut Vec<u8>) {
    line(&start::Shared::of(it), out);
}

fn line(it: &impl Serialize, out: &mut Vec<u8>) {
    // Neither fails: the keys are strings, and a vector takes all.
    if serde_json::to_writer(&mut *out, it).is_ok() {
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests;
