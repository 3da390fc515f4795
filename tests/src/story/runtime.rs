//! A runtime that ends and starts again, or forgets, while pods run.

use std::{
    collections::BTreeSet,
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context as _, Result, anyhow, ensure};

use super::{Act, NAMESPACES, Stage, Truth, remove_namespace};
use crate::{
    clock,
    keyed::{Faults, Store},
    kubelet::{Pod, Sandbox},
    machine,
    node::Node,
};

/// A sandbox whose runtime was killed while it made it. Its namespace goes with this.
#[derive(Debug)]
pub struct CutShort {
    pub sandbox: String,
    pub address: Ipv4Addr,
    /// The runtime that started then knows of it: it had it on record before the network.
    pub known: bool,
    netns: Vec<PathBuf>,
}

impl Drop for CutShort {
    fn drop(&mut self) {
        // One that the runtime knew is gone with it; nobody can be told of what goes wrong here.
        self.netns.iter().for_each(|file| drop(remove_namespace(file)));
    }
}

impl Stage<'_> {
    /// The runtime is ended in order and started again while the pods run; they go on, and end in order.
    pub fn restarted_runtime(&mut self, pods: &[Pod]) -> Result<Truth> {
        self.interrupted_runtime(pods, Act::EndRuntime, Node::end_runtime)
    }

    /// The same, but that it is killed.
    pub fn killed_runtime(&mut self, pods: &[Pod]) -> Result<Truth> {
        self.interrupted_runtime(pods, Act::KillRuntime, Node::kill_runtime)
    }

    fn interrupted_runtime(
        &mut self,
        pods: &[Pod],
        act: Act,
        end: impl FnOnce(&mut Node) -> Result<()>,
    ) -> Result<Truth> {
        let sandboxes = self.run_all(pods)?;
        self.with_node(act, end)?;
        self.with_node(Act::StartRuntime, Node::start_runtime)?;
        self.reconnect()?;
        for (pod, sandbox) in pods.iter().zip(&sandboxes) {
            ensure!(self.player.is_ready(sandbox)?, "sandbox {} did not outlive the restart", sandbox.id);
            self.player.stop(pod, sandbox)?;
            self.player.leave(pod)?;
            self.player.remove(pod, sandbox)?;
        }
        self.truth()
    }

    /// DEL is never called: the runtime is killed while pods run, and since it does not come up any more, all that it
    /// knew is removed, its containers with it. The one that starts then has never heard of these pods.
    ///
    /// What happens to a node whose runtime is set up anew; the pods' addresses and namespaces stay behind, whatever
    /// the plugin is.
    pub fn forgotten_sandboxes(&mut self, pods: &[Pod]) -> Result<Truth> {
        self.run_all(pods)?;
        self.with_node(Act::KillRuntime, Node::kill_runtime)?;
        self.with_node(Act::ForgetAll, Node::forget)?;
        self.with_node(Act::StartRuntime, Node::start_runtime)?;
        self.reconnect()?;
        for pod in pods {
            self.player.leave(pod)?;
        }
        self.truth()
    }

    /// The runtime is killed while it makes a sandbox: the plugin has given the address and is still at work. The runtime
    /// starts again, and the kubelet, which was told of a failure, has what the runtime knows of the sandbox removed and
    /// another one made.
    pub fn killed_within_add(&mut self, pod: &Pod) -> Result<CutShort> {
        // By then the runtime is killed: it is as soon as the address is in the store.
        const AT_WORK_MS: u64 = 5_000;
        let at_work = if machine::is_emulated() { 4 * AT_WORK_MS } else { AT_WORK_MS };
        self.node.set_faults(Faults { given_takes_ms: at_work, ..Faults::default() })?;
        self.enter(pod)?;
        let store = self.node.network().store();
        let (held, bound) = (Store::read(&store)?, namespaces()?);
        let (mut kubelet, asked) = (self.player.kubelet.another()?, pod.clone());
        let asked = thread::spawn(move || kubelet.run_sandbox(&asked, 0));
        let (address, holder) = clock::poll("an address of the sandbox", machine::patience(), || {
            Ok(Store::read(&store)?.into_iter().find(|(address, _)| !held.contains_key(address)))
        })?;
        self.with_node(Act::KillRuntime, Node::kill_runtime)?;
        let netns = namespaces()?.difference(&bound).cloned().collect();
        let answer = asked.join().map_err(|_panic| anyhow!("the kubelet's call panicked"))?;
        ensure!(answer.is_err(), "the sandbox was made before its runtime was killed: {answer:?}");
        self.with_node(Act::StartRuntime, Node::start_runtime)?;
        self.node.set_faults(Faults::default())?;
        self.reconnect()?;
        let listed = self.player.kubelet.cri().list_pod_sandbox()?;
        let known = listed.iter().any(|one| one.id == holder.container);
        if known {
            self.player.kubelet.stop_sandbox(&holder.container)?;
            self.player.kubelet.remove_sandbox(&holder.container)?;
        }
        let sandbox = self.player.run_sandbox(pod, 1)?;
        for container in &pod.containers {
            self.player.run_container(pod, &sandbox, container, 0)?;
        }
        Ok(CutShort { sandbox: holder.container, address, known, netns })
    }

    /// Pods that run, each with its containers.
    pub(super) fn run_all(&mut self, pods: &[Pod]) -> Result<Vec<Sandbox>> {
        let run = |pod: &Pod| {
            self.enter(pod)?;
            let sandbox = self.player.run_sandbox(pod, 0)?;
            for container in &pod.containers {
                self.player.run_container(pod, &sandbox, container, 0)?;
            }
            Ok(sandbox)
        };
        pods.iter().map(run).collect()
    }

    /// Does something to the runtime itself.
    fn with_node(&mut self, act: Act, step: impl FnOnce(&mut Node) -> Result<()>) -> Result<()> {
        let node = &mut *self.node;
        self.player.act(act, None, None, |_| step(node))
    }
}

/// The files that namespaces are bound to.
fn namespaces() -> Result<BTreeSet<PathBuf>> {
    let folder = Path::new(NAMESPACES);
    let entries = fs::read_dir(folder).with_context(|| format!("list {NAMESPACES}"))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}
