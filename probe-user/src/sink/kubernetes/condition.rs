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
pub(super) struct Condition(Option<(Instant, Value)>);

impl Condition {
    /// The change of the node's status (strategic merge patch, which knows conditions by their type), if one is due.
    pub(super) fn due(&self, verdict: &Verdict, now: Instant) -> Option<Value> {
        let condition = condition(verdict);
        let is_told = self
            .0
            .as_ref()
            .is_some_and(|(at, told)| *told == condition && now.duration_since(*at) < HEARTBEAT);
        (!is_told).then_some(condition)
    }

    pub(super) fn told(&mut self, condition: Value, now: Instant) {
        self.0 = Some((now, condition));
    }
}

/// The body of the request.
pub(super) fn patch(condition: &Value, now: WallTime) -> Value {
    let mut condition = condition.clone();
    condition["lastHeartbeatTime"] = seconds(now).into();
    json!({ "status": { "conditions": [condition] } })
}

fn condition(verdict: &Verdict) -> Value {
    let (status, reason) = match verdict.status {
        Status::Ok => ("True", "NoCriticalFinding"),
        Status::NotOk => ("False", "CriticalFinding"),
        Status::Unknown => ("Unknown", verdict.reasons.first().copied().unwrap_or("Unknown")),
    };
    json!({
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "message": verdict.message,
        "lastTransitionTime": seconds(verdict.since.time()),
    })
}

/// The API server keeps whole seconds.
fn seconds(time: WallTime) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Condition, HEARTBEAT, Instant, WallTime, patch};
    use crate::sink::verdict::{Status, Verdict, tests::verdict};

    #[test]
    fn it_is_written_when_it_changes_and_now_and_then() {
        let (ok, ill) = (verdict(Status::Ok, &[]), verdict(Status::NotOk, &["CniFailing"]));
        let (mut condition, begin) = (Condition::default(), Instant::now());
        let mut tell = |verdict: &Verdict, seconds: u64| {
            let now = begin + Duration::from_secs(seconds);
            let due = condition.due(verdict, now);
            due.map(|due| {
                condition.told(due.clone(), now);
                due["status"].as_str().unwrap_or_default().to_owned()
            })
        };
        assert_eq!(tell(&ok, 0).as_deref(), Some("True"));
        assert_eq!(tell(&ok, 5), None);
        assert_eq!(tell(&ill, 10).as_deref(), Some("False"));
        assert_eq!(tell(&ill, 9 + HEARTBEAT.as_secs()), None);
        assert_eq!(tell(&ill, 10 + HEARTBEAT.as_secs()).as_deref(), Some("False"));
    }

    #[test]
    fn it_is_a_condition_of_the_node() {
        let unknown = verdict(Status::Unknown, &["NotListed"]);
        let due = Condition::default().due(&unknown, Instant::now()).expect("it is due");
        let patch = patch(&due, WallTime::from_second(1_795_237_053).expect("a time"));
        let wanted = serde_json::json!({ "status": { "conditions": [{
            "type": "SandboxHealthy",
            "status": "Unknown",
            "reason": "NotListed",
            "message": "a message",
            "lastTransitionTime": "1970-01-01T00:00:01Z",
            "lastHeartbeatTime": "2026-11-21T04:57:33Z",
        }] } });
        assert_eq!(patch, wanted);
    }
}
