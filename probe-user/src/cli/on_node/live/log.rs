//! The flags of the log file.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use clap::{Args, value_parser};

use crate::{
    cli::args::made,
    sink::stream::log_file::{LogFile, Rotation},
    size::size,
};

#[derive(Debug, Args)]
pub(super) struct LogArgs {
    /// Write the events to this file, always as JSON lines, and not to standard output; in a directory of its
    /// own
    #[arg(long, value_name = "FILE", value_parser = made())]
    log_file: Option<PathBuf>,

    /// The size at which the log file is renamed to FILE.1 and a new one begins (512KiB, 10MiB, 1GiB)
    #[arg(long, value_name = "SIZE", default_value = "10MiB", requires = "log_file", value_parser = size)]
    log_size: u64,

    /// How many renamed log files to keep; FILE.1 is the newest
    #[arg(long, value_name = "N", default_value = "5", requires = "log_file", value_parser = value_parser!(u32).range(..=1000))]
    log_keep: u32,
}

impl LogArgs {
    /// Returns the flags if there is a log file.
    pub(super) fn file(&self) -> Option<&Self> {
        self.log_file.as_ref().map(|_| self)
    }

    fn path(&self) -> &Path {
        self.log_file.as_deref().unwrap_or(Path::new(""))
    }

    pub(super) fn name(&self) -> String {
        self.path().display().to_string()
    }

    /// The directory of the file.
    pub(super) fn dir(&self) -> PathBuf {
        match self.path().parent() {
            Some(dir) if dir != Path::new("") => dir.to_owned(),
            _ => PathBuf::from("."),
        }
    }

    pub(super) fn open(&self, state_dir: Option<&Path>) -> anyhow::Result<LogFile> {
        self.try_open(state_dir).with_context(|| self.refused())
    }

    fn try_open(&self, state_dir: Option<&Path>) -> anyhow::Result<LogFile> {
        let dir = fs::canonicalize(self.dir()).with_context(|| format!("{}", self.dir().display()))?;
        let is_state_dir = match state_dir {
            Some(state_dir) => fs::canonicalize(state_dir).is_ok_and(|it| it == dir),
            None => false,
        };
        ensure!(
            dir != Path::new("/") && !is_state_dir,
            "it must be in a directory of its own, not in {}",
            dir.display()
        );
        Ok(LogFile::open(self.path(), Rotation { size: self.log_size, keep: self.log_keep })?)
    }

    /// Whether the calling thread can begin the file anew.
    pub(super) fn check(&self, file: &LogFile) -> anyhow::Result<()> {
        file.try_rights()
            .with_context(|| format!("{}: {} must belong to root", self.refused(), self.dir().display()))
    }

    fn refused(&self) -> String {
        format!("cannot use the log file {}", self.path().display())
    }
}
