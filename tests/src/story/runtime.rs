//! A runtime that ends and starts again, or forgets, while pods run.

use anyhow::{Result, ensure};

use super::{Act, Stage, Truth};
use crate::{
    kubelet::{Pod, Sandbox},
    node::Node,
};

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
