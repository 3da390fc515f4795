//! The node's condition `SandboxHealthy`: the verdict on the node, as `/v1/verdict` has it.

use std::time::Duration;

use jiff::Timestamp as WallTime;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::sink::verdict::{Status, Verdict};

pub(crate) const CONDITION: &str = "SandboxHealthy";

/// How often an unchanged condition is written. So a node whose agent is gone differs from a healthy node.
const HEARTBEAT: Duration = Duration::from_secs(300);

/// The node's condition, as it was written last.
#[derive(Debug, Default)]
pub(super) struct Condition {
    written: Option<(Instant, Words)>,
    /// What the API server has, if it is known; `Some(None)` if it has no such condition.
    known: Option<Option<Known>>,
}

/// A condition's status, and the time of its last transition, if that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) status: String,
    pub(super) since: Option<String>,
}

/// The content of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Words {
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Condition {
    pub(super) fn is_due(&self, verdict: &Verdict, now: Instant) -> bool {
        let words = Words::of(verdict);
        self.written
            .as_ref()
            .is_none_or(|(at, written)| *written != words || now.duration_since(*at) >= HEARTBEAT)
    }

    pub(super) fn knows(&self) -> bool {
        self.known.is_some()
    }

    /// Records what the API server has.
    pub(super) fn is_known(&mut self, known: Option<Known>) {
        self.known = Some(known);
    }

    /// The change of the node's status (strategic merge patch, which identifies conditions by their type). It
    /// has the whole condition, because somebody may have removed it, or have created the node's object
    /// again.
    pub(super) fn patch(&self, verdict: &Verdict, now: WallTime) -> Value {
        let Words { status, reason, message } = Words::of(verdict);
        let condition = json!({
            "type": CONDITION,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": seconds(now),
            "lastTransitionTime": self.since(status, now),
        });
        json!({ "status": { "conditions": [condition] } })
    }

    /// The transition time for this status: the known one if the condition has the status already, else now.
    fn since(&self, status: &str, now: WallTime) -> String {
        let same = self.known.iter().flatten().find(|known| known.status == status);
        same.and_then(|known| known.since.clone()).unwrap_or_else(|| seconds(now))
    }

    /// Records that the API server accepted the patch of this `wall` time.
    pub(super) fn written(&mut self, verdict: &Verdict, now: Instant, wall: WallTime) {
        let words = Words::of(verdict);
        let since = Some(self.since(words.status, wall));
        self.is_known(Some(Known { status: words.status.to_owned(), since }));
        self.written = Some((now, words));
    }
}

impl Words {
    fn of(verdict: &Verdict) -> Self {
        let (status, reason) = match verdict.status {
            Status::Ok => ("True", "NoCriticalFinding"),
            Status::NotOk => ("False", "CriticalFinding"),
            Status::Unknown => ("Unknown", verdict.reasons.first().copied().unwrap_or("Unknown")),
        };
        Self { status, reason, message: verdict.message.clone() }
    }
}

/// Formats the time in whole seconds, as the API server keeps it.
fn seconds(time: WallTime) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The fields that are read from the object in the API server's answer.
#[derive(Debug, Deserialize)]
pub(super) struct Answer {
    /// The count of an Event.
    pub(super) count: Option<i32>,
    status: Option<NodeStatus>,
}

#[derive(Debug, Deserialize)]
struct NodeStatus {
    #[serde(default)]
    conditions: Vec<NodeCondition>,
}

#[derive(Debug, Deserialize)]
struct NodeCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(rename = "lastTransitionTime")]
    since: Option<String>,
}

impl Answer {
    /// The node's condition of this type.
    pub(super) fn condition(self, kind: &str) -> Option<Known> {
        let mut conditions = self.status?.conditions.into_iter();
        let found = conditions.find(|it| it.kind == kind)?;
        Some(Known { status: found.status, since: found.since })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Condition, HEARTBEAT, Instant, Known, Value, WallTime, seconds};
    use crate::sink::verdict::{Status, Verdict, tests::verdict};

    #[test]
    fn it_is_written_when_it_changes_and_now_and_then() {
        let (ok, ill) = (verdict(Status::Ok, &[]), verdict(Status::NotOk, &["CniFailing"]));
        let (mut condition, begin) = (Condition::default(), Instant::now());
        let mut tell = |verdict: &Verdict, seconds: u64| {
            let now = begin + Duration::from_secs(seconds);
            let is_due = condition.is_due(verdict, now);
            if is_due {
                condition.written(verdict, now, WallTime::UNIX_EPOCH);
            }
            is_due
        };
        let beat = HEARTBEAT.as_secs();
        let written = [(&ok, 0), (&ok, 5), (&ill, 10), (&ill, 9 + beat), (&ill, 10 + beat), (&ok, 11 + beat)];
        assert_eq!(written.map(|(verdict, at)| tell(verdict, at)), [true, false, true, false, true, true]);
    }

    fn at(second: i64) -> WallTime {
        WallTime::from_second(1_795_237_000 + second).expect("a time")
    }

    #[test]
    fn a_patch_has_all_of_the_condition() {
        let mut condition = Condition::default();
        condition.is_known(None);
        let time = "2026-11-21T04:57:33Z";
        let wanted = serde_json::json!({
            "type": "SandboxHealthy",
            "status": "Unknown",
            "reason": "NotListed",
            "message": "a message",
            "lastHeartbeatTime": time,
            "lastTransitionTime": time,
        });
        let patch = condition.patch(&verdict(Status::Unknown, &["NotListed"]), at(53));
        assert_eq!(patch, serde_json::json!({ "status": { "conditions": [wanted] } }));
    }

    #[test]
    fn the_time_of_the_transition_stays_over_agents() {
        let kept = "2026-11-21T04:50:00Z";
        let (unknown, now) = (verdict(Status::Unknown, &["NotListed"]), "2026-11-21T04:57:33Z");
        for (known, wanted) in [
            (Some(("Unknown", Some(kept))), kept),
            (Some(("True", Some(kept))), now),
            // Somebody may have removed the time.
            (Some(("Unknown", None)), now),
            (None, now),
        ] {
            let mut condition = Condition::default();
            let has = |(status, since): (&str, Option<&str>)| Known {
                status: status.to_owned(),
                since: since.map(str::to_owned),
            };
            condition.is_known(known.map(has));
            assert_eq!(transition(&condition.patch(&unknown, at(53))), wanted, "{known:?}");
        }
    }

    fn transition(patch: &Value) -> &Value {
        &patch["status"]["conditions"][0]["lastTransitionTime"]
    }

    /// The node's object may have been removed and created again since the last patch.
    #[test]
    fn each_patch_has_the_time_of_the_last_transition() {
        let (ok, ill) = (verdict(Status::Ok, &[]), verdict(Status::NotOk, &["CniFailing"]));
        let mut condition = Condition::default();
        condition.is_known(None);
        let sent = [(&ok, 0), (&ok, 300), (&ill, 400), (&ill, 700), (&ok, 800)].map(|(verdict, second)| {
            let patch = condition.patch(verdict, at(second));
            condition.written(verdict, Instant::now(), at(second));
            transition(&patch).clone()
        });
        assert_eq!(sent, [at(0), at(0), at(400), at(400), at(800)].map(seconds));
    }
}
