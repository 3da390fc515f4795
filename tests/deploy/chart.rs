//! The chart and the manifests are of this version, and of each other.

use std::fs;

use anyhow::{Result, ensure};
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
