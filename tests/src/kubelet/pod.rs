//! A pod in the terms of the API, and its translation into the kubelet's CRI configuration.

use std::{collections::HashMap, path::Path};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::{
    cri::message::{
        container::{
            ContainerConfig, ContainerMetadata, ImageSpec, KeyValue, LinuxContainerConfig,
            LinuxContainerResources, Mount, MountPropagation,
        },
        sandbox::{
            LinuxPodSandboxConfig, LinuxSandboxSecurityContext, NamespaceMode, NamespaceOption,
            PodSandboxConfig, PodSandboxMetadata,
        },
        security::LinuxContainerSecurityContext,
    },
    image,
};

/// The QoS class, which decides the pod's place in the cgroup tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Qos {
    Guaranteed,
    Burstable,
    #[default]
    BestEffort,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub qos: Qos,
    pub host_network: bool,
    /// Its containers see the node's processes.
    pub host_pid: bool,
    /// The pod has the class `system-node-critical`, so the kernel kills other processes first.
    pub is_critical: bool,
    /// The pod comes from the node's own manifest directory. Its UID then has 32 hexadecimal digits without
    /// dashes.
    pub is_static: bool,
    /// They run one after the other, each to its end, before the other containers start.
    pub init_containers: Vec<Container>,
    pub containers: Vec<Container>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    pub name: String,
    pub image: String,
    pub command: Vec<String>,
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
    /// Directories of the node, and where they are in the container.
    pub mounts: Vec<Mount>,
    /// Its permissions. Its namespaces are the pod's.
    pub security: LinuxContainerSecurityContext,
    /// In thousandths of a CPU: its share when other containers need more than there is.
    pub cpu_request: Option<i64>,
    /// In bytes. Above it the kernel kills.
    pub memory_limit: Option<i64>,
    /// In thousandths of a CPU. Above it the kernel throttles.
    pub cpu_limit: Option<i64>,
}

/// The period of a CPU limit in microseconds, as the kubelet sets it.
pub(super) const PERIOD: i64 = 100_000;

/// The CPU shares of a container that requests none.
const LEAST_SHARES: i64 = 2;

impl Pod {
    /// Returns a best-effort pod without containers in the namespace `default`.
    pub fn new(name: &str, uid: &str) -> Self {
        Self {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            qos: Qos::default(),
            host_network: false,
            host_pid: false,
            is_critical: false,
            is_static: false,
            init_containers: Vec::new(),
            containers: Vec::new(),
        }
    }

    #[must_use]
    pub fn with_init(mut self, container: Container) -> Self {
        self.init_containers.push(container);
        self
    }

    #[must_use]
    pub fn with(mut self, container: Container) -> Self {
        self.containers.push(container);
        self
    }

    /// Returns the sum of the containers' CPU limits in microseconds of a period, if each has a limit.
    pub(super) fn cpu_quota(&self) -> Option<i64> {
        let limits = self.containers.iter().map(|container| container.cpu_limit);
        limits.sum::<Option<i64>>().filter(|sum| *sum > 0).map(quota)
    }

