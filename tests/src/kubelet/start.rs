//! Starts a pod as the kubelet does: it tries until the pod has a sandbox, then runs the init containers one
//! after the other, then the others.

use std::{fs, thread, time::Duration};

use anyhow::{Context as _, Result};

use super::{Container, Kubelet, Pod, Sandbox, Started, Step, timed};
use crate::{clock, image, machine};

/// The wait after a failed sandbox. It doubles each time, as in the kubelet's back-off.
const GAP: Duration = Duration::from_millis(500);
const ATTEMPTS: u32 = 4;
/// The programs of the containers.
const PROGRAMS: [&str; 2] = [image::PROGRAM, image::WITNESS_PROGRAM];

/// The steps of a pod's start.
#[derive(Clone, Debug)]
pub struct PodStart {
    pub pod: Pod,
    pub prepared: Step,
    /// The times of the failed requests for a sandbox.
    pub failed: Vec<Step>,
    pub sandbox: Sandbox,
    pub run: Step,
    /// In the order of their starts.
    pub parts: Vec<PartStart>,
}

/// The start of one container.
#[derive(Clone, Debug)]
pub struct PartStart {
    pub name: String,
    pub started: Started,
    pub run: Step,
    /// For an init container: when the runtime was seen to know of its end.
    pub exit_known: Option<u64>,
}

impl Kubelet {
    /// Starts the pod and leaves it running. If that fails, removes everything that was made for the pod.
    pub fn start(&mut self, pod: &Pod, limit: Duration) -> Result<PodStart> {
        let started = self.try_start(pod, limit).with_context(|| format!("start {}", pod.name));
        if started.is_err() {
            // The first error is the one to report.
            let _ = self.end(pod);
        }
        started
    }

    fn try_start(&mut self, pod: &Pod, limit: Duration) -> Result<PodStart> {
        let (_, prepared) = timed(|| self.prepare(pod))?;
        let (sandbox, run, failed) = self.run_some_sandbox(pod)?;
        let mut parts = Vec::new();
        for container in &pod.init_containers {
            let mut part = self.start_part(pod, &sandbox, container)?;
            self.wait_exit(&part.started.id, limit)?;
            part.exit_known = Some(clock::boot_ns()?);
            parts.push(part);
        }
        for container in &pod.containers {
            parts.push(self.start_part(pod, &sandbox, container)?);
        }
        Ok(PodStart { pod: pod.clone(), prepared, failed, sandbox, run, parts })
    }

    /// Ends all sandboxes of the pod and removes everything that was made for the pod.
    pub fn end(&mut self, pod: &Pod) -> Result<()> {
        let listed = self.cri.list_pod_sandbox()?.into_iter();
        let is_its = |uid: &str| uid == pod.uid;
        let its = listed.filter(|one| one.metadata.as_ref().is_some_and(|metadata| is_its(&metadata.uid)));
        let its: Vec<_> = its.map(|one| one.id).collect();
        for sandbox in &its {
            self.stop_sandbox(sandbox)?;
        }
        self.remove_cgroup(pod)?;
        for sandbox in &its {
            self.remove_sandbox(sandbox)?;
        }
        self.remove_logs(pod)
    }

    fn run_some_sandbox(&mut self, pod: &Pod) -> Result<(Sandbox, Step, Vec<Step>)> {
        let mut failed = Vec::new();
        let mut gap = GAP;
        for attempt in 0.. {
            let (sandbox, run) = timed(|| Ok(self.run_sandbox(pod, attempt)))?;
            match sandbox {
                Ok(sandbox) => return Ok((sandbox, run, failed)),
                Err(error) if attempt + 1 == ATTEMPTS => return Err(error),
                Err(_) => failed.push(run),
            }
            thread::sleep(gap);
            gap *= 2;
        }
        anyhow::bail!("no sandbox was requested")
    }

    fn start_part(&mut self, pod: &Pod, sandbox: &Sandbox, container: &Container) -> Result<PartStart> {
        let (started, run) = timed(|| self.run_container(pod, sandbox, container, 0))?;
        wait_runs(started.pid)?;
        Ok(PartStart { name: container.name.clone(), started, run, exit_known: None })
    }
}

/// Waits until the container's own program runs. The runtime's answer may come earlier: until then the
/// process runs a program of the runtime.
pub fn wait_runs(pid: i32) -> Result<()> {
    let exe = format!("/proc/{pid}/exe");
    clock::poll("a container's program", machine::patience(), || match fs::read_link(&exe) {
        Ok(file) => Ok(PROGRAMS.iter().any(|name| file.ends_with(name)).then_some(())),
        // The program ran and has ended.
        Err(_) => Ok(Some(())),
    })
}
