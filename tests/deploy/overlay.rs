//! The overlay that docs/install.md shows to users of kustomize does what the page says.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::render;

/// Returns the overlay from the docs.
fn documented_overlay() -> Result<String> {
    let docs = fs::read_to_string(render::root().join("docs/install.md"))?;
    let (_, rest) =
        docs.split_once("```yaml\n# kustomization.yaml\n").context("docs/install.md has no overlay")?;
    let (overlay, _) = rest.split_once("```").context("the overlay does not end")?;
    Ok(overlay.to_owned())
}

#[test]
fn the_overlay_adds_capabilities() -> Result<()> {
    let dir = tempfile::tempdir()?;
    render::copy(&render::root().join("deploy/manifests"), &dir.path().join("manifests"))?;
    let overlay = dir.path().join("overlay");
    fs::create_dir(&overlay)?;
    fs::write(overlay.join("kustomization.yaml"), documented_overlay()?)?;
    // An absolute path replaces the path in the repository.
    let made = render::objects(&render::kustomize(&overlay.display().to_string())?)?;
    let container = |objects: &[Value]| -> Result<Value> {
        Ok(render::only(objects, "DaemonSet")?["spec"]["template"]["spec"]["containers"][0].clone())
    };
    let (mut with, mut without) =
        (container(&made)?, container(&render::objects(&render::kustomize("deploy/manifests")?)?)?);
    let list = |of: &mut Value| -> Result<Vec<String>> {
        Ok(serde_json::from_value(of["securityContext"]["capabilities"]["add"].take())?)
    };
    let (more, usual) = (list(&mut with)?, list(&mut without)?);
    ensure!(usual.iter().all(|name| more.contains(name)), "{more:?} lacks some of {usual:?}");
    for name in ["SYSLOG", "NET_ADMIN", "NET_BROADCAST"] {
        ensure!(more.iter().any(|it| it == name), "no {name}: {more:?}");
    }
    ensure!(with == without, "more than the capabilities differ");
    Ok(())
}

/// `kubectl apply` warns of a pod that the namespace's warning level refuses.
#[test]
fn the_namespace_neither_refuses_nor_warns() -> Result<()> {
    let objects = render::objects(&render::kustomize("deploy/manifests")?)?;
    let labels = &render::only(&objects, "Namespace")?["metadata"]["labels"];
    for mode in ["enforce", "audit", "warn"] {
        let level = &labels[format!("pod-security.kubernetes.io/{mode}")];
        ensure!(level == "privileged", "{mode} is {level}");
    }
    Ok(())
}

/// The component for node-problem-detector, on a DaemonSet like that project's.
#[test]
fn the_component_adds_the_plugin_to_node_problem_detector() -> Result<()> {
    let dir = tempfile::tempdir()?;
    render::copy(&render::root().join("deploy/node-problem-detector"), &dir.path().join("component"))?;
    let daemon_set = json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": "node-problem-detector", "namespace": "kube-system" },
        "spec": {
            "selector": { "matchLabels": { "app": "npd" } },
            "template": {
                "metadata": { "labels": { "app": "npd" } },
                "spec": {
                    "containers": [{
                        "name": "node-problem-detector",
                        "image": "registry.k8s.io/node-problem-detector/node-problem-detector:v0.8.19",
                        "volumeMounts": [{ "name": "log", "mountPath": "/var/log" }],
                    }],
                    "volumes": [{ "name": "log", "hostPath": { "path": "/var/log/" } }],
                },
            },
        },
    });
    let overlay = dir.path().join("overlay");
    fs::create_dir(&overlay)?;
    fs::write(overlay.join("npd.json"), daemon_set.to_string())?;
    fs::write(overlay.join("kustomization.yaml"), "resources: [npd.json]\ncomponents: [../component]\n")?;
    let made = render::objects(&render::kustomize(&overlay.display().to_string())?)?;
    let pod = &render::only(&made, "DaemonSet")?["spec"]["template"]["spec"];
    let map = render::only(&made, "ConfigMap")?;
    let config: Value = serde_json::from_str(map["data"]["sandprobe.json"].as_str().context("a config")?)?;
    let names = |list: &Value| -> Vec<String> {
        let items = list.as_array().into_iter().flatten();
        items.filter_map(|it| it["name"].as_str().map(str::to_owned)).collect()
    };
    let container = &pod["containers"][0];
    ensure!(names(&pod["containers"]) == ["node-problem-detector"], "{pod}");
    for (name, path) in
        [("log", "/var/log"), ("sandprobe-plugin", "/plugins"), ("sandprobe-run", "/run/sandprobe")]
    {
        let mounts = container["volumeMounts"].as_array().context("mounts")?;
        ensure!(mounts.iter().any(|it| it["name"] == name && it["mountPath"] == path), "{name}: {mounts:?}");
        ensure!(names(&pod["volumes"]).iter().any(|it| it == name), "{name}: {}", pod["volumes"]);
    }
    let volumes = pod["volumes"].as_array().context("volumes")?;
    let made_name = &map["metadata"]["name"];
    ensure!(volumes.iter().any(|it| it["configMap"]["name"] == *made_name), "{made_name}: {volumes:?}");
    // The rule starts the file that the init container writes.
    let rule = &config["rules"][0];
    let target = format!("--copy-to={}", rule["path"].as_str().context("a path")?);
    ensure!(pod["initContainers"][0]["args"][1] == target.as_str(), "{}", pod["initContainers"]);
    Ok(())
}
