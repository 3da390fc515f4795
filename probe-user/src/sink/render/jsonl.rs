//! One JSON object a line, for programs. `docs/events.md` describes every member; a test keeps the two the
//! same.
//!
//! **Invariant:** members always come in the same order; an unknown member is absent, never null; a number
//! that may pass 2^53 (ids of 64 bits, nanoseconds) is a decimal string.

pub mod boot;
mod event;
mod finding;
mod incident;
mod kernel;
pub mod pod;
mod scalar;
pub mod schema;
mod start;
mod stream;

use schemars::JsonSchema;
use serde::Serialize;

use super::evidence;
use crate::{
    engine::{incident::Incidents, share::Share, view::PodView},
    known::{Catalogue, FixedIn, Known},
    model::{self, change::Change, finding::Key, phase},
    sink::{Format, Label, Missing},
};

pub(crate) use event::Event;
pub use finding::Finding;
pub use incident::{Incident, PlacedFinding};
pub use pod::Pod;
pub(crate) use scalar::{Decimal, Version};
pub use start::{PhaseMeaning, Shared, legend};
pub use stream::{MissedBecause, StreamEvent};
pub(crate) use stream::{StreamNotice, StreamState};

/// The version of the lines. A new member does not change it; a removed or changed member raises it.
pub const SCHEMA: u32 = 1;

#[derive(Debug, Default)]
pub struct Jsonl;

impl Format for Jsonl {
    fn write(&mut self, change: &Change, label: &Label, out: &mut Vec<u8>) {
        line(&Event::of(change, label), out);
    }

    fn missed(&mut self, count: u64, why: Missing, label: &Label, out: &mut Vec<u8>) {
        let notice = StreamNotice {
            schema: Version,
            node: &label.node,
            boot_id: &label.boot_id,
            event: StreamEvent::Missed,
            stream: StreamState {
                why: Some(match why {
                    Missing::Unwritten => MissedBecause::Slow,
                    Missing::Rate => MissedBecause::Rate,
                }),
                missed: Some(Decimal(count)),
                ..StreamState::default()
            },
        };
        line(&notice, out);
    }
}

/// Writes one finding as a whole line.
pub fn finding(it: &model::change::Finding, label: &Label, out: &mut Vec<u8>) {
    line(&Finding::of(it, label), out);
}

/// Writes one finding with its place among the incidents as a whole line.
pub fn placed<'a>(
    it: &'a model::change::Finding,
    incidents: &Incidents<'a>,
    label: &Label,
    out: &mut Vec<u8>,
) {
    line(&PlacedFinding::of(it, incidents, label), out);
}

/// A finding with its evidence, its cause, reports of the same cause, and how to repair it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Explained<'a> {
    #[serde(flatten)]
    finding: PlacedFinding<'a>,
    /// The findings that led to this one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<incident::Cause<'a>>,
    /// The keys of the findings that it led to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    effects: Vec<&'a Key>,
    /// Programs whose later versions do not have this problem.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fixed_in: Vec<FixedIn<'a>>,
    /// The events of the finding's sandboxes, in order of time. If a sandbox has very many, only the first
    /// and the last are kept.
    evidence: Vec<Event<'a>>,
    /// How many events are not kept, between the first and the last ones of their sandboxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    evidence_left_out: Option<u64>,
    cause: &'a str,
    /// The problem that a program of the node named, then those that findings with these members can be.
    known: Vec<Known<'a>>,
    /// Commands, one each; lines that begin with `#` say what to check.
    repair: &'a [String],
    /// The page that describes findings of this kind.
    documentation: &'a str,
}

/// Writes one finding and all that explains it as a whole line.
pub fn explained<'a>(
    it: &'a model::change::Finding,
    incidents: &Incidents<'a>,
    label: &Label,
    out: &mut Vec<u8>,
) {
    let evidence = evidence::changes(it);
    let explanation = Catalogue::current().explain(it, &label.node);
    let place = incidents.place(&it.key);
    let explained = Explained {
        finding: PlacedFinding::of(it, incidents, label),
        causes: place.iter().flat_map(|it| &it.causes).map(incident::Cause::of).collect(),
        effects: place.iter().flat_map(|it| &it.effects).map(|it| &it.key).collect(),
        fixed_in: explanation.fixed_in,
        evidence: evidence.iter().map(|change| Event::of(change, label)).collect(),
        evidence_left_out: Some(evidence::left_out(it)).filter(|count| *count > 0),
        cause: explanation.cause,
        known: explanation.known,
        repair: &explanation.repair,
        documentation: &it.kind.page(),
    };
    line(&explained, out);
}

/// Writes one pod as a whole line.
pub fn pod(it: &PodView, out: &mut Vec<u8>) {
    line(&Pod::of(it), out);
}

/// Writes one start as a whole line.
pub fn started(it: &phase::Start, label: &Label, out: &mut Vec<u8>) {
    line(&start::Line::of(it, label), out);
}

/// Writes how long a phase takes on the node as a whole line.
pub fn share(it: &Share, out: &mut Vec<u8>) {
    line(&Shared::of(it), out);
}

/// Writes any object as a whole line.
pub(crate) fn line(it: &impl Serialize, out: &mut Vec<u8>) {
    // This cannot fail: all keys are strings, and a vector accepts every write.
    if serde_json::to_writer(&mut *out, it).is_ok() {
        out.push(b'\n');
    }
}

#[cfg(test)]
pub(in crate::sink) mod tests;
