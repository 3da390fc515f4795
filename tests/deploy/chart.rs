//! The chart and the manifests are of this version, and of each other.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use tests::golden;

use crate::render;

/// What helm adds and is true of what helm installs alone.
const HELM: [&str; 3] = ["app.kubernetes.io/managed-by: ", "helm.sh/chart: ", "# Source: "];

/// The chart as it is rendered where somebody else makes the Secret.
const BASE: &str = "server.existingSecret=sandprobe-server";

fn without_helm(yaml: &str) -> String {
    let is_helms = |line: &&str| HELM.iter().any(|mark| line.trim_start().starts_with(mark));
    let mut text = String::from(
        "# The chart of deploy/helm/sandprobe, rendered: a test makes it and holds it to that.\n",
    );
    for line in yaml.lines().filter(|line| !is_helms(line)) {
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[test]
fn the_manifests_are_the_chart_s() -> Result<()> {
    let file = render::root().join("deploy/manifests/sandprobe.yaml");
    golden::expect(&file, &without_helm(&render::template(&[BASE])?));
    Ok(())
}

#[test]
fn helm_finds_nothing_wrong() -> Result<()> {
    let chart = render::chart().display().to_string();
    render::helm(&["lint", "--strict", &chart]).map(drop)
}

#[test]
fn the_chart_is_of_this_version() -> Result<()> {
    let chart = fs::read_to_string(render::chart().join("Chart.yaml"))?;
    let version = env!("CARGO_PKG_VERSION");
    for line in [format!("\nversion: {version}\n"), format!("\nappVersion: {version}\n")] {
        ensure!(chart.contains(&line), "Chart.yaml has no line {line:?}");
    }
    Ok(())
}

/// What only a cluster with the Prometheus operator takes, and the dashboard.
#[test]
fn the_manifests_of_monitoring_are_the_chart_s() -> Result<()> {
    let on = ["podMonitor.enabled=true", "prometheusRule.enabled=true", "dashboard.enabled=true"];
    let rendered = render::template(&[&[BASE][..], &on].concat())?;
    let wanted = ["kind: PodMonitor\n", "kind: PrometheusRule\n", "name: sandprobe-dashboard\n"];
    let mut documents =
        rendered.split("---\n").filter(|document| wanted.iter().any(|it| document.contains(it)));
    let first = documents.next().context("nothing of monitoring is rendered")?;
    let text = documents.fold(format!("---\n{first}"), |text, document| text + "---\n" + document);
    golden::expect(&render::root().join("deploy/manifests/monitoring/monitoring.yaml"), &without_helm(&text));
    Ok(())
}

/// The rules and the dashboard of the chart are those of the repository, by links that helm follows.
#[test]
fn rules_and_dashboard_are_the_repository_s() -> Result<()> {
    let objects = render::rendered(&["prometheusRule.enabled=true", "dashboard.enabled=true"])?;
    let root = render::root();
    let rules = render::objects(&fs::read_to_string(root.join("deploy/prometheus/rules.yaml"))?)?;
    ensure!(render::only(&objects, "PrometheusRule")?["spec"] == rules[0], "other rules");
    let dashboard = &render::only(&objects, "ConfigMap")?["data"]["sandprobe.json"];
    let own = fs::read_to_string(root.join("deploy/grafana/sandprobe.json"))?;
    ensure!(dashboard.as_str() == Some(own.as_str()), "another dashboard");
    Ok(())
}
