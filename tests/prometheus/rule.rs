//! The alerts: they are complete, have runbooks, and fire in their cases.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use serde::Deserialize;

use super::{promtool::promtool, root};

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

#[test]
fn every_alert_has_a_severity_and_a_runbook() {
    let mut pages = BTreeSet::new();
    for Rule { alert, labels, annotations, .. } in rules() {
        let severity = labels.get("severity").map(String::as_str);
        assert!(matches!(severity, Some("critical" | "warning" | "info")), "{alert}: {severity:?}");
        assert_eq!(
            annotations.keys().map(String::as_str).collect::<Vec<_>>(),
            ["description", "runbook_url", "summary"],
            "{alert}"
        );
        let page = format!("docs/runbooks/{alert}.md");
        assert_eq!(annotations["runbook_url"], page);
        let text = fs::read_to_string(root().join(&page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.starts_with(&format!("# {alert}\n\n")), "{page}");
        let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("## ")).collect();
        assert_eq!(headings, ["## Confirm", "## Repair", "## Do not"], "{page}");
        pages.insert(format!("{alert}.md"));
    }
    let found = fs::read_dir(root().join("docs/runbooks")).expect("the runbooks");
    let found = found.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"));
    assert_eq!(found.collect::<BTreeSet<_>>(), pages, "a page without an alert");
}
