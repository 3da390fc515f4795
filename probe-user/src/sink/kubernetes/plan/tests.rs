//! The Events that are open after given findings.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{EventAction, Ledger, ON_NODE, ON_POD, Object, Plan, Step};
use crate::{
    model::{
        change::Finding,
        fact::PodName,
        finding::{Duplicate, DuplicateSandbox, Key, Kind, OutOfOrder, Severity, Stage, TeardownOutOfOrder},
        id::{ContainerId, PodUid},
        time::Timestamp,
    },
    sink::verdict,
};

/// A confirmed warning about a sandbox of a pod.
fn finding(kind: Kind, name: &str, pod: Option<&str>) -> Finding {
    let at = Timestamp(2_000);
    Finding {
        key: Key::parse(&format!("{}/{name}", kind.into_str())).expect("a key"),
        kind,
        since: at,
        opened_at: at,
        confirmed_at: Some(at),
        pod: pod.map(|name| PodName {
            namespace: Some("shop".to_owned()),
            name: Some(name.to_owned()),
            uid: PodUid::parse("de300000-0000-4000-8000-000000000001"),
        }),
        sandboxes: vec![ContainerId::parse(name).expect("an id")],
        ..verdict::tests::finding(Severity::Warning, Stage::Confirmed)
    }
}

fn killed(name: &str, pod: Option<&str>) -> Finding {
    let it = TeardownOutOfOrder { how: OutOfOrder::PauseKilled, killer: None, signal: Some(9) };
    finding(it.into(), name, pod)
}

/// A finding that begins the incident of the sandbox of [`killed`].
fn duplicate(name: &str, pod: Option<&str>) -> Finding {
    let it = DuplicateSandbox { form: Duplicate::AfterCompletion, count: 1 };
    let it = finding(it.into(), name, pod);
    // The pod's own sandbox, then the one that was made after the pod had completed.
    let sandboxes =
        [ContainerId::parse("0").expect("an id")].into_iter().chain(it.sandboxes.clone()).collect();
    Finding { since: Timestamp(1_500), sandboxes, ..it }
}

fn closed(finding: &Finding, at: Timestamp) -> Finding {
    Finding { stage: Stage::Closed, closed_at: Some(at), ..finding.clone() }
}

/// The Events on the API server, by object and key: whether each is a Warning, and its count.
#[derive(Debug, Default)]
struct Cluster {
    ledger: Ledger,
    events: BTreeMap<(Object, String), (bool, i32)>,
}

impl Cluster {
    fn plan(&mut self, findings: &[Finding]) -> Plan {
        self.ledger.plan(findings)
    }

    /// Does every step. Returns how many Events were withheld.
    fn tell(&mut self, findings: &[Finding]) -> usize {
        let Plan { steps, withheld } = self.plan(findings);
        steps.into_iter().for_each(|step| self.take(step));
        withheld
    }

    fn take(&mut self, step: Step) {
        let (object, key) = step.subject.clone();
        let event = self.events.entry((object, key.to_string()));
        let count = match step.action {
            EventAction::Begin => event.insert_entry((true, 1)).get().1,
            EventAction::Again { count } => event.insert_entry((true, count + 1)).get().1,
            EventAction::End => event.and_modify(|it| it.0 = false).or_insert((false, 0)).1,
        };
        self.ledger.done(step, Some(count));
    }

    /// The Events that are Warnings.
    fn standing(&self) -> Vec<String> {
        let warn = self.events.iter().filter(|(_, (warns, _))| *warns);
        warn.map(|((object, key), (_, count))| format!("{} {key} x{count}", name(object))).collect()
    }
}

fn name(object: &Object) -> &str {
    match object {
        Object::Node => "node",
        Object::Pod { name, .. } => name,
    }
}

#[test]
fn an_incident_has_one_event_on_each_object_about_its_first_finding() {
    let mut cluster = Cluster::default();
    let (root, effect) = (duplicate("a1", Some("web")), killed("a1", Some("web")));
    let plan = cluster.plan(&[effect.clone(), root.clone()]);
    let texts: Vec<&str> = plan.steps.iter().map(|it| it.text.as_str()).collect();
    assert_eq!(
        texts[0],
        "a sandbox was made after the pod was done (sandprobe explain duplicate_sandbox/a1)"
    );
    cluster.tell(&[effect.clone(), root.clone()]);
    assert_eq!(cluster.standing(), ["node duplicate_sandbox/a1 x1", "web duplicate_sandbox/a1 x1"]);
    assert_eq!(cluster.plan(&[effect.clone(), root.clone()]), Plan::default(), "all is told");
    // The first finding is over, and the incident is not.
    cluster.tell(&[effect.clone(), closed(&root, Timestamp(3_000))]);
    assert_eq!(cluster.standing(), ["node teardown_out_of_order/a1 x1", "web teardown_out_of_order/a1 x1"]);
    cluster.tell(&[closed(&effect, Timestamp(4_000)), closed(&root, Timestamp(3_000))]);
    assert_eq!(cluster.standing(), [""; 0]);
}

