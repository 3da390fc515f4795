//! The pods of a containerd by the bundles of their sandboxes, and what the kubelet made for each pod.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{Place, sweep::names};
use crate::{cgroupfs, command};

/// The kubelet's part of a pod: its cgroup and its log directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PodTrace {
    /// A path from the root of each hierarchy, or the name of a slice.
    cgroup_parent: String,
    logs: Option<PathBuf>,
}

/// Returns the pods whose sandboxes have a bundle.
pub(super) fn pods(place: &Place) -> Vec<PodTrace> {
    let bundles = place.containerd_state().join("io.containerd.runtime.v2.task/k8s.io");
    // A bundle that cannot be read was removed meanwhile.
    let names = names(&bundles).unwrap_or_default();
    let read = |name: String| fs::read(bundles.join(name).join("config.json")).ok();
    names.into_iter().filter_map(read).filter_map(|text| trace(&text)).collect()
}

/// Removes a pod's cgroup with the processes in it, and its logs.
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

/// Returns the path of a cgroup parent. Each dash in the name of a slice is a level. Any other parent is a
/// path already.
fn path(parent: &str) -> String {
    let Some(name) = parent.strip_suffix(".slice") else { return parent.to_owned() };
    let ends = name.match_indices('-').map(|(at, _)| at).chain([name.len()]);
    ends.map(|end| format!("/{}.slice", &name[..end])).collect()
}

/// Reads a bundle's configuration. `Some` if it is the sandbox of a pod with its own cgroup.
fn trace(configuration: &[u8]) -> Option<PodTrace> {
    let json: Value = serde_json::from_slice(configuration).ok()?;
    let annotation = |key: &str| json["annotations"][format!("io.kubernetes.cri.{key}")].as_str();
    if annotation("container-type")? != "sandbox" {
        return None;
    }
    // The path is PARENT/ID, or SLICE:PREFIX:ID with the systemd driver.
    let path = json["linux"]["cgroupsPath"].as_str()?;
    let (parent, _) = path.split_once(':').or_else(|| path.rsplit_once('/'))?;
    // Only a cgroup that is named after a pod counts, never a shared level.
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
    fn the_pods_cgroup_is_above_the_sandboxes() {
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
