//! The overlay that docs/install.md shows to users of kustomize does what the page says.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};

use crate::render;

/// The file in the docs that begins with this line.
fn documented_overlay() -> Result<String> {
    let docs = fs::read_to_string(render::root().join("docs/install.md"))?;
    let (_, rest) =
        docs.split_once("```yaml\n# kustomization.yaml\n").context("docs/install.md has no overlay")?;
    let (overlay, _) = rest.split_once("```").context("the overlay does not end")?;
    Ok(overlay.to_owned())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        if path.is_file() {
            fs::copy(&path, to.join(path.file_name().context("a name")?))?;
        }
    }
    Ok(())
}

#[test]
fn the_overlay_adds_capabilities() -> Result<()> {
    let dir = tempfile::tempdir()?;
    copy(&render::root().join("deploy/manifests"), &dir.path().join("manifests"))?;
    let overlay = dir.path().join("overlay");
    fs::create_dir(&overlay)?;
    fs::write(overlay.join("kustomization.yaml"), documented_overlay()?)?;
    // An absolute path replaces the repository's.
    let made = render::objects(&render::kustomize(&overlay.display().to_string())?)?;
    let container = |objects: &[serde_json::Value]| -> Result<serde_json::Value> {
        Ok(render::only(objects, "DaemonSet")?["spec"]["template"]["spec"]["containers"][0].clone())
    };
    let (mut with, mut without) =
        (container(&made)?, container(&render::objects(&render::kustomize("deploy/manifests")?)?)?);
    let list = |of: &mut serde_json::Value| -> Result<Vec<String>> {
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
