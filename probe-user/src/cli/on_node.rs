//! The commands that need a node: they read its files or hook its kernel.

mod doctor;
mod leaks;
mod live;
pub(super) mod node;
mod pins;

use clap::Subcommand;

use super::ExitStatus;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Print which hook sees what and how well, then the events, then a summary
    Run(Box<live::Run>),
    /// Print the events of the node as they happen
    Watch(live::Watch),
    /// Print the events, and record everything so that it can be replayed
    Record(live::Record),
    /// Check once for addresses without a sandbox, on a node where sandprobe never ran; needs no hooks
    Leaks(leaks::Leaks),
    /// Show what sandprobe can see on this node, how, and what to change to see more
    Doctor(doctor::Doctor),
    /// Remove the hooks that an ended "run" has left in the kernel for the next one
    Detach(pins::Detach),
}

impl Command {
    pub(super) fn run(self) -> anyhow::Result<ExitStatus> {
        match self {
            Self::Run(run) => run.run(),
            Self::Watch(watch) => watch.run(),
            Self::Record(record) => record.run(),
            Self::Leaks(leaks) => leaks.run(),
            Self::Doctor(doctor) => doctor.run(),
            Self::Detach(detach) => detach.run(),
        }
    }

    /// The log level that the command's own flags ask for.
    pub(super) fn verbose(&self) -> u8 {
        match self {
            Self::Run(run) => run.probe.verbose(),
            Self::Watch(live::Watch { probe, .. }) | Self::Record(live::Record { probe, .. }) => {
                probe.verbose()
            }
            Self::Leaks(_) | Self::Doctor(_) | Self::Detach(_) => 0,
        }
    }
}
