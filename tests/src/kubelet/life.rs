//! Runs a pod through its whole life and records the facts about it, for tests to compare events with.
//!
//! Times are nanoseconds of `CLOCK_BOOTTIME`, taken just before a step's request and just after its answer.
//! So the kernel's own time of the step lies between the two.

use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{Exit, Kubelet, Pod, Sandbox, Started};
use crate::{cgroupfs::CgroupId, clock};

/// The times of a step's request and answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub asked: u64,
    pub done: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodLife {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub host_network: bool,
    /// The pod's own cgroup in each hierarchy.
    pub cgroups: Vec<CgroupId>,
    pub cgroup_parent: String,
    pub prepared: Step,
    pub sandbox: SandboxLife,
    pub containers: Vec<ContainerLife>,
    pub cgroup_removed: Step,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxLife {
    #[serde(flatten)]
    pub sandbox: Sandbox,
    pub run: Step,
    pub stopped: Step,
    pub removed: Step,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerLife {
    pub name: String,
    pub attempt: u32,
    #[serde(flatten)]
    pub started: Started,
    pub run: Step,
    #[serde(flatten)]
    pub exit: Exit,
    /// When the runtime reported the exit, which may be much later than the exit itself.
    pub exit_known: u64,
}

/// A pod that ran and was stopped, whatever happened to its containers.
struct StoppedPod {
    sandbox: Sandbox,
    run: Step,
    containers: Result<Vec<ContainerLife>>,
    stopped: Step,
}

impl Kubelet {
    /// Runs the pod from its cgroup to its removal. All containers start at once. The sandbox is stopped when
    /// the last of them has ended, or when one has not ended within `limit`.
    pub fn live(&mut self, pod: &Pod, limit: Duration) -> Result<PodLife> {
        let (cgroups, prepared) = timed(|| self.prepare(pod))?;
        let ran = self.run_and_stop(pod, limit);
        // Removes what was made for the pod in any case, because it would disturb the next pod.
        let cgroup_removed = timed(|| self.remove_cgroup(pod));
        let ended = ran.and_then(|ran| {
            timed(|| self.remove_sandbox(&ran.sandbox.id)).map(|((), removed)| (ran, removed))
        });
        let logs_removed = self.remove_logs(pod);

        let (ran, removed) = ended?;
        let ((), cgroup_removed) = cgroup_removed?;
        logs_removed?;
        Ok(PodLife {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            host_network: pod.host_network,
            cgroups,
            cgroup_parent: self.cgroup_parent(pod),
            prepared,
            sandbox: SandboxLife { sandbox: ran.sandbox, run: ran.run, stopped: ran.stopped, removed },
            containers: ran.containers?,
            cgroup_removed,
        })
    }

    fn run_and_stop(&mut self, pod: &Pod, limit: Duration) -> Result<StoppedPod> {
        let (sandbox, run) = timed(|| self.run_sandbox(pod, 0))?;
        let containers = self.live_containers(pod, &sandbox, limit);
        let ((), stopped) = timed(|| self.stop_sandbox(&sandbox.id))?;
        Ok(StoppedPod { sandbox, run, containers, stopped })
    }

    fn live_containers(
        &mut self,
        pod: &Pod,
        sandbox: &Sandbox,
        limit: Duration,
    ) -> Result<Vec<ContainerLife>> {
        let mut started = Vec::new();
        for container in &pod.containers {
            started.push(timed(|| self.run_container(pod, sandbox, container, 0))?);
        }
        let mut lives = Vec::new();
        for (container, (started, run)) in pod.containers.iter().zip(started) {
            let exit = self.wait_exit(&started.id, limit)?;
            let exit_known = clock::boot_ns()?;
            lives.push(ContainerLife {
                name: container.name.clone(),
                attempt: 0,
                started,
                run,
                exit,
                exit_known,
            });
        }
        Ok(lives)
    }
}

pub(crate) fn timed<T>(step: impl FnOnce() -> Result<T>) -> Result<(T, Step)> {
    let asked = clock::boot_ns()?;
    let answer = step()?;
    Ok((answer, Step { asked, done: clock::boot_ns()? }))
}
