//! A small kubelet. It does the same steps around a pod as the real one, in the same order, and records the
//! true times and numbers.
//!
//! It makes the pod's cgroup and log directory first, then the sandbox, then the containers. At the end it
//! stops the sandbox and removes the pod's cgroup at once. The dead sandbox stays listed until it is removed.

mod cgroup;
mod life;
mod pod;
mod start;

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use serde::{Deserialize, Serialize};

pub use cgroup::Driver;
pub(crate) use life::timed;
pub use life::{ContainerLife, PodLife, SandboxLife, Step};
pub use pod::{Container, Pod, Qos};
pub use start::{PartStart, PodStart, wait_runs};

use crate::{
    cgroupfs::CgroupId,
    clock,
    containerd::PodTrace,
    cri::{Cri, info_pid, message::container::ContainerState},
};
use cgroup::Cgroups;

const LOGS: &str = "/var/log/pods";

/// A kubelet with one connection. [`Kubelet::another`] gives more for the same node.
pub struct Kubelet {
    socket: PathBuf,
    cri: Cri,
    cgroups: Arc<Cgroups>,
}

/// A running sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    pub id: String,
    pub attempt: u32,
    /// The pid of its pause process.
    pub pid: i32,
    /// The inode of its network namespace. A host-network pod has the node's own.
    pub netns: u64,
    /// IPv4 comes first on a dual-stack network. Empty for a host-network pod.
    pub addresses: Vec<String>,
}

/// A started container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    pub id: String,
    /// 0 if the container ended before the runtime could be asked.
    pub pid: i32,
}

/// How a container ended, as the runtime reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub code: i32,
    /// `Completed`, `Error`, or `OOMKilled` if the runtime learned of that in time.
    pub reason: String,
}

impl Kubelet {
    pub fn new(socket: &Path, driver: Driver) -> Result<Self> {
        let cgroups = Arc::new(Cgroups::new(driver)?);
        Ok(Self { socket: socket.to_owned(), cri: Cri::connect(socket)?, cgroups })
    }

    /// Returns a kubelet of this node with its own connection, for another thread.
    pub fn another(&self) -> Result<Self> {
        let cgroups = Arc::clone(&self.cgroups);
        Ok(Self { socket: self.socket.clone(), cri: self.cri.reconnect()?, cgroups })
    }

    pub fn cri(&mut self) -> &mut Cri {
        &mut self.cri
    }

    /// Makes the pod's cgroup and log directory, and returns the cgroup's ids.
    pub fn prepare(&self, pod: &Pod) -> Result<Vec<CgroupId>> {
        let logs = Self::log_directory(pod);
        let trace = PodTrace { cgroup_parent: self.cgroup_parent(pod), logs: logs.clone() };
        trace.note(&self.socket, &pod.uid)?;
        let ids = self.cgroups.make(pod)?;
        fs::create_dir_all(&logs).with_context(|| format!("make {}", logs.display()))?;
        Ok(ids)
    }

    /// Starts a sandbox. `attempt` is its number among the pod's sandboxes.
    pub fn run_sandbox(&mut self, pod: &Pod, attempt: u32) -> Result<Sandbox> {
        let config = pod.sandbox_config(attempt, &self.cgroup_parent(pod), &Self::log_directory(pod));
        let id = self.cri.run_pod_sandbox(config)?;
        self.sandbox(id, attempt)
    }

    /// Returns a running sandbox, as the runtime and `/proc` have it.
    pub fn sandbox(&mut self, id: String, attempt: u32) -> Result<Sandbox> {
        let answer = self.cri.pod_sandbox_status(&id)?;
        let pid = info_pid(&answer.info).with_context(|| format!("process id of sandbox {id}"))?;
        let network = answer.status.and_then(|status| status.network).unwrap_or_default();
        let first = Some(network.ip).filter(|ip| !ip.is_empty());
        let others = network.additional_ips.into_iter().map(|other| other.ip);
        let namespace = format!("/proc/{pid}/ns/net");
        let netns = fs::metadata(&namespace).with_context(|| format!("look at {namespace}"))?.ino();
        Ok(Sandbox { id, attempt, pid, netns, addresses: first.into_iter().chain(others).collect() })
    }

