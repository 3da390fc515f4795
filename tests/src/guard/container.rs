//! A cgroup as runtimes make it for a container, and processes in it.

use std::{
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use super::{cgroup::CgroupGuard, unique_name};
use crate::{cgroupfs::Hierarchy, clock, program};

/// The cgroup of a container in a pod. When this is dropped, the cgroup and the processes in it are removed.
pub struct Container {
    cgroup: CgroupGuard,
    _above: CgroupGuard,
}

impl Container {
    pub fn create(hierarchy: &Hierarchy) -> Result<Self> {
        Self::create_below(hierarchy, "")
    }

    /// Creates it below the cgroup at `path`.
    pub fn create_below(hierarchy: &Hierarchy, path: &str) -> Result<Self> {
        let above = CgroupGuard::create_at(hierarchy, &format!("{path}/{}", unique_name("test")))?;
        let kubepods = format!("{}/kubepods", above.path());
        std::fs::create_dir(hierarchy.directory(&kubepods))?;
        let pod = format!("{kubepods}/pod{}", unique_name("5d1cb95b-0000-4000-8000"));
        std::fs::create_dir(hierarchy.directory(&pod))?;
        let cgroup = CgroupGuard::create_at(hierarchy, &format!("{pod}/{}", new_id()?))?;
        Ok(Self { _above: above, cgroup })
    }

    /// Creates it like a runtime that uses systemd's form of a cgroup path as a directory name.
    pub fn create_with_slice(hierarchy: &Hierarchy) -> Result<Self> {
        let above = CgroupGuard::create(hierarchy)?;
        let slice = "kubelet-kubepods-besteffort-pod5d1cb95b_0000_4000_8000_000000000001.slice";
        let path = format!("{}/{slice}:cri-containerd:{}", above.path(), new_id()?);
        Ok(Self { cgroup: CgroupGuard::create_at(hierarchy, &path)?, _above: above })
    }

    pub fn cgroup(&self) -> &CgroupGuard {
        &self.cgroup
    }

    /// Returns the arguments that, in front of a command, execute it in the container.
    pub fn enter(&self) -> Result<Vec<String>> {
        let directory = self.cgroup.directory().to_str().context("the path is not UTF-8")?;
        Ok(vec![actor()?, "enter".to_owned(), directory.to_owned()])
    }

    /// Returns a command that runs in the container.
    pub fn command(&self, words: &[&str]) -> Result<Command> {
        self.command_also_in(&[], words)
    }

    /// Like `command`, and the process is in cgroups of other hierarchies too.
    pub fn command_also_in(&self, others: &[PathBuf], words: &[&str]) -> Result<Command> {
        let directories = [self.cgroup.directory().to_owned()].into_iter().chain(others.iter().cloned());
        let mut command = Command::new(program::path("actor")?);
        command.arg("enter").arg(std::env::join_paths(directories)?).args(words);
        Ok(command)
    }

    /// Starts a process in the container that does nothing until it is killed.
    pub fn idle(&self) -> Result<Child> {
        let actor = actor()?;
        let mut child =
            self.command(&[&actor, "wait"])?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
        ensure!(line == "ready\n", "the process did not begin");
        Ok(child)
    }
}

/// Returns a unique container id.
pub fn new_id() -> Result<String> {
    Ok(format!("{:032x}{:032x}", std::process::id(), clock::boot_ns()?))
}

pub fn actor() -> Result<String> {
    program::path("actor")?.into_os_string().into_string().ok().context("the path is not UTF-8")
}
