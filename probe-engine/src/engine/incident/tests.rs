//! Findings whose incidents are known, each beside findings that share too little; and what holds for any
//! findings.

mod relation;

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use proptest::{prelude::*, sample::Index as Choice};
use strum::VariantNames;

use super::{Incidents, RELATIONS};
use crate::model::{
    change::{ChangeKind, CniCall, Evidence, EvidenceEvent, Finding, Process},
    fact::{CniCommand, NetworkFaultForm, NodeFolders, Origin, StoreKind},
    finding::{
        AbandonedSandbox, Cause, CniFailing, CniQueue, CniSlow, CniWait, CniWaitForm, CniWrongDel,
        DaemonFailing, Duplicate, DuplicateAddress, DuplicateSandbox, Key, Kind, LeakedAddress, Message,
        NodeNetworkUnready, OrphanNetns, OrphanSandbox, OutOfOrder, OwnerlessReservation, PoolExhaustion,
        RestartedInBulk, RuntimeUnresponsive, SandboxesReplaced, Severity, Stage, StartCause, StartStep,
        StopStep, StuckCgroup, StuckStart, StuckStop, TeardownOutOfOrder, UnverifiedRelease, WrongDelForm,
    },
    id::{ContainerId, NetnsKey, TaskKey},
    time::Timestamp,
};

fn id(name: &str) -> ContainerId {
    ContainerId::parse(name).expect("an id")
}

fn at(seconds: u64) -> Timestamp {
    Timestamp(seconds * 1_000_000_000)
}

/// A confirmed finding, opened a minute after it began.
fn finding(kind: impl Into<Kind>, parts: &[&str], sandboxes: &[&str], since: u64) -> Finding {
    let kind = kind.into();
    Finding {
        key: Key::new(kind.into_str(), parts),
        kind,
        severity: Severity::Warning,
        stage: Stage::Confirmed,
        since: at(since),
        opened_at: at(since + 60),
        confirmed_at: Some(at(since + 60)),
        closed_at: None,
        pod: None,
        sandboxes: sandboxes.iter().map(|name| id(name)).collect(),
        gapped: false,
        evidence: Vec::new(),
        programs: Vec::new(),
        runtimes: Vec::new(),
        folders: NodeFolders::default(),
        worst: None,
    }
}

fn closed(finding: Finding, when: u64) -> Finding {
    Finding { stage: Stage::Closed, closed_at: Some(at(when)), ..finding }
}

fn duplicate(form: Duplicate, sandboxes: &[&str], since: u64) -> Finding {
    let named = if form == Duplicate::AfterCompletion { sandboxes.last() } else { sandboxes.first() };
    let parts = [form.into_str(), "uid", named.copied().unwrap_or_default()];
    finding(DuplicateSandbox { form, count: 1 }, &parts, sandboxes, since)
}

fn teardown(sandbox: &str, since: u64) -> Finding {
    let it = TeardownOutOfOrder { how: OutOfOrder::PauseKilled, killer: None, signal: Some(9) };
    finding(it, &[sandbox], &[sandbox], since)
}

/// A teardown out of order with a later DEL of this plugin without a namespace.
fn blind_teardown(sandbox: &str, plugin: &str, since: u64) -> Finding {
    let process = Process { key: TaskKey::new(7, 7), parent: TaskKey::new(1, 1), comm: plugin.to_owned() };
    let call = CniCall {
        command: "DEL".to_owned(),
        plugin: plugin.to_owned(),
        netns: Some(String::new()),
        ifname: Some("eth0".to_owned()),
        process,
        called_by: None,
        delegated: false,
        trace: None,
    };
    let event = EvidenceEvent {
        left_out: 0,
        at: at(since + 1),
        origin: Origin::Kernel,
        container: None,
        netns: None,
        cgroup: None,
        what: ChangeKind::CniStarted { call: call.into() },
    };
    Finding { evidence: vec![Evidence { sandbox: id(sandbox), event }], ..teardown(sandbox, since) }
}

