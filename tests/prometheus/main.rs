//! The text of a scrape, the alerts and the dashboard, checked with Prometheus' own tools.

mod promql;
mod promtool;
mod quote;
mod recording;
mod rule;
#[path = "../metrics/scrape.rs"]
mod scrape;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use probe_user::{
    model::fact::{Mechanism, Signal},
    sink::metrics::{
        agent_stats::{AgentStats, ProbeStats, Process, Program, Queue, Ring, StateWrite},
        family::{ALL, Family, Kind},
        label::PodLabel,
    },
};
use promtool::promtool;
use serde_json::Value;

/// Labels that Prometheus or its configuration adds to every series of a target, and the labels of
/// `--metric-labels`.
const TARGET: [&str; 7] = ["job", "instance", "cluster", "node", "pod", "exported_namespace", "workload"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Statistics with a value for every metric of the agent itself.
fn every_statistic() -> AgentStats {
    AgentStats {
        probe: ProbeStats {
            hooks: vec![(Signal::NetnsFreed, Some(Mechanism::Fentry)), (Signal::AddressV6, None)],
            rings: vec![Ring { name: "bulk", sent: vec![5; 15], lost: vec![1; 15] }],
            programs: vec![Program {
                name: "fe_free_inum".to_owned(),
                time: Duration::from_millis(3),
                runs: 7,
                missed: 0,
            }],
            ..ProbeStats::default()
        },
        queues: vec![Queue { name: "batches", length: 1, capacity: Some(64) }],
        state_writes: vec![StateWrite { file: "findings", failures: 1, has_succeeded: false }],
        process: Some(Process { open_fds: Some(30), max_fds: Some(1024), ..Process::default() }),
        netns_limit: Some(96_365),
        ..AgentStats::default()
    }
}

#[test]
fn promtool_accepts_a_scrape() {
    let recording = root().join("tests/data/recordings/demo.jsonl");
    for labels in [&[][..], &PodLabel::ALL] {
        let text = scrape::of(&recording, labels, &every_statistic()).expect("a recording");
        promtool(&root(), &["check", "metrics"], &text);
    }
}

/// Returns every metric name of the registry that an expression can use.
fn families() -> BTreeMap<String, &'static Family> {
    let all = ALL.iter().flat_map(|(_, families)| families.iter().copied());
    let names = |family: &'static Family| match family.kind {
        Kind::Counter | Kind::Gauge => vec![family.name.to_owned()],
        Kind::Histogram => {
            ["_bucket", "_sum", "_count"].map(|part| format!("{}{part}", family.name)).to_vec()
        }
    };
    all.flat_map(|family| names(family).into_iter().map(move |name| (name, family))).collect()
}

/// Checks that each metric of the expression is exported and has the labels that the expression uses.
#[track_caller]
fn check_exported(expression: &str) {
    let families = families();
    let named = promql::named(expression);
    assert!(!named.metrics.is_empty(), "no metric in {expression}");
    let mut all: BTreeSet<&str> = TARGET.into();
    for (metric, labels) in &named.metrics {
        let mut own: BTreeSet<&str> = TARGET.into();
        if metric != "up" {
            let family =
                families.get(metric).unwrap_or_else(|| panic!("{metric} is not exported: {expression}"));
            own.extend(family.labels);
            own.extend((family.kind == Kind::Histogram).then_some("le"));
        }
        for label in labels {
            assert!(own.contains(label.as_str()), "{metric} has no label {label}: {expression}");
        }
        all.extend(own);
    }
    for label in &named.grouped {
        assert!(all.contains(label.as_str()), "no metric has a label {label}: {expression}");
    }
}

#[test]
fn alerts_and_recording_rules_use_exported_metrics() {
    rule::rules().iter().for_each(|rule| check_exported(&rule.expr));
    recording::rules().iter().for_each(|rule| check_exported(&rule.expr));
}

fn dashboard() -> Value {
    let text = fs::read_to_string(root().join("deploy/grafana/sandprobe.json")).expect("the dashboard");
    serde_json::from_str(&text).expect("JSON")
}

