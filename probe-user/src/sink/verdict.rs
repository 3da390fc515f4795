//! Whether the node is healthy, in one word, for programs that write conditions of nodes.
//!
//! **Invariant:** the document changes only when the verdict does. It has no time of the request and no
//! count, because some programs write the node's object whenever a byte of it differs.

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
        net::loop_queue::{Client, Snapshot, Unanswered, View},
        render::{jsonl::Version, wall_clock::Rfc3339},
    },
};

/// The shortest time for which the node is reported healthy.
const MIN_OK: Duration = Duration::from_secs(60);
/// How long a kind of finding stays a reason after it was last seen. So it is also the shortest time for
/// which the node is reported unhealthy.
const MIN_NOT_OK: Duration = Duration::from_secs(300);
/// The longest message, bytes. node-problem-detector cuts off the rest.
const MAX_MESSAGE: usize = 80;

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
    /// When the status was first reported.
    since: Rfc3339,
}

impl Verdict {
    pub(super) fn is_ok(&self) -> bool {
        self.status == Status::Ok
    }

    /// Whether the status is unknown only because the node has not been listed yet.
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
    /// No mechanism sees a signal on which findings depend.
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

/// The critical findings of the node at one moment.
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

/// Gives the verdict to all requests.
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

/// Remembers the reported status, so that each status is reported for its shortest time.
#[derive(Debug, Default)]
struct Tracker {
    reported: Option<Reported>,
    /// The kinds that are reasons, and when each was last seen.
    seen: BTreeMap<FindingKind, Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reported {
    status: Status,
    since: Timestamp,
}

impl Tracker {
    /// Returns the status after the node was checked.
    fn update(&mut self, now: Timestamp, kinds: &BTreeSet<FindingKind>, is_blind: bool) -> Reported {
        if let Some(reported) = self.reported
            && reported.status == Status::Ok
            && now.since(reported.since) < MIN_OK
        {
            return reported;
        }
        self.seen.extend(kinds.iter().map(|kind| (*kind, now)));
        self.seen.retain(|_, last| now.since(*last) < MIN_NOT_OK);
        let status = match (self.seen.is_empty(), is_blind) {
            (false, _) => Status::NotOk,
            (true, true) => Status::Unknown,
            (true, false) => Status::Ok,
        };
        let same = self.reported.filter(|reported| reported.status == status);
        *self.reported.insert(same.unwrap_or(Reported { status, since: now }))
    }
}

/// Makes the verdict from the critical findings of the node.
fn judge(tracker: &mut Tracker, label: &Label, now: Timestamp, acute: &Acute, sees_all: bool) -> Verdict {
    let blindness = match (acute.has_listed, sees_all) {
        (false, _) => Some(Blindness::NotListed),
        (true, false) => Some(Blindness::SignalNotSeen),
        (true, true) => None,
    };
    let Reported { status, since } = tracker.update(now, &acute.kinds, blindness.is_some());
    let (reasons, message) = match status {
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
    let since = Rfc3339(label.wall_ns(since));
    Verdict { schema: Version, node: label.node.clone(), status, reasons, message, since }
}

/// Lists the reasons for which the message has room, and how many more there are.
fn critical(reasons: &[&str]) -> String {
    for shown in (1..=reasons.len()).rev() {
        let named = reasons.iter().take(shown).copied().collect::<Vec<_>>().join(", ");
        let text = match reasons.len() - shown {
            0 => format!("critical: {named}"),
            more => format!("critical: {named} and {more} more"),
        };
        if text.len() <= MAX_MESSAGE {
            return text;
        }
    }
    String::new()
}

#[cfg(test)]
pub(super) mod tests;
