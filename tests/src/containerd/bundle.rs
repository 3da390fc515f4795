//! Which pods a containerd runs, from the bundles of their sandboxes: what the kubelet's part of each is.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{Place, sweep::names};
use crate::{cgroupfs, command};

/// What a kubelet made for a pod: its cgroup and its log directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PodTrace {
    /// A path from the root of each hierarchy, or a slice's name.
    cgroup_parent: String,
    logs: Option<PathBuf>,
}

/// The pods whose sandboxes have a bundle.
pub(super) fn pods(place: &Place) -> Vec<PodTrace> {
    let bundles = place.containerd_state().join("io.containerd.runtime.v2.task/k8s.io");
    // One that cannot be read is gone by now.
    let names = names(&bundles).unwrap_or_default();
    let read = |name: String| fs::read(bundles.join(name).join("config.json")).ok();
    names.into_iter().filter_map(read).filter_map(|text| trace(&text)).collect()
}

/// Removes a pod's cgroup, with what still runs in it, and its logs.
pub(super) fn remove(pod: &PodTrace) -> Result<()> {
    if pod.cgroup_parent.ends_with(".slice") && Path::new("/run/systemd/system").exists() {
        command::run("systemctl", &["stop", &pod.cgroup_parent])?;
    } else {
        for hierarchy in cgroupfs::hierarchies()? {
            let directory = hierarchy.directory(&path(&pod.cgroup_parent));
            cgroupfs::kill(&directory)?;
            cgroupfs::remove(&directory)?;
        }
    }
    let Some(logs) = &pod.logs else { return Ok(()) };
    match fs::remove_dir_all(logs) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", logs.display()))
        }
        _ => Ok(()),
    }
}

/// Where a slice stands, each dash of whose name is a level; any other parent is a path.
fn path(parent: &str) -> String {
    let Some(name) = parent.strip_suffix(".slice") else { return parent.to_owned() };
    let ends = name.match_indices('-').map(|(at, _)| at).chain([name.len()]);
    ends.map(|end| format!("/{}.slice", &name[..end])).collect()
}

/// From a bundle's configuration, if it is a sandbox's that lies in a pod's cgroup.
fn trace(configuration: &[u8]) -> Option<PodTrace> {
    let json: Value = serde_json::from_slice(configuration).ok()?;
    let annotation = |key: &str| json["annotations"][format!("io.kubernetes.cri.{key}")].as_str();
    if annotation("container-type")? != "sandbox" {
        return None;
    }
    // PARENT/ID, or SLICE:PREFIX:ID with the systemd driver.
    let path = json["linux"]["cgroupsPath"].as_str()?;
    let (parent, _) = path.split_once(':').or_else(|| path.rsplit_once('/'))?;
    // Never a shared level: only what is named after a pod.
    parent.rsplit('/').next().filter(|name| name.contains("pod") && *name != "kubepods")?;
    let logs = annotation("sandbox-log-directory").filter(|path| path.starts_with("/var/log/pods/"));
    Some(PodTrace { cgroup_parent: parent.to_owned(), logs: logs.map(PathBuf::from) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sandbox(cgroups_path: &str) -> Option<String> {
        let configuration = json!({
            "annotations": { "io.kubernetes.cri.container-type": "sandbox" },
            "linux": { "cgroupsPath": cgroups_path },
        });
        trace(configuration.to_string().as_bytes()).map(|pod| pod.cgroup_parent)
    }

    #[test]
    fn finds_the_pods_cgroup_above_the_sandboxes() {
        assert_eq!(
            sandbox("/kubepods/besteffort/pod11-22/ab").as_deref(),
            Some("/kubepods/besteffort/pod11-22")
        );
        let slice = "kubepods-besteffort-pod11_22.slice";
        assert_eq!(sandbox(&format!("{slice}:cri-containerd:ab")).as_deref(), Some(slice));
        assert_eq!(path(slice), format!("/kubepods.slice/kubepods-besteffort.slice/{slice}"));
        assert_eq!(path("/kubepods/besteffort/pod11-22"), "/kubepods/besteffort/pod11-22");
        assert_eq!(sandbox("/kubepods/ab"), None);
        assert_eq!(sandbox("/ab"), None);
    }
}
