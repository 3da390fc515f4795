//! Whether the node is well, in one word: for engines that write conditions of nodes.
//!
//! **Invariant:** the document changes only when the verdict does. It has no time of the request and no count, because
//! some engines write the node's object whenever a byte of it differs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use schemars::JsonSchema;
use serde::Serialize;
use strum::IntoStaticStr;

use crate::{
    model::{change::Finding, finding::FindingKind, time::Timestamp},
    sink::{
        Label,
        jsonl::Version,
        loop_queue::{Client, Snapshot, Unanswered, View},
        wall_clock::Rfc3339,
    },
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
pub(super) struct Verdict {
    schema: Version,
    node: String,
    pub(super) status: Status,
    /// Why it is not ok: kinds of findings, `CniFailing`; or why it is unknown: `NotListed`, `SignalNotSeen`.
    pub(super) reasons: Vec<&'static str>,
    /// One sentence in ASCII of at most 80 bytes.
    pub(super) message: String,
    /// When the status was first told.
    since: Rfc3339,
}

impl Verdict {
    pub(super) fn is_ok(&self) -> bool {
        self.status == Status::Ok
    }

    /// Whether nothing is known only because the node has not been listed yet.
    pub(super) fn is_early(&self) -> bool {
        self.status == Status::Unknown && self.reasons == [Blindness::NotListed.into_str()]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "VerdictStatus")]
pub(super) enum Status {
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
struct Acute {
    kinds: BTreeSet<FindingKind>,
    has_listed: bool,
}

impl Acute {
    fn of<'a>(findings: impl IntoIterator<Item = &'a Finding>, has_listed: bool) -> Self {
        let acute = findings.into_iter().filter(|it| it.is_acute());
        Self { kinds: acute.map(|it| FindingKind::from(&it.kind)).collect(), has_listed }
    }
}

/// Gives the verdict to all who ask.
pub(crate) struct Judge {
    acute: View<Snapshot<Acute>>,
    /// Whether each signal on which findings depend is seen.
    sees_all: bool,
    tracker: Mutex<Tracker>,
}

impl Judge {
    pub(super) fn new(client: &Client, sees_all: bool) -> Self {
        let acute = View::snapshot(client, |agent| Acute::of(agent.engine.findings(), agent.has_listed));
        Self { acute, sees_all, tracker: Mutex::default() }
    }

    pub(super) async fn verdict(&self) -> Result<Verdict, Unanswered> {
        let snapshot = self.acute.get().await?;
        // No holder of the lock panics.
        let mut tracker = self.tracker.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(judge(&mut tracker, &snapshot.label, snapshot.now, &snapshot.value, self.sees_all))
    }
}

/// Remembers what was told, so that no state is told for less than its time.
#[derive(Debug, Default)]
struct Tracker {
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

/// The verdict after a look at the node.
fn judge(tracker: &mut Tracker, label: &Label, now: Timestamp, acute: &Acute, sees_all: bool) -> Verdict {
    let blindness = match (acute.has_listed, sees_all) {
        (false, _) => Some(Blindness::NotListed),
        (true, false) => Some(Blindness::SignalNotSeen),
        (true, true) => None,
    };
    let told = tracker.look(now, &acute.kinds, blindness.is_some());
    let (reasons, message) = match told.status {
        Status::Ok => (Vec::new(), "no critical finding is confirmed".to_owned()),
        Status::NotOk => {
            let reasons: Vec<_> = tracker.seen.keys().map(|kind| kind.word()).collect();
            let message = critical(&reasons);
            (reasons, message)
        }
        Status::Unknown => {
            let reasons = blindness.iter().map(|it| it.into_str()).collect();
            let message = blindness.map_or("", Blindness::message).to_owned();
            (reasons, message)
        }
    };
    let since = Rfc3339(label.wall_ns(told.since));
    Verdict { schema: Version, node: label.node.clone(), status: told.status, reasons, message, since }
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
pub(super) mod tests;
