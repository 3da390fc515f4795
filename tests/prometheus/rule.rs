//! The alerts: they are complete, have runbooks, and fire in their cases.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use serde::Deserialize;

use probe_user::model::finding::Kind;
use strum::VariantNames as _;

use super::{promql, promtool::promtool, root};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rules {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    #[expect(dead_code, reason = "every group must have a name")]
    name: String,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    pub(crate) alert: String,
    pub(crate) expr: String,
    #[serde(rename = "for")]
    #[expect(dead_code, reason = "the test reads only which fields exist")]
    wait: Option<String>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Tests {
    tests: Vec<Test>,
}

#[derive(Deserialize)]
struct Test {
    alert_rule_test: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    alertname: String,
    exp_alerts: Vec<serde_yaml_ng::Value>,
}

pub(crate) fn rules() -> Vec<Rule> {
    let text = fs::read_to_string(root().join("deploy/prometheus/rules.yaml")).expect("the rules");
    let rules: Rules = serde_yaml_ng::from_str(&text).expect("rules");
    rules.groups.into_iter().flat_map(|group| group.rules).collect()
}

#[test]
fn promtool_accepts_the_rules_and_their_tests() {
    let folder = root().join("deploy/prometheus");
    promtool(&folder, &["check", "rules", "rules.yaml"], "");
    promtool(&folder, &["test", "rules", "rules.test.yaml"], "");
}

#[test]
fn every_alert_has_a_firing_and_a_silent_test_case() {
    let text = fs::read_to_string(root().join("deploy/prometheus/rules.test.yaml")).expect("the series");
    let tests: Tests = serde_yaml_ng::from_str(&text).expect("tests of rules");
    let cases: Vec<Case> = tests.tests.into_iter().flat_map(|test| test.alert_rule_test).collect();
    for rule in rules() {
        let own = || cases.iter().filter(|case| case.alertname == rule.alert);
        assert!(own().any(|case| !case.exp_alerts.is_empty()), "no test case fires {}", rule.alert);
        assert!(own().any(|case| case.exp_alerts.is_empty()), "no test case keeps {} silent", rule.alert);
    }
}

/// Alerts on a metric other than that of findings, because it says more: how many addresses, of which pool,
/// which signal.
const BY_ANOTHER_METRIC: [(&str, &str); 3] = [
    ("leaked_address", "SandprobeLeakedAddresses"),
    ("pool_exhaustion", "SandprobeAddressPoolExhausted"),
    ("blind_spot", "SandprobeHookMissing"),
];

/// The kinds without an alert, each with the reason.
const WITHOUT: [(&str, &str); 2] = [
    ("abandoned_store", "info: it can be removed, and harms nothing"),
    ("unverified_release", "info: nothing shows that anything is wrong"),
];

/// Returns the kinds in the selectors of an expression.
fn kinds(expr: &str) -> BTreeSet<String> {
    let selectors = expr.split("kind=").skip(1);
    let values =
        selectors.filter_map(|rest| rest.trim_start_matches('~').strip_prefix('"')?.split('"').next());
    values.flat_map(|value| value.split('|')).map(str::to_owned).collect()
}

#[test]
fn every_kind_of_finding_has_an_alert_or_a_reason_why_not() {
    let rules = rules();
    let told: BTreeSet<String> = rules.iter().flat_map(|rule| kinds(&rule.expr)).collect();
    for kind in &told {
        assert!(Kind::VARIANTS.contains(&kind.as_str()), "there is no kind {kind}");
    }
    for (_, alert) in BY_ANOTHER_METRIC {
        assert!(rules.iter().any(|rule| rule.alert == alert), "there is no alert {alert}");
    }
    let docs = fs::read_to_string(root().join("docs/findings.md")).expect("the page of findings");
    for kind in Kind::VARIANTS {
        let ways = [
            told.contains(*kind),
            BY_ANOTHER_METRIC.iter().any(|(other, _)| other == kind),
            WITHOUT.iter().any(|(other, _)| other == kind),
        ];
        let ways = ways.into_iter().filter(|is_so| *is_so).count();
        assert_eq!(ways, 1, "{kind} has neither an alert nor a reason why not, or more than one of these");
        // Only a kind that needs no action may have no alert.
        let row = docs.lines().find(|line| line.starts_with(&format!("| [`{kind}`]"))).expect("a row");
        let needs_nobody = row.ends_with("| info |");
        assert_eq!(WITHOUT.iter().any(|(other, _)| other == kind), needs_nobody, "{row}");
    }
}

#[test]
fn every_alert_has_a_severity_and_a_runbook() {
    let mut pages = BTreeSet::new();
    for Rule { alert, expr, labels, annotations, .. } in rules() {
        let severity = labels.get("severity").map(String::as_str);
        if expr.contains("sandprobe_findings{") {
            assert_eq!(severity, Some("{{ $labels.severity }}"), "{alert}: the finding's own");
            assert!(!promql::named(&expr).grouped.contains("severity"), "{alert} leaves the severity out");
        } else {
            assert!(matches!(severity, Some("critical" | "warning")), "{alert}: {severity:?}");
        }
        let is_of_cluster = labels.get("scope").is_some_and(|it| it == "cluster");
        let where_it_is = if is_of_cluster { "$labels.cluster" } else { "or $labels.node $labels.instance" };
        assert!(annotations["summary"].contains(where_it_is), "{alert} names neither node nor cluster");
        let addresses = annotations
            .iter()
            .filter(|(name, text)| *name != "runbook_url" && text.contains("$labels.instance }}"));
        for (name, text) in addresses {
            assert!(text.contains("or $labels.node $labels.instance"), "{alert}: {name} has an address");
        }
        assert_eq!(
            annotations.keys().map(String::as_str).collect::<Vec<_>>(),
            ["description", "runbook_url", "summary"],
            "{alert}"
        );
        let page = format!("docs/runbooks/{alert}.md");
        // Where the alert is about no agent, any agent serves the page.
        let place = if is_of_cluster || alert == "SandprobeAgentAbsent" {
            "https://sandprobe.sandprobe.svc:9477"
        } else {
            "https://{{ $labels.instance }}"
        };
        assert_eq!(annotations["runbook_url"], format!("{place}/{page}"));
        let text = fs::read_to_string(root().join(&page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.starts_with(&format!("# {alert}\n\n```console\n$ kubectl ")), "{page}");
        let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("## ")).collect();
        assert_eq!(headings, ["## Confirm", "## Repair", "## Do not"], "{page}");
        pages.insert(format!("{alert}.md"));
    }
    let found = fs::read_dir(root().join("docs/runbooks")).expect("the runbooks");
    let found = found.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"));
    assert_eq!(found.collect::<BTreeSet<_>>(), pages, "a page without an alert");
}

/// Users without an alert find the runbooks by their subject, and by the alert's name without the prefix.
#[test]
fn the_page_of_troubles_lists_each_runbook_once() {
    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).expect("the page");
    let (_, after) = page.split_once("### Runbooks of alerts\n").expect("the list has a heading");
    let list = after.split("\n#").next().unwrap_or_default();
    let mut listed: Vec<&str> = list.split('[').skip(1).filter_map(|it| it.split(')').next()).collect();
    listed.sort_unstable();
    let link = |alert: String| {
        let short = alert.strip_prefix("Sandprobe").expect("the prefix of each alert");
        format!("{short}](runbooks/{alert}.md")
    };
    let mut alerts: Vec<String> = rules().into_iter().map(|rule| rule.alert).collect();
    alerts.sort_unstable();
    alerts.dedup();
    assert_eq!(listed, alerts.into_iter().map(link).collect::<Vec<_>>());
}
