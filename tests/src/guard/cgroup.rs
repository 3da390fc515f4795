//! A real cgroup in a hierarchy that the test chooses.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Child,
};

use anyhow::{Context as _, Result};

use super::unique_name;
use crate::cgroupfs::{self, CgroupId, Hierarchy};

/// A cgroup that is removed with the guard. Its processes are killed.
#[derive(Debug)]
pub struct CgroupGuard {
    directory: PathBuf,
    path: String,
    id: CgroupId,
}

impl CgroupGuard {
    /// Makes a cgroup with a unique name below the hierarchy's root.
    pub fn create(hierarchy: &Hierarchy) -> Result<Self> {
        Self::create_at(hierarchy, &format!("/{}", unique_name("test")))
    }

    /// Makes the cgroup at `path`, whose parent exists.
    pub fn create_at(hierarchy: &Hierarchy, path: &str) -> Result<Self> {
        let directory = hierarchy.directory(path);
        fs::create_dir(&directory).with_context(|| format!("make cgroup {}", directory.display()))?;
        let id = hierarchy.id_of(path)?;
        Ok(Self { directory, path: path.to_owned(), id })
    }

    pub fn id(&self) -> CgroupId {
        self.id
    }

    /// Returns the path from the hierarchy's root, as the kernel's tracepoints give it.
    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Moves a process into this cgroup.
    pub fn attach(&self, process: &Child) -> Result<()> {
        fs::write(self.directory.join("cgroup.procs"), process.id().to_string())
            .with_context(|| format!("move process {} into {}", process.id(), self.path))
    }

    pub fn end(self) -> Result<()> {
        self.release()
    }

    fn release(&self) -> Result<()> {
        cgroupfs::kill(&self.directory)?;
        cgroupfs::remove(&self.directory)
    }
}

impl Drop for CgroupGuard {
    fn drop(&mut self) {
        // An error in drop cannot be reported. After `end` nothing is left to do.
        let _ = self.release();
    }
}
