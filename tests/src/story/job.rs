//! A Job's pod that completes, and what a kubelet may make of it.

use anyhow::Result;

use super::{Stage, Truth};
use crate::kubelet::Pod;

impl Stage<'_> {
    /// The sandbox that nobody needs: the pod has completed, its only sandbox is stopped, and a second one is made as
    /// if it were to run on. Housekeeping finds a completed pod with something running and kills that; its namespace
    /// is lost; then both sandboxes are stopped and removed.
    pub fn redundant_sandbox(&mut self, pod: &Pod) -> Result<Truth> {
        self.enter(pod)?;
        let first = self.player.run_sandbox(pod, 0)?;
        self.player.complete_all(pod, &first)?;
        self.player.stop(pod, &first)?;
        let second = self.player.run_sandbox(pod, 1)?;
        self.player.kill_sandbox(pod, &second)?;
        self.player.wait_dead(&second)?;
        self.player.lose_netns(pod, &second)?;
        self.player.leave(pod)?;
        self.player.stop(pod, &second)?;
        self.player.remove(pod, &second)?;
        self.player.remove(pod, &first)?;
        self.truth()
    }

    /// The same pod as it should be: completed, stopped, its cgroup removed, and its sandbox some time later.
    pub fn completed_job(&mut self, pod: &Pod) -> Result<Truth> {
        self.enter(pod)?;
        let sandbox = self.player.run_sandbox(pod, 0)?;
        self.player.complete_all(pod, &sandbox)?;
        self.player.stop(pod, &sandbox)?;
        self.player.leave(pod)?;
        self.player.remove(pod, &sandbox)?;
        self.truth()
    }

    /// The nearest thing that is as it should be: the first sandbox dies, and the second one runs the containers
    /// again.
    pub fn restarted_sandbox(&mut self, pod: &Pod) -> Result<Truth> {
        self.enter(pod)?;
        let first = self.player.run_sandbox(pod, 0)?;
        self.player.complete_all(pod, &first)?;
        self.player.stop(pod, &first)?;
        let second = self.player.run_sandbox(pod, 1)?;
        self.player.complete_all(pod, &second)?;
        self.player.stop(pod, &second)?;
        self.player.leave(pod)?;
        for sandbox in [&first, &second] {
            self.player.remove(pod, sandbox)?;
        }
        self.truth()
    }
}
