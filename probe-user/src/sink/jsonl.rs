//! One JSON object a line, for programs. `docs/events.md` describes every member; a test keeps the two the same.
//!
//! **Invariant:** members always come in the same order; one that is not known is absent, never null; a number that
//! may pass 2^53 (ids of 64 bits, nanoseconds) is a decimal string.

mod event;
pub(crate) mod finding;
mod start;

use event::Event;
use serde::Serialize;

use super::{Label, Sink};
use crate::engine::{
    change::Change,
    finding::Finding,
    phase::{self, Share},
};

/// The version of what is written. Members may be added within one; a member that goes or changes raises it.
pub const SCHEMA: u32 = 1;

#[derive(Debug, Default)]
pub struct Jsonl;

impl Sink for Jsonl {
    fn tell(&mut self, change: &Change, label: &Label, out: &mut Vec<u8>) {
        line(&Event::of(change, label), out);
    }
}

/// One finding, as a whole line.
pub fn finding(it: &Finding, label: &Label, out: &mut Vec<u8>) {
    line(&finding::Finding::of(it, label), out);
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

/// What is said of a finding beyond itself.
#[derive(Clone, Copy, Debug)]
pub struct Explanation<'a> {
    /// As it is told in a stream.
    pub evidence: &'a [Change],
    pub cause: &'a str,
    pub known: &'a [&'a str],
    pub repair: &'a [String],
    pub documentation: &'a str,
}

/// One finding and its explanation, as a whole line.
pub fn explained(it: &Finding, said: Explanation<'_>, label: &Label, out: &mut Vec<u8>) {
    let Explanation { evidence, cause, known, repair, documentation } = said;
    let evidence = evidence.iter().map(|change| Event::of(change, label)).collect();
    let finding = finding::Finding::of(it, label);
    line(&Explained { finding, evidence, cause, known, repair, documentation }, out);
}

/// A start as it stands in an event, as a value to be put into another object.
#[must_use]
pub fn start(it: &phase::Start) -> impl Serialize {
    start::Start::of(it)
}

/// One start, as a whole line.
pub fn started(it: &phase::Start, label: &Label, out: &mut Vec<u8>) {
    line(&start::Line::of(it, label), out);
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
