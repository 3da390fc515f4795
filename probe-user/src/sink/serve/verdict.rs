//! Whether the node is well, in one word: for engines that write conditions of nodes.
//!
//! **Invariant:** the document changes only when the verdict does. It has no time of the request and no count, because
//! some engines write the node's object whenever a byte of it differs.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use strum::IntoStaticStr;

use crate::{
    model::{change::Finding, finding::FindingKind, time::Timestamp},
    sink::{Label, jsonl::Version, wall_clock::Rfc3339},
};

/// How long the node is told to be well, at least.
const OK_LEAST: Duration = Duration::from_secs(60);
/// How long a kind of finding stays a reason after it was last seen, and so how long the node is told not to be well,
/// at least.
const NOT_OK_LEAST: Duration = Duration::from_secs(300);
/// The longest message, bytes: node-problem-detector cuts off what is behind them.
const LONGEST: usize = 80;

/// The verdict on the node.
#[derive(Serialize, JsonSchema)]
pub(super) struct Verdict<'a> {
    schema: Version,
    node: &'a str,
    status: Status,
    /// Why it is not ok: kinds of findings, `CniFailing`; or why it is unknown: `NotListed`, `SignalNotSeen`.
    reasons: Vec<&'static str>,
    /// One sentence in ASCII of at most 80 bytes.
    message: String,
    /// When the status was first told.
    since: Rfc3339,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "VerdictStatus")]
enum Status {
    /// No critical finding is confirmed.
    Ok,
    NotOk,
    /// No critical finding is confirmed, but not all is seen.
    Unknown,
}

/// Why a verdict is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(const_into_str)]
enum Blindness {
    /// The first listing of the node is not complete.
    NotListed,
    /// A signal on which findings depend is not seen by any mechanism.
    SignalNotSeen,
}

impl Blindness {
    fn message(self) -> &'static str {
        match self {
            Self::NotListed => "the node has not been listed yet",
            Self::SignalNotSeen => "not all signals are seen: sandprobe doctor says which",
        }
    }
}

/// What is critical on the node at one moment.
#[derive(Debug, Default)]
pub(super) struct Acute {
    kinds: BTreeSet<FindingKind>,
    has_listed: bool,
}

impl Acute {
    pub(super) fn of<'a>(findings: impl IntoIterator<Item = &'a Finding>, has_listed: bool) -> Self {
        let acute = findings.into_iter().filter(|it| it.is_acute());
        Self { kinds: acute.map(|it| FindingKind::from(&it.kind)).collect(), has_listed }
    }
}

/// Remembers what was told, so that no state is told for less than its time.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    told: Option<Told>,
    /// The kinds that are reasons, and when each was last seen.
    seen: BTreeMap<FindingKind, Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    status: Status,
    since: Timestamp,
}

impl Tracker {
    /// The verdict after a look at the node.
    fn look(&mut self, now: Timestamp, kinds: &BTreeSet<FindingKind>, is_blind: bool) -> Told {
        if let Some(told) = self.told
            && told.status == Status::Ok
            && now.since(told.since) < OK_LEAST
        {
            return told;
        }
        self.seen.extend(kinds.iter().map(|kind| (*kind, now)));
        self.seen.retain(|_, last| now.since(*last) < NOT_OK_LEAST);
        let status = match (self.seen.is_empty(), is_blind) {
            (false, _) => Status::NotOk,
            (true, true) => Status::Unknown,
            (true, false) => Status::Ok,
        };
        let same = self.told.filter(|told| told.status == status);
        *self.told.insert(same.unwrap_or(Told { status, since: now }))
    }
}

/// The verdict after a look at the node, and the status of the response.
pub(super) fn judge<'a>(
    tracker: &mut Tracker,
    label: &'a Label,
    now: Timestamp,
    acute: &Acute,
    sees_all: bool,
) -> (StatusCode, Verdict<'a>) {
    let blindness = match (acute.has_listed, sees_all) {
        (false, _) => Some(Blindness::NotListed),
        (true, false) => Some(Blindness::SignalNotSeen),
        (true, true) => None,
    };
    let told = tracker.look(now, &acute.kinds, blindness.is_some());
    let (code, reasons, message) = match told.status {
        Status::Ok => (StatusCode::OK, Vec::new(), "no critical finding is confirmed".to_owned()),
        Status::NotOk => {
            let reasons: Vec<_> = tracker.seen.keys().map(|kind| kind.word()).collect();
            let message = critical(&reasons);
            (StatusCode::SERVICE_UNAVAILABLE, reasons, message)
        }
        Status::Unknown => {
            let reasons = blindness.iter().map(|it| it.into_str()).collect();
            let message = blindness.map_or("", Blindness::message).to_owned();
            (StatusCode::SERVICE_UNAVAILABLE, reasons, message)
        }
    };
    let since = Rfc3339(label.wall_ns(told.since));
    (code, Verdict { schema: Version, node: &label.node, status: told.status, reasons, message, since })
}

/// As many of the reasons as there is room for, and how many more there are.
fn critical(reasons: &[&str]) -> String {
    let with = |shown: usize| {
        let named = reasons.iter().take(shown).copied().collect::<Vec<_>>().join(", ");
        match reasons.len() - shown {
            0 => format!("critical: {named}"),
            more => format!("critical: {named} and {more} more"),
        }
    };
    (1..=reasons.len()).rev().map(with).find(|text| text.len() <= LONGEST).unwrap_or_default()
}

#[cfg(test)]
mod tests;
