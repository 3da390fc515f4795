//! Starts programs as fast as the machine can.

use std::{
    path::PathBuf,
    process::{Child, Command},
};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::program;

/// The name of every program of a storm, also for the kernel.
pub const NAME: &str = "storm";

/// The number of processes that start the programs one after the other.
const MAKERS: usize = 2;

/// A program that is started again and again.
pub struct Storm {
    path: PathBuf,
    _folder: TempDir,
}

/// The processes that start it, each an equal share.
pub struct RunningStorm(Vec<Child>);

impl Storm {
    pub fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        Ok(Self { path: program::alias("actor", folder.path(), NAME)?, _folder: folder })
    }

    /// Returns the path of the program. No other program has it.
    pub fn path(&self) -> Result<&str> {
        self.path.to_str().context("the path is not UTF-8")
    }

    /// Starts `count` programs in the background.
    pub fn start(&self, count: usize) -> Result<RunningStorm> {
        let mut makers = RunningStorm(Vec::new());
        for i in 0..MAKERS {
            let share = (count * (i + 1) / MAKERS - count * i / MAKERS).to_string();
            let mut maker = Command::new(program::path("actor")?);
            maker.args(["repeat", &share]).arg(&self.path).args(["exit", "0"]);
            makers.0.push(maker.spawn().context("start a maker of programs")?);
        }
        Ok(makers)
    }
}

impl RunningStorm {
    /// Waits until all programs have ended. Returns the process ids of the makers.
    pub fn end(mut self) -> Result<Vec<u32>> {
        for maker in &mut self.0 {
            let status = maker.wait()?;
            ensure!(status.success(), "a maker of programs ended with {status}");
        }
        Ok(self.0.iter().map(Child::id).collect())
    }
}

impl Drop for RunningStorm {
    fn drop(&mut self) {
        for maker in &mut self.0 {
            // A maker still runs only after an error.
            let _ = maker.kill();
            let _ = maker.wait();
        }
    }
}
