//! A CRI client that learns which containers have ended: from lists, or from the runtime's events.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use clap::{Args, ValueEnum};
use tests::{
    clock,
    cri::{
        Cri,
        message::{container::ContainerState, event::ContainerEventType},
    },
};

/// The kubelet lists as often.
const PERIOD: Duration = Duration::from_secs(1);
/// The output where the runtime has no events.
pub(crate) const NO_EVENTS: &str = "no events";

#[derive(Args)]
pub(crate) struct Client {
    #[arg(value_enum)]
    way: Way,
    /// The socket of the runtime
    socket: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Way {
    /// List all sandboxes and all containers each second
    List,
    /// Take the events of the runtime
    Events,
}

impl Client {
    /// Prints the id of each ended container and the time at which the client learned it.
    pub(crate) fn run(&self) -> Result<()> {
        let mut cri = Cri::connect(&self.socket)?;
        match self.way {
            Way::List => list(&mut cri),
            Way::Events => events(&mut cri),
        }
    }
}

fn list(cri: &mut Cri) -> Result<()> {
    let mut known = BTreeSet::new();
    let mut next = Instant::now();
    loop {
        cri.list_pod_sandbox()?;
        for container in cri.list_containers()? {
            let has_ended = ContainerState::try_from(container.state) == Ok(ContainerState::Exited);
            if has_ended && known.insert(container.id.clone()) {
                print(&container.id)?;
            }
        }
        next += PERIOD;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

#[expect(clippy::print_stdout, reason = "the program's output")]
fn events(cri: &mut Cri) -> Result<()> {
    let are_there = cri.container_events(|event| {
        let is_end = ContainerEventType::try_from(event.kind) == Ok(ContainerEventType::Stopped);
        if is_end { print(&event.container_id) } else { Ok(()) }
    })?;
    if !are_there {
        println!("{NO_EVENTS}");
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the program's output")]
fn print(container: &str) -> Result<()> {
    println!("{container} {}", clock::boot_ns()?);
    Ok(())
}