/// Returns the dashboard's expressions, with a value for Grafana's own variable.
fn expressions(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let annotations = dashboard["annotations"]["list"].as_array().expect("annotations");
    let text =
        |target: &Value| target["expr"].as_str().expect("an expression").replace("$__rate_interval", "5m");
    targets.chain(annotations).map(text).collect()
}

#[test]
fn the_dashboard_uses_exported_metrics() {
    let all = expressions(&dashboard());
    all.iter().for_each(|expression| check_exported(expression));
    // Each expression becomes a recording rule, so that promtool checks it.
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    for (number, expression) in all.iter().enumerate() {
        let quoted = Value::from(expression.as_str());
        writeln!(rules, "      - record: panel:{number}\n        expr: {quoted}").expect("a text");
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("rules.yaml"), rules).expect("a file");
    promtool(folder.path(), &["check", "rules", "rules.yaml"], "");
}

/// With 1,000 nodes, nobody could read a panel with a line for each node.
#[test]
fn no_panel_has_a_series_for_each_node() {
    const AGGREGATES: [&str; 5] = ["sum", "max", "count", "histogram_quantile", "group"];
    let dashboard = dashboard();
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().expect("an expression");
            let is_limited = ["topk", "bottomk"].iter().any(|it| expression.contains(it));
            let is_one = AGGREGATES.iter().any(|it| expression.starts_with(it))
                && !promql::named(&expression.replace("$__rate_interval", "5m")).grouped.contains("instance");
            assert!(is_limited || is_one, "{}: {expression}", panel["title"]);
        }
    }
}

#[test]
fn the_dashboard_shows_every_metric_of_the_node() {
    let all = expressions(&dashboard());
    let shown: BTreeSet<String> =
        all.iter().flat_map(|it| promql::named(it).metrics).map(|(metric, _)| metric).collect();
    let families = families();
    let shown: BTreeSet<&str> =
        shown.iter().filter_map(|name| families.get(name)).map(|it| it.name).collect();
    for section in ["Pod starts", "CNI", "Addresses", "Findings", "Teardown"] {
        let (_, families) = ALL.iter().find(|(heading, _)| *heading == section).expect("a section");
        let hidden = families.iter().map(|it| it.name).filter(|name| !shown.contains(name));
        // The count of all opened findings, closed ones included, is not on the dashboard.
        let hidden: Vec<_> = hidden.filter(|name| *name != "sandprobe_findings_opened_total").collect();
        assert!(hidden.is_empty(), "{section}: not shown: {hidden:?}");
    }
}

#[test]
fn the_dashboard_has_its_rows_and_variables_and_no_overlapping_panels() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("panels");
    let rows = panels
        .iter()
        .filter(|panel| panel["type"] == "row")
        .map(|row| row["title"].as_str().expect("a title"));
    assert_eq!(
        rows.collect::<Vec<_>>(),
        [
            "Findings",
            "Pod starts",
            "Restarts of nodes",
            "Addresses and pools",
            "CNI",
            "Teardown",
            "Health of sandprobe",
        ]
    );
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    let variables = variables.iter().map(|it| it["name"].as_str().expect("a name"));
    assert_eq!(variables.collect::<Vec<_>>(), ["datasource", "cluster", "job", "node"]);
    let annotations = dashboard["annotations"]["list"].as_array().expect("annotations");
    let annotations = annotations.iter().map(|it| it["name"].as_str().expect("a name"));
    assert_eq!(annotations.collect::<Vec<_>>(), ["Boots", "Restarts of runtime and kubelet"]);
    let (mut ids, mut places) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{}", panel["title"]);
        let at = |side: &str| panel["gridPos"][side].as_u64().expect("a number");
        assert!(at("x") + at("w") <= 24, "{}", panel["title"]);
        for (x, y) in
            (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y)))
        {
            assert!(places.insert((x, y)), "{} overlaps another panel", panel["title"]);
        }
        for target in panel["targets"].as_array().into_iter().flatten() {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
            let expression = target["expr"].as_str().expect("an expression");
            assert!(expression.contains("instance=~\"$node\""), "{expression}");
        }
    }
}
