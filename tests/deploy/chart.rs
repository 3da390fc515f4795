//! The chart and the manifests have this version, and the manifests are the rendered chart.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tests::golden;

use crate::render;

/// Lines that helm adds only for its own installations.
const HELM: [&str; 3] = ["app.kubernetes.io/managed-by: ", "helm.sh/chart: ", "# Source: "];

/// Renders the chart without its Secret, which the operator makes.
const BASE: &str = "server.existingSecret=sandprobe-server";

fn without_helm(yaml: &str) -> String {
    let is_helms = |line: &&str| HELM.iter().any(|mark| line.trim_start().starts_with(mark));
    let mut text = String::from(
        "# The rendered chart of deploy/helm/sandprobe. A test generates this file and compares it.\n",
    );
    for line in yaml.lines().filter(|line| !is_helms(line)) {
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[test]
fn the_manifests_are_the_rendered_chart() -> Result<()> {
    let file = render::root().join("deploy/manifests/sandprobe.yaml");
    golden::expect(&file, &without_helm(&render::template(&[BASE])?));
    Ok(())
}

/// The pod that Helm runs on each node at an uninstall, for installations without Helm.
#[test]
fn the_manifest_of_an_uninstall_is_the_rendered_chart() -> Result<()> {
    let rendered = render::with_hooks(&[BASE])?;
    let is_it = |document: &&str| {
        document.contains("kind: DaemonSet\n") && document.contains("helm.sh/hook: post-delete\n")
    };
    let document = rendered.split("---\n").find(is_it).context("it is not rendered")?;
    let hooks = |line: &&str| line.contains("helm.sh/hook") || line.trim() == "annotations:";
    let lines: String =
        document.lines().filter(|line| !hooks(line)).map(|line| format!("{line}\n")).collect();
    golden::expect(
        &render::root().join("deploy/manifests/detach/detach.yaml"),
        &without_helm(&format!("---\n{lines}")),
    );
    Ok(())
}

#[test]
fn helm_lint_finds_nothing() -> Result<()> {
    let chart = render::chart().display().to_string();
    render::helm(&["lint", "--strict", &chart]).map(drop)
}

#[test]
fn the_chart_has_this_version() -> Result<()> {
    let chart = fs::read_to_string(render::chart().join("Chart.yaml"))?;
    let version = env!("CARGO_PKG_VERSION");
    for line in [format!("\nversion: {version}\n"), format!("\nappVersion: {version}\n")] {
        ensure!(chart.contains(&line), "Chart.yaml has no line {line:?}");
    }
    Ok(())
}

/// The objects that need the Prometheus operator, and the dashboard.
#[test]
fn the_monitoring_manifests_are_the_rendered_chart() -> Result<()> {
    let on = ["podMonitor.enabled=true", "prometheusRule.enabled=true", "dashboard.enabled=true"];
    let rendered = render::template(&[&[BASE][..], &on].concat())?;
    let wanted = ["kind: PodMonitor\n", "kind: PrometheusRule\n", "name: sandprobe-dashboard\n"];
    let mut documents =
        rendered.split("---\n").filter(|document| wanted.iter().any(|it| document.contains(it)));
    let first = documents.next().context("no monitoring object is rendered")?;
    let text = documents.fold(format!("---\n{first}"), |text, document| text + "---\n" + document);
    golden::expect(&render::root().join("deploy/manifests/monitoring/monitoring.yaml"), &without_helm(&text));
    Ok(())
}

/// The part for reports to the cluster: the chart's objects for the API server, and a component that adds the
/// flags.
#[test]
fn the_component_for_the_cluster_is_the_rendered_chart() -> Result<()> {
    let sets = [BASE, "kubernetes.events=true", "kubernetes.condition=true"];
    let rendered = render::template(&sets)?;
    let is_it = |document: &&str| {
        document.contains(".k8s.io/v1\nkind: ClusterRole") || document.contains("kind: Validating")
    };
    let documents: Vec<&str> = rendered.split("---\n").filter(is_it).collect();
    ensure!(documents.len() == 6, "{documents:#?}");
    let text: String = documents.iter().flat_map(|document| ["---\n", document.trim_end(), "\n"]).collect();
    let folder = render::root().join("deploy/manifests");
    golden::expect(&folder.join("kubernetes/rbac.yaml"), &without_helm(&text));

    let dir = tempfile::tempdir()?;
    let overlay = "components: [manifests/kubernetes]\nresources: [manifests]\n";
    fs::write(dir.path().join("kustomization.yaml"), overlay)?;
    for from in [folder.clone(), folder.join("kubernetes")] {
        render::copy(&from, &dir.path().join("manifests").join(from.strip_prefix(&folder)?))?;
    }
    let kustomized = render::objects(&render::kustomize(&dir.path().display().to_string())?)?;
    let spec = |objects: &[serde_json::Value]| -> Result<serde_json::Value> {
        let mut spec = render::only(objects, "DaemonSet")?["spec"]["template"]["spec"].clone();
        let args = spec["containers"][0]["args"].as_array_mut().context("no arguments")?;
        // Their order does not matter.
        args.sort_by_key(ToString::to_string);
        Ok(spec)
    };
    ensure!(spec(&kustomized)? == spec(&render::objects(&rendered)?)?, "the pods differ");
    Ok(())
}

/// An installation on an older cluster fails at once, not later.
#[test]
fn rights_that_the_cluster_cannot_limit_are_to_be_asked_for() -> Result<()> {
    let old = |sets: &[&str]| render::template_for("1.29.0", sets);
    ensure!(old(&["kubernetes.events=true"]).is_err(), "no policy was made, and nobody was told");
    let without = old(&["kubernetes.events=true", "kubernetes.ownNodeOnly=false"])?;
    ensure!(without.contains("kind: ClusterRole\n") && !without.contains("Validating"), "{without}");
    Ok(())
}

/// Whoever asks whose an address is may read that, and nothing else.
#[test]
fn an_ipam_at_the_api_server_is_read_with_the_least_rights() -> Result<()> {
    let objects = render::objects(&render::template_for("1.29.0", &["kubernetes.ipam=calico"])?)?;
    let wanted = serde_json::json!([{
        "apiGroups": ["crd.projectcalico.org", "projectcalico.org"],
        "resources": ["ipamhandles", "ipamblocks"],
        "verbs": ["get"],
    }, {
        "nonResourceURLs": ["/apis"],
        "verbs": ["get"],
    }]);
    ensure!(render::only(&objects, "ClusterRole")?["rules"] == wanted, "{objects:#?}");
    let pod = &render::only(&objects, "DaemonSet")?["spec"]["template"]["spec"];
    ensure!(pod["automountServiceAccountToken"] == true, "{pod}");
    let args = pod["containers"][0]["args"].as_array().context("no arguments")?;
    ensure!(args.contains(&"--kubernetes-ipam=calico".into()), "{args:?}");
    Ok(())
}

/// The chart's rules and dashboard are the repository's. The chart has links to them.
#[test]
fn the_chart_has_the_repository_s_rules_and_dashboard() -> Result<()> {
    let objects = render::rendered(&["prometheusRule.enabled=true", "dashboard.enabled=true"])?;
    let root = render::root();
    let rules = render::objects(&fs::read_to_string(root.join("deploy/prometheus/rules.yaml"))?)?;
    let recording = render::objects(&fs::read_to_string(root.join("deploy/prometheus/recording.yaml"))?)?;
    let groups = |file: &serde_json::Value| file["groups"].as_array().cloned().unwrap_or_default();
    let all = [groups(&rules[0]), groups(&recording[0])].concat();
    ensure!(
        render::only(&objects, "PrometheusRule")?["spec"] == json!({ "groups": all }),
        "the rules differ"
    );
    let dashboard = &render::only(&objects, "ConfigMap")?["data"]["sandprobe.json"];
    let own = fs::read_to_string(root.join("deploy/grafana/sandprobe.json"))?;
    ensure!(dashboard.as_str() == Some(own.as_str()), "the dashboard differs");
    Ok(())
}

/// The links to runbooks use the value's address, else the agent of the alert.
#[test]
fn the_runbooks_are_where_the_value_says() -> Result<()> {
    let links = |sets: &[&str]| -> Result<Vec<String>> {
        let objects = render::rendered(&[&["prometheusRule.enabled=true"][..], sets].concat())?;
        let groups = &render::only(&objects, "PrometheusRule")?["spec"]["groups"];
        let rules = groups.as_array().into_iter().flatten().filter_map(|group| group["rules"].as_array());
        let link = |rule: &serde_json::Value| rule["annotations"]["runbook_url"].as_str().map(str::to_owned);
        Ok(rules.flatten().filter_map(link).collect())
    };
    let elsewhere = links(&["prometheusRule.runbookUrl=https://git.example/sandprobe/docs/runbooks/"])?;
    ensure!(elsewhere.len() > 20, "{elsewhere:?}");
    for link in elsewhere {
        ensure!(link.starts_with("https://git.example/sandprobe/docs/runbooks/Sandprobe"), "{link}");
        ensure!(link.ends_with(".md"), "{link}");
    }
    let open = links(&["server.mode=insecure", "server.port=80", "fullnameOverride=probe"])?;
    let any = |link: &&String| link.starts_with("http://probe.sandprobe.svc:80/docs/runbooks/");
    ensure!(open.iter().filter(any).count() == 3, "{open:?}");
    let own = |link: &&String| link.starts_with("http://{{ $labels.instance }}/docs/runbooks/");
    ensure!(open.iter().filter(own).count() == open.len() - 3, "{open:?}");
    for wrong in ["runbooks", "javascript:x", "https://x/{{"] {
        let set = format!("prometheusRule.runbookUrl={wrong}");
        ensure!(render::template(&["prometheusRule.enabled=true", &set]).is_err(), "{set} was accepted");
    }
    Ok(())
}
