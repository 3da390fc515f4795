//! The recording rules over the nodes of a cluster. Each gives one series for each cluster, with the right
//! values.

use std::{collections::BTreeSet, fs};

use serde::Deserialize;
use serde_yaml_ng::Value;

use super::{promql, promtool::promtool, root};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
pub(crate) struct Rule {
    record: String,
    pub(crate) expr: String,
}

#[derive(Deserialize)]
struct Tests {
    tests: Vec<Test>,
}

#[derive(Deserialize)]
struct Test {
    promql_expr_test: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    expr: String,
    exp_samples: Vec<Value>,
}

pub(crate) fn rules() -> Vec<Rule> {
    let text = fs::read_to_string(root().join("deploy/prometheus/recording.yaml")).expect("the rules");
    let rules: Rules = serde_yaml_ng::from_str(&text).expect("rules");
    rules.groups.into_iter().flat_map(|group| group.rules).collect()
}

#[test]
fn promtool_accepts_the_recording_rules_and_their_tests() {
    let folder = root().join("deploy/prometheus");
    promtool(&folder, &["check", "rules", "recording.yaml"], "");
    promtool(&folder, &["test", "rules", "recording.test.yaml"], "");
}

#[test]
fn every_recording_rule_has_a_test_with_its_value() {
    let text = fs::read_to_string(root().join("deploy/prometheus/recording.test.yaml")).expect("the series");
    let tests: Tests = serde_yaml_ng::from_str(&text).expect("tests of rules");
    let cases = tests.tests.into_iter().flat_map(|test| test.promql_expr_test);
    let tested: BTreeSet<String> =
        cases.filter(|case| !case.exp_samples.is_empty()).map(|case| case.expr).collect();
    let recorded: BTreeSet<String> = rules().into_iter().map(|rule| rule.record).collect();
    assert_eq!(tested, recorded);
}

#[test]
fn no_recording_rule_has_a_series_for_each_node() {
    for Rule { record, expr } in rules() {
        let outer = expr.split_once(" by (").and_then(|(_, rest)| rest.split_once(')')).expect(&record).0;
        assert!(outer.starts_with("cluster, job"), "{record}: {outer}");
        assert!(!outer.contains("instance") && !outer.contains("node"), "{record}: {outer}");
        assert!(!promql::named(&expr).metrics.is_empty(), "{record}");
    }
}
