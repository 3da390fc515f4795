//! The cgroup hierarchies that this machine mounts. Makes and removes cgroups in them.
//!
//! A node has one hierarchy (v2), many (v1, one for each controller) or both (hybrid). Each hierarchy has its
//! own id space, so a cgroup is always named by the pair (hierarchy, id).

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use nix::{errno::Errno, sys::signal::Signal, unistd::Pid};
use serde::{Deserialize, Serialize};

use crate::clock;

/// One mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// The kernel's number of the hierarchy. v2 has 0.
    pub id: u32,
    /// `memory`, `cpu,cpuacct` or `name=systemd`. Empty for v2.
    pub controllers: String,
    pub mount: PathBuf,
}

/// A cgroup as the kernel's tracepoints name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CgroupId {
    pub hierarchy: u32,
    pub id: u64,
}

/// Returns every mounted hierarchy, v2 first.
pub fn hierarchies() -> Result<Vec<Hierarchy>> {
    let memberships = fs::read_to_string("/proc/self/cgroup").context("read /proc/self/cgroup")?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("read /proc/self/mountinfo")?;
    let mut found: Vec<_> = memberships.lines().filter_map(|line| hierarchy(line, &mounts)).collect();
    found.sort_by_key(|hierarchy| hierarchy.id);
    if found.is_empty() {
        return Err(anyhow!("no cgroup hierarchy is mounted"));
    }
    Ok(found)
}

/// Whether v2 has the controllers. False on v1 and hybrid nodes.
pub fn is_unified(hierarchies: &[Hierarchy]) -> bool {
    hierarchies.iter().all(|hierarchy| hierarchy.id == 0 || hierarchy.controllers.starts_with("name="))
}

/// Returns the hierarchy whose cgroups identify containers: v2 on a v2 node, otherwise the memory
/// controller's.
pub fn of_containers(hierarchies: &[Hierarchy]) -> Option<&Hierarchy> {
    let wanted = |hierarchy: &&Hierarchy| {
        if is_unified(hierarchies) {
            hierarchy.id == 0
        } else {
            hierarchy.controllers.split(',').any(|controller| controller == "memory")
        }
    };
    hierarchies.iter().find(wanted)
}

impl Hierarchy {
    /// Returns the id of the cgroup at `path`, an absolute path inside the hierarchy.
    ///
    /// kernfs uses a node's 64-bit id as its inode number.
    pub fn id_of(&self, path: &str) -> Result<CgroupId> {
        let directory = self.directory(path);
        let metadata =
            fs::metadata(&directory).with_context(|| format!("look at {}", directory.display()))?;
        Ok(CgroupId { hierarchy: self.id, id: metadata.ino() })
    }

    /// Returns the directory of the cgroup at `path`.
    pub fn directory(&self, path: &str) -> PathBuf {
        self.mount.join(path.trim_start_matches('/'))
    }
}

/// Kills the processes in a cgroup and below it.
pub fn kill(directory: &Path) -> Result<()> {
    for directory in subtree(directory) {
        let Ok(text) = fs::read_to_string(directory.join("cgroup.procs")) else { continue };
        for pid in text.lines().filter_map(|line| line.parse().ok()) {
            match nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGKILL) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => return Err(error).with_context(|| format!("kill process {pid}")),
            }
        }
    }
    Ok(())
}

/// Removes a cgroup and those below it. Waits until the last process has left them.
pub fn remove(directory: &Path) -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(30);
    for directory in subtree(directory) {
        // EBUSY lasts until an ending process has left the cgroup, shortly after its parent reaped it.
        clock::poll(&format!("remove cgroup {}", directory.display()), LIMIT, || {
            match fs::remove_dir(&directory) {
                Ok(()) => Ok(Some(())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(())),
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(None),
                Err(error) => Err(error).with_context(|| format!("remove cgroup {}", directory.display())),
            }
        })?;
    }
    Ok(())
}

/// `directory` and everything below it, children before parents. Directories that vanish meanwhile are left
/// out.
fn subtree(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if let Ok(entries) = fs::read_dir(directory) {
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                found.extend(subtree(&entry.path()));
            }
        }
    }
    found.push(directory.to_owned());
    found
}

/// Returns the hierarchy of a line of `/proc/self/cgroup` (`ID:CONTROLLERS:PATH`), if it is mounted.
fn hierarchy(membership: &str, mounts: &str) -> Option<Hierarchy> {
    let mut fields = membership.splitn(3, ':');
    let id = fields.next()?.parse().ok()?;
    let controllers = fields.next()?;
    let mount = mounts.lines().find_map(|line| mount_point(line, controllers))?;
    Some(Hierarchy { id, controllers: controllers.to_owned(), mount })
}

/// Returns the mount point of a line of mountinfo (`ID PARENT DEV ROOT MOUNT OPTIONS… - TYPE SOURCE SUPER`),
/// if it is the root of the hierarchy with these controllers.
fn mount_point(line: &str, controllers: &str) -> Option<PathBuf> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let (root, mount) = (left.next()?, left.next()?);
    let mut right = right.split(' ');
    let (kind, options) = (right.next()?, right.nth(1)?);
    let matches = match kind {
        "cgroup2" => controllers.is_empty(),
        "cgroup" => {
            !controllers.is_empty() && controllers.split(',').all(|c| options.split(',').any(|o| o == c))
        }
        _ => false,
    };
    (matches && root == "/").then(|| PathBuf::from(mount))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
35 34 0:30 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
36 34 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
37 34 0:32 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
38 34 0:33 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate";

    #[test]
    fn finds_the_mount_of_each_hierarchy() {
        let mount = |line| hierarchy(line, MOUNTS).map(|found| (found.id, found.mount));
        let at = |id, path: &str| Some((id, PathBuf::from(path)));
        assert_eq!(mount("4:memory:/x"), at(4, "/sys/fs/cgroup/memory"));
        assert_eq!(mount("2:cpu,cpuacct:/"), at(2, "/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(mount("9:name=systemd:/"), at(9, "/sys/fs/cgroup/systemd"));
        assert_eq!(mount("0::/"), at(0, "/sys/fs/cgroup/unified"));
        assert_eq!(mount("3:pids:/"), None);
    }

    #[test]
    fn a_hybrid_node_identifies_containers_by_the_memory_controller() {
        let all: Vec<_> = ["0::/", "4:memory:/", "9:name=systemd:/"]
            .iter()
            .filter_map(|line| hierarchy(line, MOUNTS))
            .collect();
        assert!(!is_unified(&all));
        assert_eq!(of_containers(&all).map(|hierarchy| hierarchy.id), Some(4));
        assert_eq!(of_containers(&all[..1]).map(|hierarchy| hierarchy.id), Some(0));
    }
}