    /// Creates and starts a container. `attempt` is the number of its restarts in the pod.
    pub fn run_container(
        &mut self,
        pod: &Pod,
        sandbox: &Sandbox,
        container: &Container,
        attempt: u32,
    ) -> Result<Started> {
        let logs = Self::log_directory(pod);
        // The runtime opens the log file and expects its directory to exist.
        let directory = logs.join(&container.name);
        fs::create_dir_all(&directory).with_context(|| format!("make {}", directory.display()))?;
        let sandbox_config = pod.sandbox_config(sandbox.attempt, &self.cgroup_parent(pod), &logs);
        let id = self.cri.create_container(
            &sandbox.id,
            pod.container_config(container, attempt),
            sandbox_config,
        )?;
        self.cri.start_container(&id)?;
        let pid = self.cri.container_pid(&id)?;
        Ok(Started { id, pid })
    }

    /// Waits until a container's program has ended and the runtime knows that.
    pub fn wait_exit(&mut self, container: &str, limit: Duration) -> Result<Exit> {
        let what = format!("exit of container {container}");
        clock::poll(&what, limit, || {
            let status = self.cri.container_status(container)?;
            let ended = ContainerState::try_from(status.state) == Ok(ContainerState::Exited);
            Ok(ended.then_some(Exit { code: status.exit_code, reason: status.reason }))
        })
    }

    /// Stops the sandbox and everything in it. The runtime calls CNI DEL. A failed stop is repeated, because
    /// containerd 1.6 can lose a race with a shim that ends at that moment ("ttrpc: closed").
    pub fn stop_sandbox(&mut self, sandbox: &str) -> Result<()> {
        const RETRIES: u32 = 4;
        for _ in 0..RETRIES {
            if self.try_stop_sandbox(sandbox).is_ok() {
                return Ok(());
            }
        }
        self.try_stop_sandbox(sandbox)
    }

    /// Stops the sandbox without repeating a failed stop.
    pub fn try_stop_sandbox(&mut self, sandbox: &str) -> Result<()> {
        self.cri.stop_pod_sandbox(sandbox)
    }

    /// Removes a stopped sandbox and its containers from the runtime, as the kubelet's garbage collection
    /// does later.
    pub fn remove_sandbox(&mut self, sandbox: &str) -> Result<()> {
        self.cri.remove_pod_sandbox(sandbox)
    }

    /// Kills the processes left in the pod's cgroup and removes it, as the kubelet's housekeeping does after
    /// a pod's end.
    pub fn remove_cgroup(&self, pod: &Pod) -> Result<()> {
        self.cgroups.remove(pod)
    }

    /// Returns the directories of the pod's cgroup in all hierarchies that have it.
    pub fn cgroup_directories(&self, pod: &Pod) -> Vec<PathBuf> {
        self.cgroups.directories(pod)
    }

    /// Returns the directory of the logs of the pod's containers.
    pub fn log_directory(pod: &Pod) -> PathBuf {
        Path::new(LOGS).join(format!("{}_{}_{}", pod.namespace, pod.name, pod.uid))
    }

    pub fn remove_logs(&self, pod: &Pod) -> Result<()> {
        let logs = Self::log_directory(pod);
        fs::remove_dir_all(&logs).with_context(|| format!("remove {}", logs.display()))
    }

    /// Returns the kubelet's `cgroup_parent` for the runtime: a path, or the name of a slice.
    pub fn cgroup_parent(&self, pod: &Pod) -> String {
        self.cgroups.parent(pod)
    }

    /// Returns the inode of the node's own network namespace, which host-network pods share.
    pub fn host_netns() -> Result<u64> {
        let path = "/proc/self/ns/net";
        Ok(fs::metadata(path).map_err(|error| anyhow!("look at {path}: {error}"))?.ino())
    }
}
