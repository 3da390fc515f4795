//! Programs that begin and end as fast as the machine can start them.

use std::{
    path::PathBuf,
    process::{Child, Command},
};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::program;

/// What every program of a storm is called, also by the kernel.
pub const NAME: &str = "storm";

/// Each starts one program after the other.
const MAKERS: usize = 2;

/// A program of our own, to be started again and again.
pub struct Storm {
    path: PathBuf,
    _folder: TempDir,
}

/// Those who are starting it, each a share of all.
pub struct Raging(Vec<Child>);

impl Storm {
    pub fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        Ok(Self { path: program::alias("actor", folder.path(), NAME)?, _folder: folder })
    }

    /// The path of each program, which no other has.
    pub fn path(&self) -> Result<&str> {
        self.path.to_str().context("the path is no text")
    }

    /// Begins to start `count` programs.
    pub fn rage(&self, count: usize) -> Result<Raging> {
        let mut makers = Raging(Vec::new());
        for i in 0..MAKERS {
            let share = (count * (i + 1) / MAKERS - count * i / MAKERS).to_string();
            let mut maker = Command::new(program::path("actor")?);
            maker.args(["repeat", &share]).arg(&self.path).args(["exit", "0"]);
            makers.0.push(maker.spawn().context("start a maker of programs")?);
        }
        Ok(makers)
    }
}

impl Raging {
    /// Waits until all have been started and have ended, and gives the process ids of those who started them.
    pub fn end(mut self) -> Result<Vec<u32>> {
        for maker in &mut self.0 {
            let status = maker.wait()?;
            ensure!(status.success(), "a maker of programs ended with {status}");
        }
        Ok(self.0.iter().map(Child::id).collect())
    }
}

impl Drop for Raging {
    fn drop(&mut self) {
        for maker in &mut self.0 {
            // Only where something has failed is any of them still there.
            let _ = maker.kill();
            let _ = maker.wait();
        }
    }
}
