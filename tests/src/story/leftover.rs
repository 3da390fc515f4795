//! What stays after a pod: each with a guard that takes it away.

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tempfile::TempDir;

use super::{Act, Stage, Truth, namespace_file};
use crate::{cgroupfs, kubelet::Pod, program};

/// A second place that a network namespace is bound to.
#[derive(Debug)]
pub struct StrayMount {
    file: PathBuf,
    _folder: TempDir,
}

/// A process in a cgroup below a pod's, in each hierarchy, which therefore cannot be removed.
#[derive(Debug)]
pub struct Squatter {
    child: Child,
    cgroups: Vec<PathBuf>,
}

impl Stage<'_> {
    /// Somebody else has bound the pod's network namespace, and keeps it when the pod is gone. The address is freed.
    pub fn stray_mount(&mut self, pod: &Pod) -> Result<(Truth, StrayMount)> {
        self.enter(pod)?;
        let sandbox = self.player.run_sandbox(pod, 0)?;
        let file = namespace_file(&sandbox)?.context("the sandbox's namespace is bound to no file")?;
        let stray =
            self.player.act(Act::BindNetns, Some(&pod.uid), Some(&sandbox.id), |_| StrayMount::of(&file))?;
        self.player.complete_all(pod, &sandbox)?;
        self.player.stop(pod, &sandbox)?;
        self.player.leave(pod)?;
        self.player.remove(pod, &sandbox)?;
        Ok((self.truth()?, stray))
    }

    /// A process that nobody kills is in the pod's cgroup when all else of the pod is gone.
    pub fn stuck_cgroup(&mut self, pod: &Pod) -> Result<(Truth, Squatter)> {
        self.enter(pod)?;
        let sandbox = self.player.run_sandbox(pod, 0)?;
        self.player.complete_all(pod, &sandbox)?;
        let mut directories = self.player.kubelet.cgroup_directories(pod);
        // One of cpusets in v1 has no processors until somebody gives it some, and lets nobody in.
        directories.retain(|directory| !directory.join("cpuset.cpu_exclusive").exists());
        ensure!(!directories.is_empty(), "the pod has no cgroup");
        let squatter = Squatter::enter(&directories)?;
        self.player.stop(pod, &sandbox)?;
        self.player.fail_to_leave(pod, &directories)?;
        self.player.remove(pod, &sandbox)?;
        Ok((self.truth()?, squatter))
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
        // Nobody can be told; one that stays is found in the machine's mounts.
        let _ = umount2(&self.file, MntFlags::MNT_DETACH);
    }
}

impl Squatter {
    fn enter(pod: &[PathBuf]) -> Result<Self> {
        let cgroups: Vec<_> = pod.iter().map(|directory| directory.join("squatter")).collect();
        for cgroup in &cgroups {
            fs::create_dir(cgroup).with_context(|| format!("make cgroup {}", cgroup.display()))?;
        }
        let actor = program::path("actor")?;
        // It ends with its input, and so with this process.
        let child = Command::new(&actor)
            .arg("enter")
            .arg(env::join_paths(&cgroups)?)
            .arg(&actor)
            .arg("wait")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start a process for the cgroup")?;
        let mut squatter = Self { child, cgroups };
        let output = squatter.child.stdout.take().context("its output was asked for")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        ensure!(line == "ready\n", "the process for the cgroup said {line:?}");
        Ok(squatter)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where it is.
    pub fn cgroups(&self) -> &[PathBuf] {
        &self.cgroups
    }
}

impl Drop for Squatter {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // The cgroup above is the story's to remove.
        let _ = self.child.wait();
        for cgroup in &self.cgroups {
            let _ = cgroupfs::remove(cgroup);
        }
    }
}
