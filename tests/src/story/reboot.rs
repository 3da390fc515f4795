//! A reboot of the node with pods running, in two parts: what `/run` held is lost, namespaces' files among it, and
//! what the runtime and the plugin keep on disk is not.

use anyhow::Result;

use super::{Stage, Truth};
use crate::{
    keyed::Counts,
    kubelet::{Container, Pod},
};

impl Stage<'_> {
    /// The pods run, and the node may go down.
    pub fn before_reboot(&mut self, pods: &[Pod]) -> Result<Truth> {
        self.run_all(pods)?;
        self.truth()
    }

    /// The kubelet's part in the next boot: each pod's dead sandbox is stopped, a new one made in which it runs, and the
    /// dead one removed.
    pub fn after_reboot(&mut self, before: Truth) -> Result<Truth> {
        // Of both boots together.
        self.held_before.clear();
        self.counted_before = Counts::default();
        self.player.acts = before.acts;
        self.player.pods = before.pods;
        for truth in self.player.pods.clone() {
            let pod = Pod { namespace: truth.namespace, ..Pod::new(&truth.name, &truth.uid) };
            let pod = pod.with(Container::shell("main", "sleep 600"));
            let dead = self.player.last_sandbox(&pod)?;
            self.player.stop(&pod, &dead)?;
            // The pod's cgroup was lost too.
            self.player.kubelet.prepare(&pod)?;
            let sandbox = self.player.run_sandbox(&pod, dead.attempt + 1)?;
            for container in &pod.containers {
                self.player.run_container(&pod, &sandbox, container, sandbox.attempt)?;
            }
            self.player.remove(&pod, &dead)?;
            self.pods.push(pod);
        }
        self.truth()
    }
}