fn leak(cause: Cause, address: &str, sandbox: &str, since: u64) -> Finding {
    let it = LeakedAddress {
        cause,
        address: address.parse().expect("an address"),
        network: Some("podnet".to_owned()),
        inferred: false,
        ifname: "eth0".to_owned(),
        plugin: Some("bridge".to_owned()),
        stores: Vec::new(),
        many: None,
    };
    finding(it, &["podnet", address, sandbox], &[sandbox], since)
}

fn pool(subnet: &str, free: u64, since: u64) -> Finding {
    let it = PoolExhaustion {
        network: "podnet".to_owned(),
        subnet: subnet.parse().expect("a range"),
        size: 253,
        used: 250 - free,
        ownerless: 0,
        leaked: 3,
        free,
        runs_out_in: None,
    };
    Finding { severity: Severity::Critical, ..finding(it, &["podnet", subnet], &[], since) }
}

fn failing(command: CniCommand, said: Option<&str>, sandboxes: &[&str], since: u64) -> Finding {
    let it = CniFailing {
        plugin: "bridge".to_owned(),
        command,
        attempts: 3,
        pods: 1,
        wasted: Duration::from_secs(30),
        code: Some(137),
        message: said.map(|text| Message { text: Some(text.to_owned()), source: "journal".to_owned() }),
        messages: Vec::new(),
    };
    finding(it, &["bridge", &command.to_string()], sandboxes, since)
}

fn stop(step: StopStep, plugin: Option<&str>, sandbox: &str, since: u64) -> Finding {
    let it = StuckStop {
        step,
        process: None,
        attempts: 3,
        plugin: plugin.map(str::to_owned),
        exit_code: Some(1),
        cache_file: None,
        mount: None,
        said: Vec::new(),
        unsaid: None,
    };
    finding(it, &[sandbox], &[sandbox], since)
}

fn orphan_netns(sandbox: &str, since: u64) -> Finding {
    let it = OrphanNetns { netns: NetnsKey::new(1, 1), mounts: Vec::new() };
    finding(it, &[sandbox], &[sandbox], since)
}

