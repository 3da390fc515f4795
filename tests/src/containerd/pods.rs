//! The pods that kubelets made on a private containerd. Each has a file beside the socket, so that the next
//! run can remove what a killed one left of the pod, whatever the runtime knows of it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::{Place, sweep::names};
use crate::{cgroupfs, command};

/// The kubelet's part of a pod: its cgroup and its log directory.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PodTrace {
    /// A path from the root of each hierarchy, or the name of a slice.
    pub(crate) cgroup_parent: String,
    pub(crate) logs: PathBuf,
}

impl PodTrace {
    /// Notes a pod that is about to be made. Does nothing where the runtime is no private containerd.
    pub(crate) fn note(&self, socket: &Path, uid: &str) -> Result<()> {
        let directory = socket.with_file_name("pods");
        if directory.is_dir() {
            let path = directory.join(uid);
            fs::write(&path, serde_json::to_vec(self)?)
                .with_context(|| format!("write {}", path.display()))?;
        }
        Ok(())
    }

    /// Removes a pod's cgroup with the processes in it, and its logs.
    fn remove(&self) -> Result<()> {
        let is_of_systemd =
            self.cgroup_parent.ends_with(".slice") && Path::new("/run/systemd/system").exists();
        for hierarchy in cgroupfs::hierarchies()? {
            let directory = hierarchy.directory(&path(&self.cgroup_parent));
            if !directory.exists() {
                continue;
            }
            if is_of_systemd {
                command::run("systemctl", &["stop", &self.cgroup_parent])?;
            } else {
                cgroupfs::kill(&directory)?;
                cgroupfs::remove(&directory)?;
            }
        }
        match fs::remove_dir_all(&self.logs) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("remove {}", self.logs.display()))
            }
            _ => Ok(()),
        }
    }
}

/// Removes what is left of the pods that were made on a containerd. Returns a line for each that could not be
/// removed.
pub(super) fn remove(place: &Place) -> Vec<String> {
    let directory = place.pods();
    let uids = match names(&directory) {
        Ok(uids) => uids,
        Err(error) => return vec![format!("pods: {error:#}")],
    };
    let mut problems = Vec::new();
    for uid in uids {
        if let Err(error) = remove_noted(&directory.join(&uid)) {
            problems.push(format!("pod {uid}: {error:#}"));
        }
    }
    problems
}

/// Removes what is left of a pod, then its note.
fn remove_noted(path: &Path) -> Result<()> {
    // A kubelet that was killed while it wrote the note had not made the pod yet.
    if let Ok(pod) = serde_json::from_slice::<PodTrace>(&fs::read(path)?) {
        pod.remove()?;
    }
    Ok(fs::remove_file(path)?)
}

/// Returns the path of a cgroup parent. Each dash in the name of a slice is a level. Any other parent is a
/// path already.
fn path(parent: &str) -> String {
    let Some(name) = parent.strip_suffix(".slice") else { return parent.to_owned() };
    let ends = name.match_indices('-').map(|(at, _)| at).chain([name.len()]);
    ends.map(|end| format!("/{}.slice", &name[..end])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_below_the_slices_that_its_name_begins_with() {
        let slice = "kubepods-besteffort-pod11_22.slice";
        assert_eq!(path(slice), format!("/kubepods.slice/kubepods-besteffort.slice/{slice}"));
        assert_eq!(path("/kubepods/besteffort/pod11-22"), "/kubepods/besteffort/pod11-22");
    }

    #[test]
    fn only_a_private_containerd_notes_its_pods() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let socket = directory.path().join("containerd.sock");
        let pod =
            PodTrace { cgroup_parent: "/kubepods/pod11-22".to_owned(), logs: PathBuf::from("/nowhere") };
        pod.note(&socket, "11-22")?;
        assert_eq!(fs::read_dir(directory.path())?.count(), 0);
        fs::create_dir(directory.path().join("pods"))?;
        pod.note(&socket, "11-22")?;
        assert!(directory.path().join("pods/11-22").exists());
        Ok(())
    }
}
