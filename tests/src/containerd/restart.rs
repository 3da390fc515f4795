//! A private containerd that ends and starts again while its pods run, or with all that it knew gone.

use anyhow::{Context as _, Result};

use super::{Conflist, Containerd, spawn, sweep};
use crate::keyed::Faults;

impl Containerd {
    /// Other faults from now on, of a network of our own plugin.
    pub fn set_faults(&mut self, faults: Faults) -> Result<()> {
        let keyed = self.network.keyed.as_mut().context("the network is not of the plugin that can fail")?;
        keyed.faults = faults;
        Conflist::new(self.place.conflist(), &self.socket).put(&self.network)
    }

    /// Ends it in order; its pods go on.
    pub fn end_runtime(&mut self) -> Result<()> {
        self.end_process()
    }

    /// Ends it as the OOM killer does; its pods go on.
    pub fn kill_runtime(&mut self) -> Result<()> {
        self.process.kill().context("kill containerd")?;
        self.process.wait().context("wait for containerd").map(drop)
    }

    /// Removes all that an ended containerd knew, its containers with it: what an administrator does to one that does
    /// not come up any more.
    pub fn forget(&self) -> Result<()> {
        sweep::forget(&self.place, &[self.place.containerd_root(), self.place.containerd_state()])
    }

    /// Starts one that has ended.
    pub fn start_runtime(&mut self) -> Result<()> {
        let has_images = self.place.containerd_root().exists();
        self.process = spawn(&self.place, &self.options)?;
        self.wait_ready()?;
        if has_images { Ok(()) } else { self.import_images() }
    }
}
