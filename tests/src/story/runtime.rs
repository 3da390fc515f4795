//! A runtime ends and starts again, or loses its data, while pods run.

use std::{collections::BTreeSet, fs, io, net::Ipv4Addr, path::PathBuf, thread};

use anyhow::{Context as _, Result, anyhow, ensure};

use super::{Action, NAMESPACES, Stage, Truth, remove_namespace};
use crate::{
    clock,
    keyed::{Faults, Store},
    kubelet::{Pod, Sandbox},
    machine,
    node::Node,
};

/// A sandbox whose runtime was killed while making it. Dropping this removes its namespace.
#[derive(Debug)]
pub struct InterruptedSandbox {
    pub sandbox: String,
    pub address: Ipv4Addr,
    /// The restarted runtime knows the sandbox, because it had recorded it before the network.
    pub known: bool,
    netns: Vec<PathBuf>,
}

impl Drop for InterruptedSandbox {
    fn drop(&mut self) {
        // If the runtime knew the sandbox, the namespace is gone already. An error in drop cannot be
        // reported.
        self.netns.iter().for_each(|file| drop(remove_namespace(file)));
    }
}

impl Stage<'_> {
    /// The runtime ends normally and starts again while the pods run. They run on and end normally.
    pub fn restarted_runtime(&mut self, pods: &[Pod]) -> Result<Truth> {
        self.interrupted_runtime(pods, Action::EndRuntime, Node::end_runtime)
    }

    /// Like `restarted_runtime`, with a killed runtime.
    pub fn killed_runtime(&mut self, pods: &[Pod]) -> Result<Truth> {
        self.interrupted_runtime(pods, Action::KillRuntime, Node::kill_runtime)
    }

    fn interrupted_runtime(
        &mut self,
        pods: &[Pod],
        action: Action,
        end: impl FnOnce(&mut Node) -> Result<()>,
    ) -> Result<Truth> {
        let sandboxes = self.run_all(pods)?;
        self.with_node(action, end)?;
        self.with_node(Action::StartRuntime, Node::start_runtime)?;
        self.reconnect()?;
        for (pod, sandbox) in pods.iter().zip(&sandboxes) {
            ensure!(self.runner.is_ready(sandbox)?, "sandbox {} did not outlive the restart", sandbox.id);
            self.runner.stop(pod, sandbox)?;
            self.runner.leave(pod)?;
            self.runner.remove(pod, sandbox)?;
        }
        self.truth()
    }

    /// The runtime is killed while pods run, and DEL is never called. It does not start again, so all its
    /// data is removed, its containers too. The new runtime does not know these pods.
    ///
    /// This happens to a node whose runtime is set up anew. The pods' addresses and namespaces stay behind
    /// with any plugin.
    pub fn forgotten_sandboxes(&mut self, pods: &[Pod]) -> Result<Truth> {
        self.run_all(pods)?;
        self.with_node(Action::KillRuntime, Node::kill_runtime)?;
        self.with_node(Action::ForgetAll, Node::forget)?;
        self.with_node(Action::StartRuntime, Node::start_runtime)?;
        self.reconnect()?;
        for pod in pods {
            self.runner.leave(pod)?;
        }
        self.truth()
    }

    /// The runtime is killed while it makes a sandbox. The plugin has allocated the address and still works.
    /// The runtime starts again. The kubelet got an error, so it removes the sandbox, if the runtime knows
    /// it, and makes another one.
    pub fn killed_within_add(&mut self, pod: &Pod) -> Result<InterruptedSandbox> {
        // The runtime is killed within this time, as soon as the address is in the store.
        const AT_WORK_MS: u64 = 5_000;
        let at_work = if machine::is_emulated() { 4 * AT_WORK_MS } else { AT_WORK_MS };
        self.node.set_faults(Faults { add_continues_ms: at_work, ..Faults::default() })?;
        self.enter(pod)?;
        let store = self.node.network().store();
        let (held, bound) = (Store::read(&store)?, namespaces()?);
        let (mut kubelet, asked) = (self.runner.kubelet.another()?, pod.clone());
        let asked = thread::spawn(move || kubelet.run_sandbox(&asked, 0));
        let (address, holder) = clock::poll("an address of the sandbox", machine::patience(), || {
            Ok(Store::read(&store)?.into_iter().find(|(address, _)| !held.contains_key(address)))
        })?;
        self.with_node(Action::KillRuntime, Node::kill_runtime)?;
        let netns = namespaces()?.difference(&bound).cloned().collect();
        let answer = asked.join().map_err(|_panic| anyhow!("the kubelet's call panicked"))?;
        ensure!(answer.is_err(), "the sandbox was made before its runtime was killed: {answer:?}");
        self.with_node(Action::StartRuntime, Node::start_runtime)?;
        self.node.set_faults(Faults::default())?;
        self.reconnect()?;
        let listed = self.runner.kubelet.cri().list_pod_sandbox()?;
        let known = listed.iter().any(|one| one.id == holder.container);
        if known {
            self.runner.kubelet.stop_sandbox(&holder.container)?;
            self.runner.kubelet.remove_sandbox(&holder.container)?;
        }
        let sandbox = self.runner.run_sandbox(pod, 1)?;
        for container in &pod.containers {
            self.runner.run_container(pod, &sandbox, container, 0)?;
        }
        Ok(InterruptedSandbox { sandbox: holder.container, address, known, netns })
    }

    /// Runs pods with all their containers.
    pub(super) fn run_all(&mut self, pods: &[Pod]) -> Result<Vec<Sandbox>> {
        let run = |pod: &Pod| {
            self.enter(pod)?;
            let sandbox = self.runner.run_sandbox(pod, 0)?;
            for container in &pod.containers {
                self.runner.run_container(pod, &sandbox, container, 0)?;
            }
            Ok(sandbox)
        };
        pods.iter().map(run).collect()
    }

    /// Runs an action on the runtime itself.
    fn with_node(&mut self, action: Action, step: impl FnOnce(&mut Node) -> Result<()>) -> Result<()> {
        let node = &mut *self.node;
        self.runner.run(action, None, None, |_| step(node))
    }
}

/// Returns the files to which namespaces are bound. The first one that is bound makes the directory.
pub(super) fn namespaces() -> Result<BTreeSet<PathBuf>> {
    match fs::read_dir(NAMESPACES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        entries => {
            let entries = entries.with_context(|| format!("list {NAMESPACES}"))?;
            entries.map(|entry| Ok(entry?.path())).collect()
        }
    }
}
