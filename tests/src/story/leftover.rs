//! Leftovers of a pod, each with a guard that removes it.

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tempfile::TempDir;

use super::{Action, Stage, Truth, namespace_file};
use crate::{cgroupfs, kubelet::Pod, program};

/// A second file to which a network namespace is bound.
#[derive(Debug)]
pub struct StrayMount {
    file: PathBuf,
    _folder: TempDir,
}

/// A process in a cgroup below a pod's, in each hierarchy. The pod's cgroup cannot be removed while it runs.
#[derive(Debug)]
pub struct CgroupHolder {
    child: Child,
    cgroups: Vec<PathBuf>,
}

impl Stage<'_> {
    /// Another mount holds the pod's network namespace after the pod's end. The address is freed.
    pub fn stray_mount(&mut self, pod: &Pod) -> Result<(Truth, StrayMount)> {
        self.enter(pod)?;
        let sandbox = self.runner.run_sandbox(pod, 0)?;
        let file = namespace_file(&sandbox)?.context("the sandbox's namespace is bound to no file")?;
        let stray = self
            .runner
            .run(Action::BindNetns, Some(&pod.uid), Some(&sandbox.id), |_| StrayMount::of(&file))?;
        self.runner.complete_all(pod, &sandbox)?;
        self.runner.stop(pod, &sandbox)?;
        self.runner.leave(pod)?;
        self.runner.remove(pod, &sandbox)?;
        Ok((self.truth()?, stray))
    }

    /// A process that nobody kills stays in the pod's cgroup after the rest of the pod is gone.
    pub fn stuck_cgroup(&mut self, pod: &Pod) -> Result<(Truth, CgroupHolder)> {
        self.enter(pod)?;
        let sandbox = self.runner.run_sandbox(pod, 0)?;
        self.runner.complete_all(pod, &sandbox)?;
        let mut directories = self.runner.kubelet.cgroup_directories(pod);
        // A v1 cpuset cgroup without CPUs accepts no process.
        directories.retain(|directory| !directory.join("cpuset.cpu_exclusive").exists());
        ensure!(!directories.is_empty(), "the pod has no cgroup");
        let holder = CgroupHolder::enter(&directories)?;
        self.runner.stop(pod, &sandbox)?;
        self.runner.fail_to_leave(pod, &directories)?;
        self.runner.remove(pod, &sandbox)?;
        Ok((self.truth()?, holder))
    }
}

impl StrayMount {
    fn of(namespace: &Path) -> Result<Self> {
        let folder = tempfile::tempdir().context("make a temporary directory")?;
        let file = folder.path().join("netns");
        fs::write(&file, "").with_context(|| format!("make {}", file.display()))?;
        mount(Some(namespace), &file, None::<&str>, MsFlags::MS_BIND, None::<&str>)
            .with_context(|| format!("bind {} to {}", namespace.display(), file.display()))?;
        Ok(Self { file, _folder: folder })
    }

    pub fn path(&self) -> &Path {
        &self.file
    }
}

impl Drop for StrayMount {
    fn drop(&mut self) {
        // An error in drop cannot be reported. A remaining mount is visible in the machine's mounts.
        let _ = umount2(&self.file, MntFlags::MNT_DETACH);
    }
}

impl CgroupHolder {
    fn enter(pod: &[PathBuf]) -> Result<Self> {
        let cgroups: Vec<_> = pod.iter().map(|directory| directory.join("holder")).collect();
        for cgroup in &cgroups {
            fs::create_dir(cgroup).with_context(|| format!("make cgroup {}", cgroup.display()))?;
        }
        let actor = program::path("actor")?;
        // It ends when its input is closed, and so at the latest with this process.
        let child = Command::new(&actor)
            .arg("enter")
            .arg(env::join_paths(&cgroups)?)
            .arg(&actor)
            .arg("wait")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start a process for the cgroup")?;
        let mut holder = Self { child, cgroups };
        let output = holder.child.stdout.take().context("its output was asked for")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        ensure!(line == "ready\n", "the process for the cgroup printed {line:?}");
        Ok(holder)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the cgroups of the process.
    pub fn cgroups(&self) -> &[PathBuf] {
        &self.cgroups
    }
}

impl Drop for CgroupHolder {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // The story removes the pod's cgroup itself.
        let _ = self.child.wait();
        for cgroup in &self.cgroups {
            let _ = cgroupfs::remove(cgroup);
        }
    }
}
