//! What the agent knows of itself, as it is handed over for a scrape.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use crate::model::fact::{Mechanism, Signal};

#[derive(Clone, Debug, Default)]
pub struct AgentStats {
    /// How each signal is seen; `None`: not at all.
    pub hooks: Vec<(Signal, Option<Mechanism>)>,
    pub rings: Vec<Ring>,
    pub programs: Vec<Program>,
    pub queues: Vec<Queue>,
    /// Network namespaces whose end no hook will see.
    pub netns_untracked: u64,
    /// Entries that a table of the eBPF programs had no room for.
    pub not_kept: u64,
    /// System calls that its confinement refused.
    pub refused: u64,
    /// Of the node's files, when they were last looked at.
    pub unreadable: u64,
    /// Files of the node at which reading hangs.
    pub hanging: u64,
    /// How long the oldest question about the node's files has waited.
    pub oldest_question: Duration,
    /// Such questions that found no room.
    pub dropped_questions: u64,
    /// Events that were not written to standard output.
    pub dropped: u64,
    /// The server's certificate, key or token in their files cannot be used; those from before are.
    pub stale: bool,
    /// When its certificate is no longer good, seconds since the epoch; none if it serves without TLS.
    pub certificate_expires: Option<i64>,
    /// What is kept in the state directory, once it was tried.
    pub state_writes: Vec<StateWrite>,
    pub process: Option<Process>,
}

/// How the writes of one of the files of the state directory went.
#[derive(Clone, Debug, Default)]
pub struct StateWrite {
    pub file: &'static str,
    pub failures: u64,
    /// The last one.
    pub has_succeeded: bool,
}

/// A ring's counters since the programs were loaded, by kind of record: places as in `event::NAMES`.
#[derive(Clone, Debug, Default)]
pub struct Ring {
    pub name: &'static str,
    pub sent: Vec<u64>,
    pub lost: Vec<u64>,
}

/// What the kernel counts of an eBPF program since it was loaded.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub name: String,
    /// Zero, and so are the runs, unless the kernel was asked to count them.
    pub time: Duration,
    pub runs: u64,
    pub missed: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Queue {
    pub name: &'static str,
    pub length: u64,
    /// `None`: it has no bound.
    pub capacity: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Process {
    pub cpu: Duration,
    pub resident: u64,
    pub virtual_size: u64,
    pub threads: u64,
    pub open_fds: Option<u64>,
    pub max_fds: Option<u64>,
    /// Seconds since the epoch.
    pub started: f64,
    /// In effect, a bit for each by number.
    pub capabilities: u64,
}

/// The files by which the server and its clients are known, for whoever looks on.
#[derive(Clone, Debug, Default)]
pub struct ServerFiles {
    /// What is in them now cannot be used.
    pub stale: Arc<AtomicBool>,
    /// None without TLS.
    pub expiry: Option<Expiry>,
}

/// When the certificate that clients are shown is no longer good.
#[derive(Clone, Debug)]
pub struct Expiry(Arc<AtomicI64>);

impl Default for Expiry {
    /// Not known.
    fn default() -> Self {
        Self(Arc::new(AtomicI64::new(i64::MIN)))
    }
}

impl Expiry {
    /// Seconds since the epoch, if its certificates say so in a form that is known.
    #[must_use]
    pub fn at(&self) -> Option<i64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|at| *at != i64::MIN)
    }

    pub fn set(&self, at: Option<i64>) {
        self.0.store(at.unwrap_or(i64::MIN), Ordering::Relaxed);
    }
}
