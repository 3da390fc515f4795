//! Ends and starts a private containerd while its pods run, or after removing everything that it knew.

use anyhow::{Context as _, Result};

use super::{Conflist, Containerd, spawn, sweep};
use crate::keyed::Faults;

impl Containerd {
    /// Sets other faults of the tests' own plugin from now on.
    pub fn set_faults(&mut self, faults: Faults) -> Result<()> {
        let keyed = self.network.keyed.as_mut().context("the network does not use the tests' own plugin")?;
        keyed.faults = faults;
        Conflist::new(self.place.conflist(), &self.socket).put(&self.network)
    }

    /// Ends containerd normally. Its pods run on.
    pub fn end_runtime(&mut self) -> Result<()> {
        self.end_process()
    }

    /// Kills containerd as the OOM killer does. Its pods run on.
    pub fn kill_runtime(&mut self) -> Result<()> {
        self.process.kill().context("kill containerd")?;
        self.process.wait().context("wait for containerd").map(drop)
    }

    /// Removes everything that an ended containerd knew, and its containers. An administrator does this with
    /// a containerd that no longer starts.
    pub fn forget(&self) -> Result<()> {
        sweep::forget(&self.place, &[self.place.containerd_root(), self.place.containerd_state()])
    }

    /// Starts an ended containerd again.
    pub fn start_runtime(&mut self) -> Result<()> {
        let has_images = self.place.containerd_root().exists();
        self.process = spawn(&self.place, &self.options)?;
        self.wait_ready()?;
        if has_images { Ok(()) } else { self.import_images() }
    }
}
