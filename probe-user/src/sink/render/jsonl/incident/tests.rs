//! `docs/incidents.md` has exactly the members of an incident and of a finding's place in it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Incident, PlacedFinding};
use crate::{
    engine::incident::Incidents,
    model::{
        change::Finding,
        fact::{NodeFolders, PodName, ProgramFound},
        finding::{
            Cause, Duplicate, DuplicateSandbox, Key, Kind, LeakedAddress, OrphanNetns, OutOfOrder, Severity,
            Stage, StuckCgroup, TeardownOutOfOrder,
        },
        id::{ContainerId, NetnsKey},
        time::Timestamp,
    },
    sink::Label,
};

const PAGE: &str = include_str!("../../../../../../docs/incidents.md");

fn finding(key: &str, kind: impl Into<Kind>, sandboxes: &[&str], since: u64) -> Finding {
    Finding {
        key: Key::parse(key).expect("a key"),
        kind: kind.into(),
        severity: Severity::Warning,
        stage: Stage::Confirmed,
        since: Timestamp(since),
        opened_at: Timestamp(since + 100),
        confirmed_at: None,
        closed_at: None,
        pod: Some(PodName { namespace: None, name: Some("web-0".to_owned()), uid: None }),
        sandboxes: sandboxes.iter().filter_map(|it| ContainerId::parse(it)).collect(),
        gapped: false,
        evidence: Vec::new(),
        programs: vec![ProgramFound {
            path: "/usr/bin/kubelet".to_owned(),
            version: Some("v1.19.2".to_owned()),
        }],
        runtimes: Vec::new(),
        folders: NodeFolders::default(),
        worst: None,
    }
}

/// An incident with everything that can be known.
fn findings() -> Vec<Finding> {
    let leaked = LeakedAddress {
        cause: Cause::DelBlind,
        address: [10, 88, 0, 5].into(),
        network: None,
        inferred: false,
        ifname: "eth0".to_owned(),
        plugin: None,
        stores: Vec::new(),
        many: None,
    };
    let form = Duplicate::AfterCompletion;
    vec![
        finding("orphan_netns/n", OrphanNetns { netns: NetnsKey::new(1, 1), mounts: Vec::new() }, &["c"], 5),
        finding("leaked_address/n/a", leaked, &["b"], 4),
        finding("stuck_cgroup/u", StuckCgroup { path: "/x".to_owned(), populated: None }, &["b"], 6),
        finding(
            "teardown_out_of_order/b",
            TeardownOutOfOrder { how: OutOfOrder::PauseKilled, killer: None, signal: None },
            &["b"],
            3,
        ),
        finding("duplicate_sandbox/b", DuplicateSandbox { form, count: 1 }, &["a", "b"], 2),
    ]
}

/// Collects the names of all members. A member of the object `name` is `name.member`.
fn members(of: &Value, before: &str, names: &mut BTreeSet<String>) {
    for (name, value) in of.as_object().into_iter().flatten() {
        let name = format!("{before}{name}");
        for inner in value.as_array().into_iter().flatten().chain([value]).filter(|it| it.is_object()) {
            members(inner, &format!("{name}."), names);
        }
        names.insert(name);
    }
}

fn documented(heading: &str) -> BTreeSet<String> {
    let (_, section) = PAGE.split_once(heading).expect("the section is there");
    let section = section.split("\n## ").next().unwrap_or(section);
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    rows.map(str::to_owned).collect()
}

#[test]
fn the_documentation_has_every_member_and_no_other() {
    let findings = findings();
    let incidents = Incidents::of(&findings);
    let label = Label { node: "n".to_owned(), boot_id: "b".to_owned(), boot_wall_ns: 0 };
    let mut written = BTreeSet::new();
    for incident in incidents.all() {
        let incident = Incident::of(&incident, &label).expect("it has findings");
        let mut value = serde_json::to_value(&incident).expect("JSON");
        // The pod is written as in a finding.
        value["pod"] = Value::Null;
        members(&value, "", &mut written);
    }
    assert_eq!(written, documented("\n## An incident as JSON\n"));

    let placed = |it| serde_json::to_value(PlacedFinding::of(it, &incidents, &label)).expect("JSON");
    let bare = |it| serde_json::to_value(super::Finding::of(it, &label)).expect("JSON");
    let of_finding: BTreeSet<String> = findings
        .iter()
        .flat_map(|it| {
            let (placed, bare) = (placed(it), bare(it));
            let more = placed.as_object().into_iter().flatten().map(|(name, _)| name.clone());
            more.filter(|name| bare.get(name).is_none()).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(of_finding, documented("\n## A finding's place\n"));
}