/// A cause that is found later does not change the reported Events.
#[test]
fn an_incident_whose_cause_is_found_later_is_not_told_again() {
    let mut cluster = Cluster::default();
    let (root, effect) = (duplicate("a1", Some("web")), killed("a1", Some("web")));
    cluster.tell(std::slice::from_ref(&effect));
    cluster.tell(&[effect, root]);
    assert_eq!(cluster.standing(), ["node teardown_out_of_order/a1 x1", "web teardown_out_of_order/a1 x1"]);
}

#[test]
fn what_may_pass_and_what_is_merely_to_be_known_is_not_told() {
    let mut cluster = Cluster::default();
    let candidate = Finding { stage: Stage::Candidate, confirmed_at: None, ..killed("a1", None) };
    let info = Finding { severity: Severity::Info, ..killed("a2", None) };
    assert_eq!(cluster.plan(&[candidate, info]), Plan::default());
}

/// Without all three the Event would not be shown with the pod.
#[test]
fn a_pod_of_which_something_is_unknown_gets_no_event() {
    let mut cluster = Cluster::default();
    let mut it = killed("a1", Some("web"));
    it.pod.as_mut().expect("a pod").uid = None;
    cluster.tell(&[it]);
    assert_eq!(cluster.standing(), ["node teardown_out_of_order/a1 x1"]);
}

#[test]
fn a_finding_that_comes_back_is_counted() {
    let mut cluster = Cluster::default();
    let first = killed("a1", None);
    let at = Timestamp(5_000);
    let second = Finding { opened_at: at, confirmed_at: Some(at), ..first.clone() };
    let third = Finding { opened_at: Timestamp(6_000), ..second.clone() };
    cluster.tell(std::slice::from_ref(&first));
    cluster.tell(&[closed(&first, Timestamp(4_000))]);
    cluster.tell(&[second]);
    assert_eq!(cluster.standing(), ["node teardown_out_of_order/a1 x2"]);
    // The finding ended and came back between two plans.
    cluster.tell(&[third]);
    assert_eq!(cluster.standing(), ["node teardown_out_of_order/a1 x3"]);
}

#[test]
fn many_of_a_kind_are_withheld_until_others_end() {
    let mut cluster = Cluster::default();
    let mut all: Vec<Finding> = (0..ON_NODE + 5).map(|n| killed(&format!("a{n:02}"), Some("web"))).collect();
    all[ON_NODE + 4].severity = Severity::Critical;
    assert_eq!(cluster.tell(&all), 5 + ON_NODE + 5 - ON_POD);
    let standing = cluster.standing();
    assert_eq!(standing.len(), ON_NODE + ON_POD);
    assert!(
        standing.contains(&format!("web teardown_out_of_order/a{} x1", ON_NODE + 4)),
        "the worst is first"
    );
    all[0] = closed(&all[0], Timestamp(3_000));
    cluster.tell(&all);
    assert_eq!(cluster.standing().len(), ON_NODE + ON_POD);
}

/// Nobody else ends the Events of the last agent.
#[test]
fn what_ended_while_no_agent_ran_is_ended_by_the_next_one() {
    let mut cluster = Cluster::default();
    let (goes_on, ends) = (killed("a1", None), killed("a2", Some("web")));
    cluster.tell(&[goes_on.clone(), ends.clone()]);
    cluster.ledger = Ledger::of(cluster.ledger.entries());
    let over = closed(&ends, Timestamp(3_000));
    let plan = cluster.plan(&[goes_on.clone(), over.clone()]);
    let steps: Vec<_> =
        plan.steps.iter().map(|it| (name(&it.subject.0), it.subject.1.as_str(), it.action)).collect();
    let key = "teardown_out_of_order/a2";
    assert_eq!(steps, [("node", key, EventAction::End), ("web", key, EventAction::End)]);
    cluster.tell(&[goes_on.clone(), over.clone()]);
    assert_eq!(cluster.plan(&[goes_on, over]), Plan::default());
}

