//! A reboot of the node with running pods, in two parts. The content of `/run` is lost, the files of
//! namespaces among it. The disk data of the runtime and the plugin stays.

use anyhow::Result;

use super::{Stage, Truth};
use crate::{
    keyed::Counts,
    kubelet::{Container, Pod},
};

impl Stage<'_> {
    /// Runs the pods, so that the node can go down.
    pub fn before_reboot(&mut self, pods: &[Pod]) -> Result<Truth> {
        self.run_all(pods)?;
        self.truth()
    }

    /// Does the kubelet's work in the next boot. It stops each pod's dead sandbox, runs the pod in a new one,
    /// and removes the dead one.
    pub fn after_reboot(&mut self, before: Truth) -> Result<Truth> {
        // The truth is of both boots together.
        self.held_before.clear();
        self.counted_before = Counts::default();
        self.runner.actions = before.actions;
        self.runner.pods = before.pods;
        for truth in self.runner.pods.clone() {
            let pod = Pod { namespace: truth.namespace, ..Pod::new(&truth.name, &truth.uid) };
            let pod = pod.with(Container::shell("main", "sleep 600"));
            let dead = self.runner.last_sandbox(&pod)?;
            self.runner.stop(&pod, &dead)?;
            // The pod's cgroup was lost too.
            self.runner.kubelet.prepare(&pod)?;
            let sandbox = self.runner.run_sandbox(&pod, dead.attempt + 1)?;
            for container in &pod.containers {
                self.runner.run_container(&pod, &sandbox, container, sandbox.attempt)?;
            }
            self.runner.remove(&pod, &dead)?;
            self.pods.push(pod);
        }
        self.truth()
    }
}
