//! CNI calls that fail: the plugin is told to by [`Faults`], and the kubelet tries again.

use anyhow::Result;

use super::{Stage, Truth};
use crate::{
    keyed::{Faults, Times},
    kubelet::Pod,
};

/// A plugin fails after a while: it waited for something that did not come.
const PATIENCE_MS: u64 = 200;

impl Stage<'_> {
    /// The first `times` ADDs fail, each with a sandbox of its own; the next one succeeds, and the pod lives. With
    /// `reserve` each failed one has an address by then that no DEL can find.
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
            self.player.fail_sandbox(pod, 0)?;
        }
        let sandbox = self.player.run_sandbox(pod, 0)?;
        self.player.complete_all(pod, &sandbox)?;
        self.player.stop(pod, &sandbox)?;
        self.player.leave(pod)?;
        self.player.remove(pod, &sandbox)?;
        self.truth()
    }

    /// An ADD that takes so long, and succeeds.
    pub fn slow_add(&mut self, pod: &Pod, milliseconds: u64) -> Result<Truth> {
        self.node.set_faults(Faults { add_takes_ms: milliseconds, ..Faults::default() })?;
        self.completed_job(pod)
    }

    /// The only DEL with a namespace fails; then the namespace is lost, and a blind one succeeds.
    pub fn failed_then_blind_del(&mut self, pod: &Pod) -> Result<Truth> {
        self.node.set_faults(Faults { dels_fail: Times::Always, ..Faults::default() })?;
        self.enter(pod)?;
        let sandbox = self.player.run_sandbox(pod, 0)?;
        self.player.complete_all(pod, &sandbox)?;
        self.player.fail_to_stop(pod, &sandbox)?;
        self.player.lose_netns(pod, &sandbox)?;
        self.player.stop(pod, &sandbox)?;
        self.player.leave(pod)?;
        self.player.remove(pod, &sandbox)?;
        self.truth()
    }

    /// DEL fails `times` times, as often as the kubelet asks; the runtime keeps the sandbox.
    pub fn failing_del(&mut self, pod: &Pod, times: u32) -> Result<Truth> {
        self.node.set_faults(Faults { dels_fail: Times::Always, ..Faults::default() })?;
        self.enter(pod)?;
        let sandbox = self.player.run_sandbox(pod, 0)?;
        self.player.complete_all(pod, &sandbox)?;
        for _ in 0..times {
            self.player.fail_to_stop(pod, &sandbox)?;
        }
        self.player.leave(pod)?;
        self.truth()
    }

    /// The twin: DEL fails `times` times, and succeeds at last.
    pub fn mended_del(&mut self, pod: &Pod, times: u32) -> Result<Truth> {
        self.failing_del(pod, times)?;
        self.node.set_faults(Faults::default())?;
        let sandbox = self.player.last_sandbox(pod)?;
        self.player.stop(pod, &sandbox)?;
        self.player.remove(pod, &sandbox)?;
        self.truth()
    }
}
