//! The pod's own cgroup. The kubelet makes it before the sandbox and removes it soon after the pod's end.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::{Pod, Qos, pod::PERIOD};
use crate::{
    cgroupfs::{self, CgroupId, Hierarchy},
    command,
};

/// The cgroup driver: the kubelet and runc make cgroups themselves, or systemd makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    #[default]
    Cgroupfs,
    Systemd,
    /// The kubelet names slices as for systemd, and the runtime uses cgroupfs. Many nodes have this mistake.
    Mixed,
}

/// The node's pod cgroups.
pub(super) struct Cgroups {
    driver: Driver,
    hierarchies: Vec<Hierarchy>,
}

impl Cgroups {
    pub(super) fn new(driver: Driver) -> Result<Self> {
        if driver == Driver::Systemd {
            ensure!(
                Path::new("/run/systemd/system").exists(),
                "the systemd cgroup driver needs systemd as the first process of this machine"
            );
        }
        Ok(Self { driver, hierarchies: cgroupfs::hierarchies()? })
    }

    /// Returns the kubelet's `cgroup_parent` for the runtime.
    pub(super) fn parent(&self, pod: &Pod) -> String {
        match self.driver {
            Driver::Cgroupfs => path(pod),
            Driver::Systemd | Driver::Mixed => slices(pod).pop().unwrap_or_default(),
        }
    }

    /// Makes the pod's cgroup in every hierarchy and returns its ids.
    pub(super) fn make(&self, pod: &Pod) -> Result<Vec<CgroupId>> {
        match self.driver {
            Driver::Cgroupfs | Driver::Mixed => self.make_directories(&self.directory(pod))?,
            // A slice needs no unit file. Its name shows its parents, and systemd starts them too.
            Driver::Systemd => command::run("systemctl", &["start", &self.parent(pod)])?,
        }
        if let Some(quota) = pod.cpu_quota() {
            self.limit(pod, quota)?;
        }
        let directory = self.directory(pod);
        let present = self.hierarchies.iter().filter(|hierarchy| hierarchy.directory(&directory).exists());
        present.map(|hierarchy| hierarchy.id_of(&directory)).collect()
    }

    pub(super) fn remove(&self, pod: &Pod) -> Result<()> {
        let directory = self.directory(pod);
        for hierarchy in &self.hierarchies {
            cgroupfs::kill(&hierarchy.directory(&directory))?;
        }
        if self.driver == Driver::Systemd {
            return command::run("systemctl", &["stop", &self.parent(pod)]);
        }
        for hierarchy in &self.hierarchies {
            cgroupfs::remove(&hierarchy.directory(&directory))?;
        }
        Ok(())
    }

    pub(super) fn directories(&self, pod: &Pod) -> Vec<PathBuf> {
        let path = self.directory(pod);
        let all = self.hierarchies.iter().map(|hierarchy| hierarchy.directory(&path));
        all.filter(|directory| directory.exists()).collect()
    }

    /// Returns the path of the pod's cgroup from the root of a hierarchy.
    fn directory(&self, pod: &Pod) -> String {
        match self.driver {
            Driver::Cgroupfs => path(pod),
            Driver::Systemd | Driver::Mixed => {
                slices(pod).iter().fold(String::new(), |path, slice| format!("{path}/{slice}"))
            }
        }
    }

    /// Sets the pod's CPU limit. With systemd a request to systemd would be needed.
    fn limit(&self, pod: &Pod, quota: i64) -> Result<()> {
        ensure!(self.driver == Driver::Cgroupfs, "a pod with this cgroup driver cannot have a CPU limit");
        let path = path(pod);
        let has_cpu = |hierarchy: &&Hierarchy| hierarchy.controllers.split(',').any(|name| name == "cpu");
        let (directory, limits) = match self.hierarchies.iter().find(has_cpu) {
            Some(legacy) => {
                let limits =
                    [("cpu.cfs_period_us", PERIOD.to_string()), ("cpu.cfs_quota_us", quota.to_string())];
                (legacy.directory(&path), limits.to_vec())
            }
            None => {
                let unified = self.hierarchies.iter().find(|hierarchy| hierarchy.id == 0);
                let unified = unified.context("no hierarchy has the controller cpu")?;
                (unified.directory(&path), vec![("cpu.max", format!("{quota} {PERIOD}"))])
            }
        };
        for (file, text) in limits {
            let file = directory.join(file);
            fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
        }
        Ok(())
    }

    fn make_directories(&self, path: &str) -> Result<()> {
        let unified = cgroupfs::is_unified(&self.hierarchies);
        for hierarchy in &self.hierarchies {
            let pod = hierarchy.directory(path);
            fs::create_dir_all(&pod).with_context(|| format!("make {}", pod.display()))?;
            if unified && hierarchy.id == 0 {
                enable_controllers(&hierarchy.mount, &pod)?;
            }
        }
        Ok(())
    }
}

/// On v2 a cgroup has the controllers that its parent enables. This enables all from the root to the pod.
fn enable_controllers(mount: &Path, pod: &Path) -> Result<()> {
    let levels: Vec<_> = pod.ancestors().take_while(|ancestor| ancestor.starts_with(mount)).collect();
    for directory in levels.into_iter().rev() {
        let available = fs::read_to_string(directory.join("cgroup.controllers"))?;
        let enable: Vec<_> = available.split_whitespace().map(|name| format!("+{name}")).collect();
        let control = directory.join("cgroup.subtree_control");
        fs::write(&control, enable.join(" ")).with_context(|| format!("write {}", control.display()))?;
    }
    Ok(())
}

/// `/kubepods/besteffort/podUID`. A guaranteed pod has no level for its class.
fn path(pod: &Pod) -> String {
    match class(pod.qos) {
        Some(class) => format!("/kubepods/{class}/pod{}", pod.uid),
        None => format!("/kubepods/pod{}", pod.uid),
    }
}

/// `kubepods.slice`, `kubepods-besteffort.slice`, `kubepods-besteffort-podUID.slice`. Each dash is a level,
/// so the dashes of the UID become underscores.
fn slices(pod: &Pod) -> Vec<String> {
    let mut slices = vec!["kubepods.slice".to_owned()];
    let mut prefix = "kubepods".to_owned();
    if let Some(class) = class(pod.qos) {
        prefix = format!("{prefix}-{class}");
        slices.push(format!("{prefix}.slice"));
    }
    slices.push(format!("{prefix}-pod{}.slice", pod.uid.replace('-', "_")));
    slices
}

fn class(qos: Qos) -> Option<&'static str> {
    match qos {
        Qos::Guaranteed => None,
        Qos::Burstable => Some("burstable"),
        Qos::BestEffort => Some("besteffort"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_real_kubelet() {
        let mut pod = Pod::new("web", "11-22");
        assert_eq!(path(&pod), "/kubepods/besteffort/pod11-22");
        assert_eq!(
            slices(&pod),
            ["kubepods.slice", "kubepods-besteffort.slice", "kubepods-besteffort-pod11_22.slice"]
        );
        pod.qos = Qos::Guaranteed;
        assert_eq!(path(&pod), "/kubepods/pod11-22");
        assert_eq!(slices(&pod), ["kubepods.slice", "kubepods-pod11_22.slice"]);
    }
}
