//! The node's condition `SandboxHealthy`: the verdict on the node, as `/v1/verdict` has it.

use std::time::Duration;

use jiff::Timestamp as WallTime;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::sink::verdict::{Status, Verdict};

pub(crate) const CONDITION: &str = "SandboxHealthy";

/// How often a condition that stays the same is written, so that an agent that is gone can be told from a node that is well.
const HEARTBEAT: Duration = Duration::from_secs(300);

/// What was written last, and when.
#[derive(Debug, Default)]
pub(super) struct Condition {
    told: Option<(Instant, Words)>,
    /// The status on the API server, if it is known; none inside if there is no such condition.
    status: Option<Option<String>>,
}

/// What a condition says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Words {
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Condition {
    pub(super) fn is_due(&self, verdict: &Verdict, now: Instant) -> bool {
        let words = Words::of(verdict);
        self.told.as_ref().is_none_or(|(at, told)| *told != words || now.duration_since(*at) >= HEARTBEAT)
    }

    pub(super) fn knows(&self) -> bool {
        self.status.is_some()
    }

    /// The API server has this status.
    pub(super) fn is_known(&mut self, status: Option<&str>) {
        self.status = Some(status.map(str::to_owned));
    }

    /// The change of the node's status (strategic merge patch, which knows conditions by their type). The time of the
    /// transition stays if the status does.
    pub(super) fn patch(&self, verdict: &Verdict, now: WallTime) -> Value {
        let Words { status, reason, message } = Words::of(verdict);
        let mut condition = json!({
            "type": CONDITION,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": seconds(now),
        });
        if self.status.as_ref().and_then(Option::as_deref) != Some(status) {
            condition["lastTransitionTime"] = seconds(now).into();
        }
        json!({ "status": { "conditions": [condition] } })
    }

    pub(super) fn told(&mut self, verdict: &Verdict, now: Instant) {
        let words = Words::of(verdict);
        self.is_known(Some(words.status));
        self.told = Some((now, words));
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

/// The API server keeps whole seconds.
fn seconds(time: WallTime) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Condition, HEARTBEAT, Instant, WallTime};
    use crate::sink::verdict::{Status, Verdict, tests::verdict};

    #[test]
    fn it_is_written_when_it_changes_and_now_and_then() {
        let (ok, ill) = (verdict(Status::Ok, &[]), verdict(Status::NotOk, &["CniFailing"]));
        let (mut condition, begin) = (Condition::default(), Instant::now());
        let mut tell = |verdict: &Verdict, seconds: u64| {
            let now = begin + Duration::from_secs(seconds);
            let is_due = condition.is_due(verdict, now);
            if is_due {
                condition.told(verdict, now);
            }
            is_due
        };
        let beat = HEARTBEAT.as_secs();
        let told = [(&ok, 0), (&ok, 5), (&ill, 10), (&ill, 9 + beat), (&ill, 10 + beat), (&ok, 11 + beat)];
        assert_eq!(told.map(|(verdict, at)| tell(verdict, at)), [true, false, true, false, true, true]);
    }

    #[test]
    fn the_time_of_the_transition_stays_over_agents() {
        let unknown = verdict(Status::Unknown, &["NotListed"]);
        let now = WallTime::from_second(1_795_237_053).expect("a time");
        let at = "2026-11-21T04:57:33Z";
        let patch = |known: Option<&str>| {
            let mut condition = Condition::default();
            condition.is_known(known);
            condition.patch(&unknown, now)
        };
        let mut wanted = serde_json::json!({
            "type": "SandboxHealthy",
            "status": "Unknown",
            "reason": "NotListed",
            "message": "a message",
            "lastHeartbeatTime": at,
        });
        assert_eq!(patch(Some("Unknown")), serde_json::json!({ "status": { "conditions": [wanted] } }));
        wanted["lastTransitionTime"] = at.into();
        for known in [None, Some("True")] {
            assert_eq!(
                patch(known),
                serde_json::json!({ "status": { "conditions": [wanted] } }),
                "{known:?}"
            );
        }
    }
}