    pub(super) fn sandbox_config(&self, attempt: u32, cgroup_parent: &str, logs: &Path) -> PodSandboxConfig {
        let source = if self.is_static { "file" } else { "api" };
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: self.name.clone(),
                uid: self.uid.clone(),
                namespace: self.namespace.clone(),
                attempt,
            }),
            // A host-network pod has the node's own name.
            hostname: if self.host_network { String::new() } else { self.name.clone() },
            log_directory: logs.to_string_lossy().into_owned(),
            labels: self.labels(),
            annotations: map([("kubernetes.io/config.source", source)]),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: cgroup_parent.to_owned(),
                security_context: Some(LinuxSandboxSecurityContext {
                    namespace_options: Some(self.namespaces()),
                    privileged: self.containers.iter().any(|container| container.security.privileged),
                }),
            }),
        }
    }

    pub(super) fn container_config(&self, container: &Container, attempt: u32) -> ContainerConfig {
        let mut labels = self.labels();
        labels.insert("io.kubernetes.container.name".to_owned(), container.name.clone());
        let restarts = attempt.to_string();
        let variable = |(key, value): &(String, String)| KeyValue { key: key.clone(), value: value.clone() };
        ContainerConfig {
            metadata: Some(ContainerMetadata { name: container.name.clone(), attempt }),
            image: Some(ImageSpec { image: container.image.clone() }),
            command: container.command.clone(),
            args: container.arguments.clone(),
            envs: container.environment.iter().map(variable).collect(),
            mounts: container.mounts.clone(),
            labels,
            annotations: map([("io.kubernetes.container.restartCount", restarts.as_str())]),
            log_path: format!("{}/{attempt}.log", container.name),
            linux: Some(LinuxContainerConfig {
                resources: Some(LinuxContainerResources {
                    cpu_period: container.cpu_limit.map_or(0, |_| PERIOD),
                    cpu_quota: container.cpu_limit.map_or(0, quota),
                    cpu_shares: container.cpu_request.map_or(LEAST_SHARES, shares),
                    memory_limit_in_bytes: container.memory_limit.unwrap_or(0),
                    oom_score_adj: self.oom_score_adj(),
                    memory_swap_limit_in_bytes: 0,
                }),
                security_context: Some(LinuxContainerSecurityContext {
                    namespace_options: Some(self.namespaces()),
                    ..container.security.clone()
                }),
            }),
        }
    }

    fn labels(&self) -> HashMap<String, String> {
        map([
            ("io.kubernetes.pod.name", self.name.as_str()),
            ("io.kubernetes.pod.namespace", self.namespace.as_str()),
            ("io.kubernetes.pod.uid", self.uid.as_str()),
        ])
    }

    fn namespaces(&self) -> NamespaceOption {
        let network = if self.host_network { NamespaceMode::Node } else { NamespaceMode::Pod };
        let pid = if self.host_pid { NamespaceMode::Node } else { NamespaceMode::Container };
        NamespaceOption { network: network.into(), pid: pid.into(), ipc: NamespaceMode::Pod.into() }
    }

    /// Returns the kubelet's own values. A real burstable pod's value lies between the two others.
    fn oom_score_adj(&self) -> i64 {
        match (self.is_critical, self.qos) {
            (true, _) | (false, Qos::Guaranteed) => -997,
            (false, Qos::Burstable) => 999,
            (false, Qos::BestEffort) => 1000,
        }
    }
}

impl Container {
    /// Returns a container that runs this command of an image.
    pub fn new(name: &str, image: &str, command: &[String]) -> Self {
        Self {
            name: name.to_owned(),
            image: image.to_owned(),
            command: command.to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            mounts: Vec::new(),
            security: LinuxContainerSecurityContext::default(),
            cpu_request: None,
            memory_limit: None,
            cpu_limit: None,
        }
    }

    /// Returns a container that runs a line of shell.
    pub fn shell(name: &str, line: &str) -> Self {
        let shell = ["/bin/sh", "-c", line].map(str::to_owned);
        Self::new(name, image::BUSYBOX, &shell)
    }

    /// Mounts this directory of the node at the same path, with everything that is mounted below it later.
    #[must_use]
    pub fn with_directory(mut self, path: &str) -> Self {
        self.mounts.push(Mount {
            container_path: path.to_owned(),
            host_path: path.to_owned(),
            readonly: false,
            propagation: MountPropagation::HostToContainer.into(),
        });
        self
    }

    /// Returns a container that allocates more memory than its limit.
    pub fn eater(name: &str) -> Self {
        // Enough for runc's init, which runs first in the container with a copy of its program.
        const LITTLE: i64 = 32 << 20;
        Self { memory_limit: Some(LITTLE), ..Self::shell(name, "tail /dev/zero") }
    }
}

/// Returns the CPU shares of a request, as the kubelet computes them.
fn shares(request: i64) -> i64 {
    (request * 1024 / 1000).max(LEAST_SHARES)
}

fn quota(limit: i64) -> i64 {
    limit * PERIOD / 1000
}

fn map<const N: usize>(pairs: [(&str, &str); N]) -> HashMap<String, String> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}
