//! The folder in which hooks outlive the agent: the flags of `run`, and `sandprobe detach`.

use std::{
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::anyhow;
use clap::Args;

use crate::{
    cli::{ExitStatus, output},
    duration::duration,
    source::live::pin::{PIN_DIR, PinError, Pins},
};

/// The folder of the pins.
#[derive(Debug, Args)]
pub(super) struct PinDirArgs {
    /// The folder of a BPF file system in which the hooks of "run" are pinned, so that they outlive it;
    /// "none" for no pins [default: /sys/fs/bpf/sandprobe]
    #[arg(long, value_name = "DIR", env = "SANDPROBE_PIN_DIR")]
    pin_dir: Option<PathBuf>,
}

impl PinDirArgs {
    fn dir(&self) -> Option<&Path> {
        let dir = self.pin_dir.as_deref().unwrap_or(PIN_DIR.as_ref());
        Some(dir).filter(|dir| ![Path::new(""), Path::new("none")].contains(dir))
    }

    /// Returns the folder beside it in which `doctor` pins hooks for a moment: an agent may use the other
    /// one.
    pub(super) fn of_doctor(&self) -> Option<PathBuf> {
        self.dir().map(of_doctor)
    }
}

fn of_doctor(dir: &Path) -> PathBuf {
    let mut name = dir.as_os_str().to_owned();
    name.push("-doctor");
    name.into()
}

/// Whether hooks outlive the run.
#[derive(Debug, Args)]
pub(super) struct PinArgs {
    #[command(flatten)]
    dir: PinDirArgs,

    /// End the hooks with the run: what happens until the next one is not seen
    #[arg(long, conflicts_with = "take_over")]
    no_pin: bool,

    /// If sandprobe runs here already, end it and go on in its place
    #[arg(long)]
    take_over: bool,
}

impl PinArgs {
    /// Opens the folder; `None` without pins. The inner error is why there can be no pins though there should
    /// be. The outer error is that another agent has the folder.
    pub(super) fn open(&self) -> Result<Option<Result<Pins, PinError>>, PinError> {
        let dir = if self.no_pin { None } else { self.dir.dir() };
        let Some(dir) = dir else { return Ok(None) };
        let opened = if self.take_over { Pins::take_over(dir) } else { Pins::open(dir) };
        match opened {
            Err(
                error @ (PinError::Taken(..)
                | PinError::Stays(_)
                | PinError::Dying(_)
                | PinError::Unending(..)),
            ) => Err(error),
            other => Ok(Some(other)),
        }
    }
}

/// Explains an error without what `run` can do beside an agent, which is of no use to `detach`.
fn beside_agent(error: PinError) -> anyhow::Error {
    match error {
        PinError::Taken(holder, dir) => anyhow!(
            "sandprobe runs here{holder}, with its hooks in {}: end it first, or give --wait to detach them once it has ended",
            dir.display()
        ),
        other => other.into(),
    }
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Detach {
    #[command(flatten)]
    dir: PinDirArgs,

    /// If sandprobe runs here, wait until it has ended
    #[arg(long)]
    wait: bool,

    /// Keep running for this long after the hooks are removed (used by the chart)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    linger: Option<Duration>,
}

impl Detach {
    pub(in crate::cli) fn run(&self) -> anyhow::Result<ExitStatus> {
        let said = match self.dir.dir() {
            Some(dir) => self.detach(dir)?,
            // An agent with this setting has no pins; the pins of another one are in a folder that must be
            // named.
            None => {
                "nothing to detach: --pin-dir none means no pins; give the folder that has them\n".to_owned()
            }
        };
        output::write(&mut said.into_bytes())?;
        if let Some(span) = self.linger {
            thread::sleep(span);
        }
        Ok(ExitStatus::Ok)
    }

    /// Removes the folder, and that of an interrupted doctor. Returns what was done.
    fn detach(&self, dir: &Path) -> anyhow::Result<String> {
        let shown = dir.display();
        let mut said = if dir.try_exists()? {
            let opened = if self.wait { Pins::wait_for(dir) } else { Pins::open(dir) };
            let pins = opened.map_err(beside_agent)?;
            match pins.remove()? {
                0 => format!("no hooks were pinned in {shown}; it is removed\n"),
                1 => format!("hooks are detached; {shown} is removed\n"),
                sets => format!("{sets} sets of hooks are detached; {shown} is removed\n"),
            }
        } else {
            format!("nothing is pinned: {shown} does not exist\n")
        };
        let of_doctor = of_doctor(dir);
        if of_doctor.try_exists()? {
            match Pins::open(&of_doctor) {
                Ok(left) => {
                    left.remove()?;
                    said +=
                        &format!("what an interrupted doctor left in {} is removed\n", of_doctor.display());
                }
                // A doctor is running, and removes them itself.
                Err(PinError::Taken(..) | PinError::Dying(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(said)
    }
}
