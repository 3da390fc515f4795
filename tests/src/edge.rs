//! A node that boots by itself: its services, its static pods' manifests, its list of service pods, and its
//! kubelet's report of a boot.
//!
//! Everything is on the node's disk, so that each boot after the first runs without a test. The report
//! contains the kubelet's own steps and the first output of each pod's program. It contains nothing of the
//! agent's events.

mod driver;
mod install;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

pub use driver::run;
pub use install::{disable_kubelet, install, move_agent_into_a_pod};

use crate::kubelet::{Pod, Step};

/// The directory with a file for each static pod.
pub const MANIFESTS: &str = "/etc/kubernetes/manifests";
/// The pods that a real kubelet would get from the API server.
pub const PODS: &str = "/var/lib/kubelet/pods.json";
/// The pods that are started after all others run, if this file exists.
pub const LATER: &str = "/var/lib/kubelet/later.json";
/// The kubelet's report of this boot. It is written when all pods run.
pub const REPORT: &str = "/run/kubelet/report.json";
/// The network's ADD fails without this file, as flannel's does. The program of one of the pods writes it.
pub const SUBNET: &str = "/run/flannel/subnet.env";
/// The pod of the agent, if the agent is not a service of the node.
pub const AGENT_POD: &str = "sandprobe";
/// The namespace of pods that serve the node itself.
pub const SYSTEM: &str = "kube-system";

/// One boot of the node, as its kubelet reports it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// When the kubelet's process was forked, by `/proc`, with a precision of 10 ms. That is before it
    /// executed its program.
    pub forked: u64,
    /// The kubelet's first instruction, in `CLOCK_BOOTTIME`.
    pub began: u64,
    /// In the order of their starts.
    pub pods: Vec<PodReport>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PodReport {
    pub namespace: String,
    pub name: String,
    pub is_static: bool,
    /// The tries to make its sandbox, in order. The last one succeeded.
    pub tries: Vec<Try>,
    /// The creation and the start of its first container.
    pub started: Step,
    /// When the container executed its program, by the kernel's own trace.
    pub executed: u64,
    /// The log with the first output of its program.
    pub log: PathBuf,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Try {
    pub step: Step,
    pub error: Option<String>,
}

impl Report {
    /// Returns the report of this boot's kubelet, if it exists.
    pub fn read() -> Result<Option<Self>> {
        if !Path::new(REPORT).exists() {
            return Ok(None);
        }
        let bytes = fs::read(REPORT).with_context(|| format!("read {REPORT}"))?;
        Ok(Some(serde_json::from_slice(&bytes).with_context(|| format!("understand {REPORT}"))?))
    }

    /// Returns the pods that are neither static nor for the node itself.
    pub fn services(&self) -> impl Iterator<Item = &PodReport> {
        self.pods.iter().filter(|pod| pod.is_service())
    }
}

impl PodReport {
    /// When its program executed its first instruction, in `CLOCK_BOOTTIME`. `None`: the program prints
    /// nothing.
    pub fn first_instruction(&self) -> Result<Option<u64>> {
        self.printed("at")?.map(|at| time(&at)).transpose()
    }

    /// Returns the times just before and just after it listened, by its own clock. `None`: the program does
    /// not print them.
    pub fn listening(&self) -> Result<Option<(u64, u64)>> {
        let Some(printed) = self.printed("listening")? else { return Ok(None) };
        let (from, to) = printed.split_once(' ').with_context(|| format!("{printed:?} are not two times"))?;
        Ok(Some((time(from)?, time(to)?)))
    }

    fn printed(&self, what: &str) -> Result<Option<String>> {
        let text = fs::read_to_string(&self.log).with_context(|| format!("read {}", self.log.display()))?;
        // The line in the log is TIME stdout F MESSAGE.
        let begin = format!(" stdout F {what} ");
        Ok(text.lines().find_map(|line| Some(line.split_once(&begin)?.1.to_owned())))
    }

    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether it is neither static nor for the node itself.
    pub fn is_service(&self) -> bool {
        !self.is_static && self.namespace != SYSTEM
    }
}

fn time(text: &str) -> Result<u64> {
    text.parse().with_context(|| format!("{text:?} is not a time"))
}

/// Writes a file atomically, because others may read it at any time.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().context("the file has no directory")?;
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    let new = path.with_extension("new");
    fs::write(&new, bytes)
        .and_then(|()| fs::rename(&new, path))
        .with_context(|| format!("write {}", path.display()))
}

/// Returns the pods in a file, or in each file of a directory, in the order of the files' names.
fn pods(path: &Path) -> Result<Vec<Pod>> {
    let read = |path: &Path| -> Result<Vec<Pod>> {
        let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_slice(&bytes).with_context(|| format!("understand {}", path.display()))
    };
    if !path.is_dir() {
        return read(path);
    }
    let mut files = fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    Ok(files.iter().map(|file| read(file)).collect::<Result<Vec<_>>>()?.concat())
}
