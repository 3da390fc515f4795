//! The stories: what makes a node leak addresses and keep namespaces and cgroups, done for real. The truth of
//! each story comes from its own actions, the plugin's store and the runtime. It contains nothing of the
//! agent's events.
//!
//! A story leaves its leftovers behind. [`Stage::clean`] removes them and makes the plugin work again.

mod churn;
mod failure;
mod job;
mod kill;
mod leftover;
mod reboot;
mod runner;
mod runtime;
mod truth;

use std::{
    collections::BTreeMap,
    fs,
    net::Ipv4Addr,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context as _, Result};
use nix::mount::{MntFlags, umount2};

pub use leftover::{CgroupHolder, StrayMount};
pub use runtime::InterruptedSandbox;
pub use truth::{Action, Done, PodTruth, Truth};

use crate::{
    clock,
    keyed::{Attachment, Counts, Faults, Store},
    kubelet::{Container, Pod, Sandbox},
    node::Node,
};
use runner::ActionRunner;

/// The directory in which runtimes bind the network namespaces of sandboxes.
const NAMESPACES: &str = "/run/netns";

/// A node, and all actions on it.
pub struct Stage<'n> {
    node: &'n mut Node,
    runner: ActionRunner<'n>,
    pods: Vec<Pod>,
    held_before: BTreeMap<Ipv4Addr, Attachment>,
    counted_before: Counts,
}

impl<'n> Stage<'n> {
    pub fn new(node: &'n mut Node) -> Result<Self> {
        let store = node.network().store();
        Ok(Self {
            runner: ActionRunner::new(node.kubelet()?),
            pods: Vec::new(),
            held_before: Store::read(&store)?,
            counted_before: Store::counted(&store)?,
            node,
        })
    }

    /// Calls `callback` before each action, so that a test can do something at any point of a story.
    #[must_use]
    pub fn before_each(mut self, callback: impl FnMut(Action) -> Result<()> + Send + 'n) -> Self {
        self.runner.callback = Some(Box::new(callback));
        self
    }

    /// Returns the actions so far, and their results now.
    pub fn truth(&mut self) -> Result<Truth> {
        let store = self.node.network().store();
        let mut held = Store::read(&store)?;
        held.retain(|address, holder| self.held_before.get(address) != Some(holder));
        let calls = Store::counted(&store)?.since(self.counted_before);
        let listed = self.runner.kubelet.cri().list_pod_sandbox()?.into_iter();
        let is_ours = |uid: &str| self.runner.pods.iter().any(|pod| pod.uid == uid);
        let known = listed.filter(|one| one.metadata.as_ref().is_some_and(|metadata| is_ours(&metadata.uid)));
        Ok(Truth {
            pods: self.runner.pods.clone(),
            actions: self.runner.actions.clone(),
            held,
            calls,
            known: known.map(|one| one.id).collect(),
            driver: std::process::id(),
        })
    }

    /// Removes the leftovers of the stories so far. Addresses are removed with the node.
    pub fn clean(mut self) -> Result<()> {
        if self.node.network().keyed.as_ref().is_some_and(|keyed| keyed.faults != Faults::default()) {
            self.node.set_faults(Faults::default())?;
        }
        for sandbox in self.truth()?.known {
            self.runner.kubelet.stop_sandbox(&sandbox)?;
            self.runner.kubelet.remove_sandbox(&sandbox)?;
        }
        for pod in &self.pods {
            if !self.runner.kubelet.cgroup_directories(pod).is_empty() {
                self.runner.kubelet.remove_cgroup(pod)?;
            }
            // The story has removed the logs already, or they were never made.
            let _ = self.runner.kubelet.remove_logs(pod);
        }
        for sandbox in self.runner.pods.iter().flat_map(|pod| &pod.sandboxes) {
            if let Some(file) = namespace_file(sandbox)? {
                remove_namespace(&file)?;
            }
        }
        Ok(())
    }

    /// Makes the kubelet's first step for a pod of the story.
    fn enter(&mut self, pod: &Pod) -> Result<()> {
        self.pods.push(pod.clone());
        self.runner.prepare(pod)
    }

    fn counted(&self) -> Result<Counts> {
        Store::counted(&self.node.network().store())
    }

    /// Connects the kubelet to a runtime that was restarted.
    fn reconnect(&mut self) -> Result<()> {
        self.runner.kubelet = self.node.kubelet()?;
        Ok(())
    }
}

/// Returns a pod with one container that exits 0.
pub fn job(name: &str) -> Pod {
    Pod::new(name, &unique_uid()).with(Container::shell("main", "true"))
}

/// Returns a pod with one container that runs until it is stopped.
pub fn service(name: &str) -> Pod {
    Pod::new(name, &unique_uid()).with(Container::shell("main", "sleep 600"))
}

/// Returns a UID that is unique on this machine since its boot, in the shape of a random UUID.
fn unique_uid() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let born = clock::boot_ns().unwrap_or_default() & 0xffff_ffff_ffff;
    format!("{count:08x}-{:04x}-4000-8000-{born:012x}", std::process::id() & 0xffff)
}

/// Returns the file to which the sandbox's network namespace is bound, found by the namespace's inode.
fn namespace_file(sandbox: &Sandbox) -> Result<Option<PathBuf>> {
    let is_its = |path: &PathBuf| fs::metadata(path).is_ok_and(|metadata| metadata.ino() == sandbox.netns);
    Ok(runtime::namespaces()?.into_iter().find(is_its))
}

fn remove_namespace(file: &Path) -> Result<()> {
    umount2(file, MntFlags::MNT_DETACH).with_context(|| format!("unmount {}", file.display()))?;
    fs::remove_file(file).with_context(|| format!("remove {}", file.display()))
}
