//! Measures the agent's cost on a node: at its start, at rest, while pods come and go, and in storms.
//! Compares it with other ways to learn that a container has ended. The pods run in a private containerd,
//! which is removed afterwards.

mod agent;
mod client;
mod deaths;
mod lives;
mod observer;
mod opened;
mod pods;
mod report;
mod storms;
mod usage;

use anyhow::Result;
use clap::{Parser, Subcommand};
use tests::interrupt::Interrupt;

#[derive(Parser)]
#[command(about = "Measures what the agent costs, and prints what it measured as lines of JSON")]
struct Cli {
    #[command(subcommand)]
    part: Part,
}

#[derive(Subcommand)]
enum Part {
    /// The agent's start, its rest, scrapes of its metrics, and pods that live
    Lives(lives::Lives),
    /// Storms of programs, network namespaces and cgroups
    Storms(storms::Storms),
    /// When observers learn that a container has ended, and what they cost
    Deaths(deaths::Deaths),
    /// Prints which containers have ended, until it is killed
    #[command(hide = true)]
    Client(client::Client),
}

fn main() -> Result<()> {
    match Cli::parse().part {
        Part::Lives(it) => it.run(&Interrupt::watch()?),
        Part::Storms(it) => it.run(&Interrupt::watch()?),
        Part::Deaths(it) => it.run(&Interrupt::watch()?),
        Part::Client(it) => it.run(),
    }
}
