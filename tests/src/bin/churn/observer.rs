//! The programs that learn that a container has ended: CRI clients, and the agent.

use std::{
    env,
    io::{self, BufRead as _, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum as _;
use serde_json::Value;
use tests::clock;

use crate::{
    agent::Agent,
    client::{NO_EVENTS, Way},
};

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Nobody,
    Client(Way),
    Agent,
}

/// A running observer. Dropping it ends it.
pub(crate) struct Observer {
    process: Process,
    lines: Receiver<Line>,
}

enum Process {
    Nobody,
    Client(Child),
    Agent(Agent),
}

enum Line {
    /// The container, and the time at which the observer learned of its end.
    Ended(String, u64),
    NoEvents,
}

impl Observer {
    pub(crate) fn start(kind: Kind, socket: &Path) -> Result<Self> {
        let (process, lines) = match kind {
            Kind::Nobody => (Process::Nobody, mpsc::channel().1),
            Kind::Client(way) => {
                let way = way.to_possible_value().context("a way has a name")?;
                let mut child = Command::new(env::current_exe()?)
                    .args(["client", way.get_name()])
                    .arg(socket)
                    .stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .spawn()
                    .context("start a client")?;
                let stdout = child.stdout.take().context("its output was asked for")?;
                (Process::Client(child), lines(stdout, of_client))
            }
            Kind::Agent => {
                let (stdout, stdin) = io::pipe()?;
                (Process::Agent(Agent::start(|_folder| Ok(stdin.into()))?), lines(stdout, of_agent))
            }
        };
        Ok(Self { process, lines })
    }

    /// `None`: there is no process.
    pub(crate) fn pid(&self) -> Option<u32> {
        match &self.process {
            Process::Nobody => None,
            Process::Client(child) => Some(child.id()),
            Process::Agent(agent) => Some(agent.pid()),
        }
    }

    /// False where the runtime has no events. The client says so at once.
    pub(crate) fn is_able(&self) -> bool {
        !matches!(self.lines.try_recv(), Ok(Line::NoEvents))
    }

    /// Waits until the observer learns that a container has ended, and returns that time.
    pub(crate) fn wait(&self, container: &str, limit: Duration) -> Result<u64> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left).context("the end of a container is not known")? {
                Line::Ended(id, known) if id == container => return Ok(known),
                Line::Ended(..) => {}
                Line::NoEvents => bail!("there are no events"),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Self::Client(child) = self {
            // It ends by itself only after an error.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn lines(from: impl Read + Send + 'static, parse: fn(&str) -> Option<Line>) -> Receiver<Line> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if parse(&line).is_some_and(|line| sender.send(line).is_err()) {
                return;
            }
        }
    });
    lines
}

fn of_client(line: &str) -> Option<Line> {
    if line == NO_EVENTS {
        return Some(Line::NoEvents);
    }
    let (id, known) = line.split_once(' ')?;
    Some(Line::Ended(id.to_owned(), known.parse().ok()?))
}

fn of_agent(line: &str) -> Option<Line> {
    let known = clock::boot_ns().ok()?;
    if !line.contains("container.exited") {
        return None;
    }
    let event: Value = serde_json::from_str(line).ok()?;
    Some(Line::Ended(event["container"]["id"].as_str()?.to_owned(), known))
}