/// The finding closed before it was reported, or was withheld, or the last agent reported nothing.
#[test]
fn what_was_not_told_is_not_ended() {
    let mut cluster = Cluster::default();
    let all: Vec<Finding> =
        (0..200).map(|n| closed(&killed(&format!("a{n:03}"), Some("web")), Timestamp(3_000))).collect();
    assert_eq!(cluster.plan(&all), Plan::default());
    let withheld: Vec<Finding> = (0..ON_NODE + 5).map(|n| killed(&format!("b{n:02}"), None)).collect();
    assert_eq!(cluster.tell(&withheld), 5);
    let over: Vec<Finding> = withheld.iter().map(|it| closed(it, Timestamp(3_000))).collect();
    assert_eq!(cluster.plan(&over).steps.len(), ON_NODE);
}

/// A namespace in which nothing can be written does not hold up other Events, and a step that is done is not
/// tried again.
#[test]
fn what_fails_is_tried_after_the_others() {
    let mut cluster = Cluster::default();
    let over = closed(&killed("a1", None), Timestamp(3_000));
    cluster.tell(&[killed("a1", None)]);
    let (first, second) = (killed("a2", Some("web")), killed("a3", None));
    let all = [over, first, second];
    let order = |plan: &Plan| -> Vec<String> {
        plan.steps.iter().map(|it| format!("{} {}", name(&it.subject.0), it.subject.1)).collect()
    };
    let plan = cluster.plan(&all);
    let before = order(&plan);
    assert_eq!(before.len(), 4, "{before:?}");
    let mut steps = plan.steps.into_iter();
    let done = steps.next().expect("the end of what is over");
    assert_eq!(done.action, EventAction::End);
    cluster.take(done);
    cluster.ledger.failed(steps.next().expect("a step"));
    let after = order(&cluster.plan(&all));
    assert_eq!(after, [&before[2..], &before[1..2]].concat());
}

#[test]
fn the_event_of_a_finding_that_is_kept_no_more_ends() {
    let mut cluster = Cluster::default();
    cluster.tell(&[killed("a1", None)]);
    cluster.tell(&[]);
    assert_eq!(cluster.standing(), [""; 0]);
    assert_eq!(cluster.plan(&[]), Plan::default());
    assert!(cluster.ledger.reported.is_empty(), "nothing is kept of it");
}

proptest! {
    /// Whatever comes and goes, and however many steps fail: once all are done, exactly the incidents that
    /// should be reported have one Event on the node.
    #[test]
    fn each_open_incident_has_one_event_on_the_node(
        looks in prop::collection::vec(prop::collection::vec((0..4_usize, any::<bool>(), any::<bool>()), 0..8), 1..8),
        done in prop::collection::vec(0..6_usize, 8),
    ) {
        let mut cluster = Cluster::default();
        let mut findings = BTreeMap::new();
        for (time, (look, done)) in (0..).zip(looks.iter().zip(&done)) {
            for (sandbox, is_root, is_open) in look {
                let name = format!("a{sandbox}");
                let new = if *is_root { duplicate(&name, None) } else { killed(&name, None) };
                let at = Timestamp(3_000 + time);
                let it = findings.entry(new.key.clone()).or_insert(new);
                match (*is_open, it.stage == Stage::Closed) {
                    (true, true) => {
                        (it.stage, it.opened_at, it.closed_at) = (Stage::Confirmed, at, None);
                    }
                    (false, false) => (it.stage, it.closed_at) = (Stage::Closed, Some(at)),
                    _ => {}
                }
            }
            let all: Vec<Finding> = findings.values().cloned().collect();
            // The API server goes away after some of the steps.
            cluster.plan(&all).steps.into_iter().take(*done).for_each(|step| cluster.take(step));
        }
        let all: Vec<Finding> = findings.values().cloned().collect();
        cluster.tell(&all);
        prop_assert_eq!(cluster.plan(&all), Plan::default());
        let is_open = |it: &&Finding| it.stage == Stage::Confirmed;
        let sandbox = |key: &str| key.rsplit('/').next().unwrap_or_default().to_owned();
        let wanted: BTreeSet<String> =
            all.iter().filter(is_open).map(|it| sandbox(it.key.as_str())).collect();
        let standing = cluster.events.iter().filter(|(_, (warns, _))| *warns);
        let found: Vec<String> = standing.map(|((_, key), _)| sandbox(key)).collect();
        prop_assert_eq!(found.iter().cloned().collect::<BTreeSet<_>>(), wanted);
        prop_assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), found.len(), "one each");
    }
}
