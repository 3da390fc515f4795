//! The pod of a Job completes, and what a kubelet may do then.

use anyhow::Result;

use super::{Stage, Truth};
use crate::kubelet::{Container, Pod};

impl Stage<'_> {
    /// The redundant sandbox. The pod has completed, and its only sandbox is stopped. Then a second sandbox
    /// is made as if the pod were to run on. Housekeeping finds something running in a completed pod and
    /// kills it, and the namespace is lost. Then both sandboxes are stopped and removed.
    pub fn redundant_sandbox(&mut self, pod: &Pod) -> Result<Truth> {
        // On a busy machine the files of a container that ends at once are gone before the agent reads them.
        let pod = &Pod { containers: vec![Container::shell("main", "sleep 1")], ..pod.clone() };
        self.enter(pod)?;
        let first = self.runner.run_sandbox(pod, 0)?;
        self.runner.complete_all(pod, &first)?;
        self.runner.stop(pod, &first)?;
        let second = self.runner.run_sandbox(pod, 1)?;
        self.runner.kill_sandbox(pod, &second)?;
        self.runner.wait_dead(&second)?;
        self.runner.lose_netns(pod, &second)?;
        self.runner.leave(pod)?;
        self.runner.stop(pod, &second)?;
        self.runner.remove(pod, &second)?;
        self.runner.remove(pod, &first)?;
        self.truth()
    }

    /// The healthy twin: the pod completes, its sandbox is stopped, its cgroup is removed, and later its
    /// sandbox.
    pub fn completed_job(&mut self, pod: &Pod) -> Result<Truth> {
        self.enter(pod)?;
        let sandbox = self.runner.run_sandbox(pod, 0)?;
        self.runner.complete_all(pod, &sandbox)?;
        self.runner.stop(pod, &sandbox)?;
        self.runner.leave(pod)?;
        self.runner.remove(pod, &sandbox)?;
        self.truth()
    }

    /// The nearest healthy case: the first sandbox dies, and the second one runs the containers again.
    pub fn restarted_sandbox(&mut self, pod: &Pod) -> Result<Truth> {
        self.enter(pod)?;
        let first = self.runner.run_sandbox(pod, 0)?;
        self.runner.complete_all(pod, &first)?;
        self.runner.stop(pod, &first)?;
        let second = self.runner.run_sandbox(pod, 1)?;
        self.runner.complete_all(pod, &second)?;
        self.runner.stop(pod, &second)?;
        self.runner.leave(pod)?;
        for sandbox in [&first, &second] {
            self.runner.remove(pod, sandbox)?;
        }
        self.truth()
    }
}
