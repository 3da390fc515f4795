//! Which findings count, the message, and the shortest time of each status.

use std::{collections::BTreeSet, time::Duration};

use proptest::prelude::*;
use strum::VariantNames as _;

use super::{
    Acute, MAX_MESSAGE, MIN_NOT_OK, MIN_OK, Rfc3339, Status, Tracker, Verdict, Version, critical, judge,
};
use crate::{
    model::{
        change::Finding,
        fact::NodeFolders,
        finding::{DuplicateAddress, FindingKind, Key, Kind, Severity, Stage},
        time::Timestamp,
    },
    sink::Label,
};

/// A finding of this severity and stage.
pub(in crate::sink) fn finding(severity: Severity, stage: Stage) -> Finding {
    let address = "10.0.0.7".parse().expect("an address");
    Finding {
        key: Key::parse("duplicate_address/net/10.0.0.7").expect("a key"),
        kind: Kind::from(DuplicateAddress { network: None, address }),
        severity,
        stage,
        since: at(1),
        opened_at: at(1),
        confirmed_at: None,
        closed_at: None,
        pod: None,
        sandboxes: Vec::new(),
        gapped: false,
        evidence: Vec::new(),
        programs: Vec::new(),
        runtimes: Vec::new(),
        folders: NodeFolders::default(),
        worst: None,
    }
}

/// A verdict for other tests.
pub(in crate::sink) fn verdict(status: Status, reasons: &[&'static str]) -> Verdict {
    Verdict {
        schema: Version,
        node: "n".to_owned(),
        status,
        reasons: reasons.to_vec(),
        message: "a message".to_owned(),
        since: Rfc3339(1_000_000_000),
    }
}

/// The first verdict on a node with this finding.
fn told(finding: &Finding, has_listed: bool, sees_all: bool) -> serde_json::Value {
    let label = Label { node: "n".to_owned(), boot_id: "b".to_owned(), boot_wall_ns: 0 };
    let acute = Acute::of([finding], has_listed);
    let verdict = judge(&mut Tracker::default(), &label, at(90), &acute, sees_all);
    serde_json::to_value(verdict).expect("JSON")
}

/// Only the finding's own severity and stage decide.
#[test]
fn only_what_is_confirmed_and_critical_counts() {
    let document = |status: &str, reasons: &[&str], message: &str| {
        serde_json::json!({
            "schema": 1, "node": "n", "status": status, "reasons": reasons, "message": message,
            "since": "1970-01-01T00:01:30.000000000Z",
        })
    };
    let critical = finding(Severity::Critical, Stage::Confirmed);
    let not_ok = document("not_ok", &["DuplicateAddress"], "critical: DuplicateAddress");
    assert_eq!(told(&critical, true, true), not_ok);
    assert_eq!(told(&critical, false, false), not_ok, "it is there, whatever else is not seen");
    for (severity, stage) in [
        (Severity::Warning, Stage::Confirmed),
        (Severity::Info, Stage::Confirmed),
        (Severity::Critical, Stage::Candidate),
        (Severity::Critical, Stage::Closed),
    ] {
        let other = finding(severity, stage);
        let ok = document("ok", &[], "no critical finding is confirmed");
        assert_eq!(told(&other, true, true), ok, "{severity:?} {stage:?}");
        let unlisted = document("unknown", &["NotListed"], "the node has not been listed yet");
        assert_eq!(told(&other, false, false), unlisted);
        let message = "not all signals are seen: sandprobe doctor says which";
        assert_eq!(told(&other, true, false), document("unknown", &["SignalNotSeen"], message));
    }
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(seconds)
}

fn status(tracker: &mut Tracker, seconds: u64, kinds: &[FindingKind]) -> Status {
    tracker.update(at(seconds), &kinds.iter().copied().collect(), false).status
}

#[test]
fn what_comes_and_goes_is_told_once() {
    const POOL: [FindingKind; 1] = [FindingKind::PoolExhaustion];
    let mut tracker = Tracker::default();
    assert_eq!(status(&mut tracker, 0, &[]), Status::Ok);
    assert_eq!(status(&mut tracker, 30, &POOL), Status::Ok, "it was well for less than a minute");
    assert_eq!(status(&mut tracker, 60, &POOL), Status::NotOk);
    for minute in 2..20 {
        let kinds = if minute % 2 == 0 { &[][..] } else { &POOL };
        assert_eq!(status(&mut tracker, minute * 60, kinds), Status::NotOk, "minute {minute}");
        assert_eq!(tracker.reported.expect("it was told").since, at(60));
    }
    assert_eq!(status(&mut tracker, 19 * 60 + 299, &[]), Status::NotOk);
    assert_eq!(status(&mut tracker, 19 * 60 + 300, &[]), Status::Ok);
}

#[test]
fn a_node_that_is_not_well_is_told_of_though_not_all_is_seen() {
    let mut tracker = Tracker::default();
    let none = BTreeSet::new();
    assert_eq!(tracker.update(at(0), &none, true).status, Status::Unknown);
    assert_eq!(tracker.update(at(1), &[FindingKind::CniFailing].into(), true).status, Status::NotOk);
    assert_eq!(tracker.update(at(301), &none, true).status, Status::Unknown);
    assert_eq!(tracker.update(at(302), &none, false).status, Status::Ok);
}

#[test]
fn a_reason_is_the_kind_s_name_in_camel_case() {
    let words: Vec<String> = Kind::VARIANTS
        .iter()
        .map(|name| {
            let parts = name.split('_').map(|part| part[..1].to_uppercase() + &part[1..]);
            parts.collect()
        })
        .collect();
    assert!(words.contains(&FindingKind::DuplicateAddress.word().to_owned()), "{words:?}");
    assert!(words.iter().all(|word| word.chars().all(|letter| letter.is_ascii_alphanumeric())), "{words:?}");
    let all: Vec<&str> = words.iter().map(String::as_str).collect();
    for n in 1..=all.len() {
        let message = critical(&all[..n]);
        assert!(message.starts_with("critical: LeakedAddress") && message.len() <= MAX_MESSAGE, "{message}");
        assert!(message.is_ascii(), "{message}");
    }
    assert_eq!(critical(&all[..1]), "critical: LeakedAddress");
    assert!(critical(&all).ends_with(" more"), "{}", critical(&all));
}

proptest! {
    /// Holds whatever comes and goes, and whenever somebody asks.
    #[test]
    fn no_state_is_told_for_less_than_its_time(
        looks in prop::collection::vec((1_u64..400, any::<bool>(), any::<bool>()), 1..200),
    ) {
        let mut tracker = Tracker::default();
        let (mut now, mut last) = (0, None);
        for (wait, is_failing, is_exhausted) in looks {
            now += wait;
            let kinds = [(is_failing, FindingKind::CniFailing), (is_exhausted, FindingKind::PoolExhaustion)];
            let kinds = kinds.into_iter().filter_map(|(is_there, kind)| is_there.then_some(kind)).collect();
            let told = tracker.update(at(now), &kinds, false);
            if let Some((status, since)) = last
                && status != told.status
            {
                let least = if status == Status::Ok { MIN_OK } else { MIN_NOT_OK };
                prop_assert!(at(now).since(since) >= least, "{status:?} for {:?}", at(now).since(since));
                prop_assert_eq!(told.since, at(now));
            }
            if told.status == Status::Ok && !kinds.is_empty() {
                prop_assert!(at(now).since(told.since) < MIN_OK);
            }
            last = Some((told.status, told.since));
        }
    }
}