/// Each incident as its kinds, a dot for each step from the root. `+`: about the same sandbox, and no cause
/// is known.
fn told(findings: &[Finding]) -> Vec<String> {
    let incidents = Incidents::of(findings);
    let line = |it: &super::Member<'_>| {
        let with = if it.with.is_some() { "+" } else { "" };
        format!("{}{with}{}", ".".repeat(it.depth), it.finding.kind.into_str())
    };
    let all = incidents.all();
    all.iter().map(|it| it.members.iter().map(line).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn a_needless_sandbox_and_what_became_of_it_are_one_incident() {
    let findings = [
        leak(Cause::DelBlind, "10.0.0.3", "b", 10),
        teardown("b", 7),
        duplicate(Duplicate::AfterCompletion, &["a", "b"], 5),
    ];
    assert_eq!(told(&findings), ["duplicate_sandbox .teardown_out_of_order ..leaked_address"]);
    let incidents = Incidents::of(&findings);
    let place = incidents.place(&findings[0].key).expect("it is one of these");
    assert_eq!(place.root.key.as_str(), "duplicate_sandbox/after_completion/uid/b");
    // The nearest cause only.
    let causes: Vec<&str> = place.causes.iter().map(|it| it.finding.kind.into_str()).collect();
    assert_eq!(causes, ["teardown_out_of_order"]);
    let root = incidents.place(&findings[2].key).expect("it is one of these");
    assert_eq!(root.effects.len(), 1);
    assert!(!root.is_effect() && place.is_effect());
}

#[test]
fn a_cause_that_is_over_is_still_the_root() {
    let findings = [
        closed(duplicate(Duplicate::AfterCompletion, &["a", "b"], 5), 600),
        closed(teardown("b", 7), 900),
        leak(Cause::DelBlind, "10.0.0.3", "b", 10),
    ];
    assert_eq!(told(&findings), ["duplicate_sandbox .teardown_out_of_order ..leaked_address"]);
    let all = Incidents::of(&findings).all();
    assert_eq!((all[0].stage(), all[0].severity()), (Stage::Confirmed, Severity::Warning));
}

#[test]
fn findings_that_merely_happen_at_the_same_time_are_not_one_incident() {
    let findings = [
        duplicate(Duplicate::AfterCompletion, &["a", "b"], 5),
        // A leak of the sandbox that was needed.
        leak(Cause::DelBlind, "10.0.0.2", "a", 10),
        // A finding about another pod.
        teardown("c", 7),
        leak(Cause::DelBlind, "10.0.0.4", "d", 10),
        orphan_netns("e", 10),
    ];
    let each =
        ["duplicate_sandbox", "leaked_address", "leaked_address", "orphan_netns", "teardown_out_of_order"];
    assert_eq!(told(&findings), each);
}

#[test]
fn what_one_sandbox_leaves_is_one_incident_although_no_cause_was_seen() {
    let findings =
        [orphan_netns("a", 10), leak(Cause::RuntimeEnded, "10.0.0.2", "a", 10), orphan_netns("b", 10)];
    assert_eq!(told(&findings), ["leaked_address .+orphan_netns", "orphan_netns"]);
    let place = Incidents::of(&findings).place(&findings[0].key).expect("it is one of these");
    assert!(place.causes.is_empty() && place.is_effect());
    // An address that leaked since DEL never came did not leak because pause was killed.
    let findings = [teardown("a", 5), leak(Cause::DelMissing, "10.0.0.2", "a", 10)];
    assert_eq!(told(&findings), ["teardown_out_of_order .+leaked_address"]);
}

#[test]
fn a_pool_is_used_up_by_leaks_and_its_failed_adds_are_its_effects() {
    let said = "failed to allocate for range 0: no IP addresses available in range set: 10.0.0.1-10.0.0.254";
    let one = leak(Cause::DelMissing, "10.0.0.2", "a", 10);
    let add = failing(CniCommand::Add, Some(said), &["x"], 200);
    let findings = [one.clone(), pool("10.0.0.0/24", 0, 100), add.clone()];
    assert_eq!(told(&findings), ["leaked_address .pool_exhaustion ..cni_failing"]);
    assert_eq!(Incidents::of(&findings).all()[0].severity(), Severity::Critical);
    // The leaks of two incidents: the pool's is a third one, which names both.
    let two = leak(Cause::DelMissing, "10.0.0.3", "b", 20);
    let findings = [one.clone(), two, pool("10.0.0.0/24", 0, 100), add];
    assert_eq!(told(&findings), ["leaked_address", "leaked_address", "pool_exhaustion .cni_failing"]);
    let place = Incidents::of(&findings).place(&findings[2].key).expect("it is one of these");
    assert_eq!((place.root.key.kind(), place.causes.len()), ("pool_exhaustion", 2));
    // Another range; a plugin that fails for another reason; a leak that began later.
    assert_eq!(told(&[one.clone(), pool("10.0.1.0/24", 0, 100)]).len(), 2);
    let other = failing(CniCommand::Add, Some("failed to set bridge addr"), &["x"], 200);
    assert_eq!(told(&[pool("10.0.0.0/24", 0, 100), other]).len(), 2);
    assert_eq!(told(&[leak(Cause::DelMissing, "10.0.0.2", "a", 110), pool("10.0.0.0/24", 0, 100)]).len(), 2);
}

#[test]
fn a_plugin_that_fails_holds_up_the_stop_and_leaks_the_address() {
    let findings = [
        failing(CniCommand::Del, None, &[], 20),
        stop(StopStep::Del, Some("bridge"), "a", 10),
        leak(Cause::DelFailed, "10.0.0.2", "a", 300),
    ];
    assert_eq!(told(&findings), ["cni_failing .stuck_stop ..leaked_address"]);
    let of = |other: Finding| told(&[other, stop(StopStep::Del, Some("bridge"), "a", 10)]).len();
    assert_eq!(of(failing(CniCommand::Add, None, &[], 20)), 2, "of another command");
    assert_eq!(of(closed(failing(CniCommand::Del, None, &[], 2), 9)), 2, "it was over before");
    let other = stop(StopStep::Del, Some("calico"), "a", 10);
    assert_eq!(told(&[failing(CniCommand::Del, None, &[], 20), other]).len(), 2, "of another plugin");
    let unmount = stop(StopStep::Unmount, None, "a", 10);
    assert_eq!(told(&[failing(CniCommand::Del, None, &[], 20), unmount]).len(), 2, "DEL has succeeded");
}

#[test]
fn calls_that_wait_for_each_other_become_slow_and_then_fail() {
    let waiting = CniQueue { waiting: 30, oldest: Duration::from_secs(20), plugin: "bridge".to_owned() };
    let slow = |command: &str| CniSlow {
        plugin: "bridge".to_owned(),
        command: command.to_owned(),
        took: Duration::from_secs(20),
        open: true,
        waits: None,
    };
    let queue = finding(waiting, &["node"], &["a", "b"], 5);
    let findings = [
        failing(CniCommand::Add, None, &["b"], 30),
        finding(slow("ADD"), &["bridge", "ADD"], &["b"], 6),
        queue.clone(),
    ];
    assert_eq!(told(&findings), ["cni_queue .cni_slow ..cni_failing"]);
    let findings =
        [failing(CniCommand::Add, None, &["b"], 30), finding(slow("DEL"), &["bridge", "DEL"], &["c"], 6)];
    assert_eq!(told(&findings).len(), 2, "another command");
    let other = CniSlow { plugin: "calico".to_owned(), ..slow("ADD") };
    assert_eq!(told(&[queue, finding(other, &["calico", "ADD"], &["c"], 6)]).len(), 2, "another plugin");
}

#[test]
fn a_release_without_a_namespace_comes_of_the_teardown_before_it() {
    let released = |plugin: &str| {
        finding(UnverifiedRelease { plugin: plugin.to_owned(), count: 1, without_del: 0 }, &[plugin], &[], 70)
    };
    let findings = [released("bridge"), blind_teardown("a", "bridge", 5)];
    assert_eq!(told(&findings), ["teardown_out_of_order .unverified_release"]);
    assert_eq!(told(&[released("bridge"), teardown("a", 5)]).len(), 2, "its DEL had the namespace");
    assert_eq!(told(&[released("calico"), blind_teardown("a", "bridge", 5)]).len(), 2, "another plugin");
}

#[test]
fn what_an_unknown_process_keeps_is_its_effect() {
    let findings = [cgroup(Some(true)), orphan(), leak(Cause::DelMissing, "10.0.0.2", "a", 500)];
    assert_eq!(told(&findings), ["orphan_sandbox .leaked_address .stuck_cgroup"]);
}

fn slow(command: &str, open: bool, sandbox: &str, since: u64) -> Finding {
    let it = CniSlow {
        plugin: "bridge".to_owned(),
        command: command.to_owned(),
        took: Duration::from_secs(20),
        open,
        waits: None,
    };
    finding(it, &["bridge", command], &[sandbox], since)
}

fn wrong_del(how: WrongDelForm, sandboxes: &[&str], addresses: &[&str]) -> Finding {
    let it = CniWrongDel {
        how,
        plugin: "bridge".to_owned(),
        ifname: "eth0".to_owned(),
        count: 1,
        netns: None,
        addresses: addresses.iter().map(|address| address.parse().expect("an address")).collect(),
    };
    finding(it, &[sandboxes[0], "eth0"], sandboxes, 5)
}

fn duplicate_address(address: &str, sandboxes: &[&str], since: u64) -> Finding {
    let address = address.parse().expect("an address");
    let it = DuplicateAddress { network: Some("podnet".to_owned()), address };
    finding(it, &["podnet", &format!("{address}")], sandboxes, since)
}

fn stuck_start(step: StartStep, cause: Option<StartCause>, since: u64) -> Finding {
    let it = StuckStart {
        step,
        sandboxes: 1,
        cause,
        plugin: Some("bridge".to_owned()),
        network: None,
        folders: Vec::new(),
        config_file: None,
        addresses: vec!["10.0.0.2".parse().expect("an address")],
        said: Vec::new(),
        unsaid: None,
    };
    finding(it, &["uid"], &["a"], since)
}

fn cgroup(populated: Option<bool>) -> Finding {
    finding(StuckCgroup { path: "/kubepods/x".to_owned(), populated }, &["uid"], &["a"], 5)
}

fn orphan() -> Finding {
    let process = Process { key: TaskKey::new(9, 9), parent: TaskKey::new(1, 1), comm: "pause".to_owned() };
    finding(OrphanSandbox { process }, &["a"], &["a"], 5)
}

/// Pairs of findings where the first did not lead to the second.
type Twins = Vec<(Finding, Finding)>;

/// Findings of every kind that has a row in the table, about few sandboxes and addresses, so that many are
/// shared.
fn any_finding() -> impl Strategy<Value = Finding> {
    let sandbox = prop::sample::select(vec!["a", "b", "c"]);
    let cause = prop::sample::select(vec![
        Cause::DelBlind,
        Cause::DelFailed,
        Cause::DelMissing,
        Cause::AddFailed,
        Cause::RuntimeEnded,
    ]);
    let address = prop::sample::select(vec!["10.0.0.2", "10.0.0.3", "fd00::2"]);
    let command = prop::sample::select(vec![CniCommand::Add, CniCommand::Del]);
    let form = prop::sample::select(vec![Duplicate::AfterCompletion, Duplicate::Concurrent]);
    let it = (0_u8..11, sandbox.clone(), sandbox, cause, address, command, form, 0_u64..400, any::<Choice>());
    it.prop_map(|(which, one, other, cause, address, command, form, since, end)| {
        let said = Some("no IP addresses available in range set: 10.0.0.1-10.0.0.254");
        let made = match which {
            0 => duplicate(form, &[one, other], since),
            1 => teardown(one, since),
            2 => blind_teardown(one, "bridge", since),
            3 => leak(cause, address, one, since),
            4 => pool("10.0.0.0/24", since % 2, since),
            5 => failing(command, said, &[one], since),
            6 => stop(StopStep::Del, Some("bridge"), one, since),
            7 => orphan_netns(one, since),
            8 => finding(
                UnverifiedRelease { plugin: "bridge".to_owned(), count: 1, without_del: 0 },
                &["bridge"],
                &[],
                since,
            ),
            9 => {
                let it =
                    CniQueue { waiting: 30, oldest: Duration::from_secs(9), plugin: "bridge".to_owned() };
                finding(it, &["node"], &[one, other], since)
            }
            _ => {
                let it = CniSlow {
                    plugin: "bridge".to_owned(),
                    command: command.to_string(),
                    took: Duration::from_secs(20),
                    open: false,
                    waits: None,
                };
                finding(it, &["bridge", &command.to_string()], &[one], since)
            }
        };
        match end.index(3) {
            0 => closed(made, since + 61),
            _ => made,
        }
    })
}

/// Each has its own key, as the engine's have.
fn any_findings() -> impl Strategy<Value = Vec<Finding>> {
    prop::collection::vec(any_finding(), 0..24).prop_map(|mut all| {
        let mut known = BTreeSet::new();
        all.retain(|it| known.insert(it.key.clone()));
        all
    })
}

/// Everything that is reported about them.
fn everything(findings: &[Finding]) -> Vec<String> {
    let incidents = Incidents::of(findings);
    let mut all: Vec<String> = incidents.all().iter().map(|it| format!("{it:?}")).collect();
    let mut places: Vec<String> = findings
        .iter()
        .map(|it| format!("{} {:?}", it.key, incidents.place(&it.key).expect("it is one of these")))
        .collect();
    places.sort_unstable();
    all.extend(places);
    all
}

const PAGE: &str = include_str!("../../../../docs/incidents.md");

/// The cells of the tables of a section.
fn cells(heading: &str) -> impl Iterator<Item = Vec<&'static str>> {
    let (_, section) = PAGE.split_once(heading).expect("the section is there");
    let section = section.split("\n## ").next().unwrap_or(section);
    section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split('|').collect())
}

