//! CNI calls that fail. [`Faults`] makes the plugin fail, and the kubelet tries again.

use anyhow::Result;

use super::{Stage, Truth};
use crate::{
    keyed::{Faults, Times},
    kubelet::Pod,
};

/// The plugin fails after a while, like one that waits for something in vain.
const PATIENCE_MS: u64 = 200;

impl Stage<'_> {
    /// The first `times` ADDs fail, each with its own sandbox. The next one succeeds, and the pod lives. With
    /// `reserve` each failed ADD has an address by then that no DEL can find.
    pub fn failing_adds(&mut self, pod: &Pod, times: u32, reserve: bool) -> Result<Truth> {
        let failed_so_far = self.counted()?.adds_failed;
        self.node.set_faults(Faults {
            adds_fail: Times::First(failed_so_far + u64::from(times)),
            failed_adds_reserve: reserve,
            add_takes_ms: PATIENCE_MS,
            ..Faults::default()
        })?;
        self.enter(pod)?;
        for _ in 0..times {
            self.runner.fail_sandbox(pod, 0)?;
        }
        let sandbox = self.runner.run_sandbox(pod, 0)?;
        self.runner.complete_all(pod, &sandbox)?;
        self.runner.stop(pod, &sandbox)?;
        self.runner.leave(pod)?;
        self.runner.remove(pod, &sandbox)?;
        self.truth()
    }

    /// An ADD takes this long and succeeds.
    pub fn slow_add(&mut self, pod: &Pod, milliseconds: u64) -> Result<Truth> {
        self.node.set_faults(Faults { add_takes_ms: milliseconds, ..Faults::default() })?;
        self.completed_job(pod)
    }

    /// The only DEL with a namespace fails. Then the namespace is lost, and a blind DEL succeeds.
    pub fn failed_then_blind_del(&mut self, pod: &Pod) -> Result<Truth> {
        self.node.set_faults(Faults { dels_fail: Times::Always, ..Faults::default() })?;
        self.enter(pod)?;
        let sandbox = self.runner.run_sandbox(pod, 0)?;
        self.runner.complete_all(pod, &sandbox)?;
        self.runner.fail_to_stop(pod, &sandbox)?;
        self.runner.lose_netns(pod, &sandbox)?;
        self.runner.stop(pod, &sandbox)?;
        self.runner.leave(pod)?;
        self.runner.remove(pod, &sandbox)?;
        self.truth()
    }

    /// DEL fails `times` times, each time that the kubelet tries. The runtime keeps the sandbox.
    pub fn failing_del(&mut self, pod: &Pod, times: u32) -> Result<Truth> {
        self.node.set_faults(Faults { dels_fail: Times::Always, ..Faults::default() })?;
        self.enter(pod)?;
        let sandbox = self.runner.run_sandbox(pod, 0)?;
        self.runner.complete_all(pod, &sandbox)?;
        for _ in 0..times {
            self.runner.fail_to_stop(pod, &sandbox)?;
        }
        self.runner.leave(pod)?;
        self.truth()
    }

    /// The healthy twin: DEL fails `times` times, and then succeeds.
    pub fn repaired_del(&mut self, pod: &Pod, times: u32) -> Result<Truth> {
        self.failing_del(pod, times)?;
        self.repaired(pod)
    }

    /// DEL succeeds from now on, and the pod's sandbox is stopped and removed.
    pub fn repaired(&mut self, pod: &Pod) -> Result<Truth> {
        self.node.set_faults(Faults::default())?;
        let sandbox = self.runner.last_sandbox(pod)?;
        self.runner.stop(pod, &sandbox)?;
        self.runner.remove(pod, &sandbox)?;
        self.truth()
    }
}
