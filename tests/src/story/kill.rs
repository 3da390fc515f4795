//! Ends of pause that the runtime does not cause.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{Action, Stage, Truth, runner::ActionRunner};
use crate::{
    cgroupfs::{self, Hierarchy},
    clock,
    kubelet::{Pod, Sandbox},
    machine, program,
};

/// Enough memory for pause, and soon full.
const LITTLE: &str = "16777216";

impl Stage<'_> {
    /// The test kills pause with a signal while the pod runs. The file of its namespace stays, so DEL frees
    /// the address.
    pub fn killed_pause(&mut self, pod: &Pod) -> Result<Truth> {
        self.dying_pause(pod, |runner, pod, sandbox| runner.kill_sandbox(pod, sandbox))
    }

    /// The OOM killer kills pause, because another process in the sandbox's cgroup takes the memory.
    pub fn starved_pause(&mut self, pod: &Pod) -> Result<Truth> {
        self.dying_pause(pod, |runner, pod, sandbox| runner.starve_sandbox(pod, sandbox))
    }

    fn dying_pause(
        &mut self,
        pod: &Pod,
        end: impl FnOnce(&mut ActionRunner<'_>, &Pod, &Sandbox) -> Result<()>,
    ) -> Result<Truth> {
        self.enter(pod)?;
        let sandbox = self.runner.run_sandbox(pod, 0)?;
        for container in &pod.containers {
            self.runner.run_container(pod, &sandbox, container, 0)?;
        }
        end(&mut self.runner, pod, &sandbox)?;
        self.runner.wait_dead(&sandbox)?;
        self.runner.stop(pod, &sandbox)?;
        self.runner.leave(pod)?;
        self.runner.remove(pod, &sandbox)?;
        self.truth()
    }
}

impl ActionRunner<'_> {
    /// Kills all processes in the sandbox's cgroup by its `cgroup.kill`, or pause alone with a signal if the
    /// kernel has no such file.
    pub(super) fn kill_sandbox(&mut self, pod: &Pod, sandbox: &Sandbox) -> Result<()> {
        until_pause_runs(sandbox)?;
        let hierarchies = cgroupfs::hierarchies()?;
        let unified = hierarchies.iter().find(|hierarchy| hierarchy.id == 0);
        let file = match unified {
            Some(unified) => {
                directory_of(sandbox.pid, unified)?.map(|directory| directory.join("cgroup.kill"))
            }
            None => None,
        };
        self.run(Action::KillSandbox, Some(&pod.uid), Some(&sandbox.id), |_| {
            match file.filter(|file| file.exists()) {
                Some(file) => fs::write(&file, "1").with_context(|| format!("write {}", file.display())),
                None => kill(Pid::from_raw(sandbox.pid), Signal::SIGKILL).context("kill pause"),
            }
        })
    }

    /// Limits the memory of the sandbox's cgroup, makes pause the kernel's preferred victim, and starts
    /// another process there that takes all memory.
    fn starve_sandbox(&mut self, pod: &Pod, sandbox: &Sandbox) -> Result<()> {
        until_pause_runs(sandbox)?;
        let hierarchies = cgroupfs::hierarchies()?;
        let hierarchy = cgroupfs::of_containers(&hierarchies).context("no hierarchy has memory")?;
        let directory = directory_of(sandbox.pid, hierarchy)?.context("pause is in no cgroup of its own")?;
        let limit = if hierarchy.id == 0 { "memory.max" } else { "memory.limit_in_bytes" };
        let limit = directory.join(limit);
        fs::write(&limit, LITTLE).with_context(|| format!("write {}", limit.display()))?;
        let score = format!("/proc/{}/oom_score_adj", sandbox.pid);
        fs::write(&score, "1000").with_context(|| format!("write {score}"))?;
        let actor = program::path("actor")?;
        let process = PathBuf::from(format!("/proc/{}", sandbox.pid));
        self.run(Action::StarveSandbox, Some(&pod.uid), Some(&sandbox.id), |_| {
            let mut eater = Command::new(&actor);
            eater.arg("enter").arg(&directory).arg(&actor).arg("eat-shared").stdin(Stdio::null());
            // The process allocates memory until it is killed too, after pause.
            let status = eater.status().context("start the eater")?;
            ensure!(status.code().is_none(), "the eater ended with {status}");
            clock::poll("end of pause", machine::patience(), || Ok((!process.exists()).then_some(())))
        })
    }
}

/// Waits until the sandbox's process executes pause. The runtime answers when it has started it, perhaps
/// before.
fn until_pause_runs(sandbox: &Sandbox) -> Result<()> {
    let file = format!("/proc/{}/comm", sandbox.pid);
    clock::poll("start of pause", machine::patience(), || {
        let comm = fs::read_to_string(&file).with_context(|| format!("read {file}"))?;
        Ok((comm.trim_end() == "pause").then_some(()))
    })
}

/// Returns a process's cgroup in a hierarchy, if it is not the root.
fn directory_of(pid: i32, hierarchy: &Hierarchy) -> Result<Option<PathBuf>> {
    let file = format!("/proc/{pid}/cgroup");
    let text = fs::read_to_string(&file).with_context(|| format!("read {file}"))?;
    let prefix = format!("{}:{}:", hierarchy.id, hierarchy.controllers);
    let path = text.lines().find_map(|line| line.strip_prefix(&prefix));
    Ok(path.filter(|path| *path != "/").map(|path| hierarchy.directory(path)))
}