#[test]
fn the_page_has_every_relation_and_no_other() {
    let kinds = |cell: &'static str| cell.split('`').filter(|word| Kind::VARIANTS.contains(word));
    let documented: BTreeSet<(&str, &str)> = cells("\n## What belongs together\n")
        .flat_map(|cells| {
            kinds(cells[0]).flat_map(move |cause| kinds(cells[1]).map(move |effect| (cause, effect)))
        })
        .collect();
    let known: BTreeSet<(&str, &str)> =
        RELATIONS.iter().map(|it| (it.cause.into_str(), it.effect.into_str())).collect();
    assert_eq!(documented, known);
}

proptest! {
    #[test]
    fn incidents_depend_on_the_findings_alone(
        findings in any_findings(),
        order in prop::collection::vec(any::<u32>(), 24),
    ) {
        let mut other: Vec<(u32, Finding)> = order.into_iter().zip(findings.iter().cloned()).collect();
        other.sort_by_key(|(place, _)| *place);
        let other: Vec<Finding> = other.into_iter().map(|(_, it)| it).collect();
        prop_assert_eq!(everything(&findings), everything(&other));
    }

    #[test]
    fn each_finding_is_in_one_incident_with_its_causes_before_it(findings in any_findings()) {
        let incidents = Incidents::of(&findings);
        let all = incidents.all();
        let mut seen: Vec<&Key> = all.iter().flat_map(|it| &it.members).map(|it| &it.finding.key).collect();
        seen.sort_unstable();
        let mut each: Vec<&Key> = findings.iter().map(|it| &it.key).collect();
        each.sort_unstable();
        prop_assert_eq!(seen, each);
        for incident in &all {
            let root = incident.root().expect("it has members");
            for (at, member) in incident.members.iter().enumerate() {
                let place = incidents.place(&member.finding.key).expect("it is one of these");
                prop_assert_eq!(&place.root.key, &root.key);
                prop_assert_eq!(at == 0, member.depth == 0);
                let above = member.causes.iter().map(|it| it.finding).chain(member.with);
                let is_known = above.clone().any(|it| {
                    incident.members[..at].iter().any(|before| before.finding.key == it.key)
                });
                prop_assert!(at == 0 || is_known);
                // No chain comes back to where it began.
                let mut next: Vec<&Finding> = above.collect();
                let mut known = BTreeSet::new();
                while let Some(it) = next.pop() {
                    prop_assert_ne!(&it.key, &member.finding.key);
                    if known.insert(&it.key) {
                        let place = incidents.place(&it.key).expect("it is one of these");
                        next.extend(place.causes.iter().map(|it| it.finding).chain(place.with));
                    }
                }
            }
        }
    }
}

#[test]
fn thousands_of_findings_are_soon_distinguished() {
    let address = |n: u32| IpAddr::from((0x0a00_0000 + n).to_be_bytes()).to_string();
    let findings: Vec<Finding> = (0..3000_u32)
        .flat_map(|n| {
            let name = format!("s{n}");
            let leaked = leak(Cause::DelBlind, &address(n), &name, 10);
            let leaked = Finding { key: Key::new("leaked_address", &["podnet", &name]), ..leaked };
            [leaked, teardown(&name, 7), orphan_netns(&name, 12)]
        })
        .collect();
    let all = Incidents::of(&findings).all();
    assert_eq!(all.len(), 3000);
    assert!(all.iter().all(|it| it.members.len() == 3));
}
