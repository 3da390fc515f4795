//! The agent's statistics about itself, for a scrape.

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
    pub probe: ProbeStats,
    pub reading: ReadingStats,
    pub server: ServerStats,
    pub queues: Vec<Queue>,
    /// System calls that the agent's confinement refused.
    pub refused: u64,
    /// Events that were not written to the stream, because nobody read it or there was no room.
    pub dropped: u64,
    /// Whether the last write to the stream succeeded. `None` if there is no stream.
    pub is_stream_written: Option<bool>,
    /// Events that `--event-rate` left out of the stream.
    pub left_out: u64,
    /// The files of the state directory, each after its first write.
    pub state_writes: Vec<StateWrite>,
    /// `None` if nothing is written to the API server.
    pub kubernetes: Option<KubernetesWrites>,
    /// The exports to an OTLP receiver, by signal; empty without a receiver.
    pub exported: Vec<Exported>,
    pub process: Option<Process>,
    /// How many network namespaces the kernel allows; `None` if that cannot be read.
    pub netns_limit: Option<u64>,
}

/// The hooks, and the counters of the eBPF programs.
#[derive(Clone, Debug, Default)]
pub struct ProbeStats {
    /// How each signal is seen; `None` if it is not seen.
    pub hooks: Vec<(Signal, Option<Mechanism>)>,
    pub rings: Vec<Ring>,
    pub programs: Vec<Program>,
    /// Network namespaces whose end no hook will see.
    pub netns_untracked: u64,
    /// Entries for which a map of the eBPF programs had no room.
    pub not_kept: u64,
}

/// The progress of reading the node's files.
#[derive(Clone, Debug, Default)]
pub struct ReadingStats {
    /// Files that could not be read at the last pass.
    pub unreadable: u64,
    /// Files whose reading hangs.
    pub hanging: u64,
    /// How long the oldest request about files has waited.
    pub oldest_question: Duration,
    /// Requests about files for which there was no room.
    pub dropped_questions: u64,
}

/// The server's own files.
#[derive(Clone, Debug, Default)]
pub struct ServerStats {
    /// The certificate, key or token in its file cannot be used. The server keeps the previous one.
    pub stale: bool,
    /// When the certificate expires, seconds since the epoch; `None` without TLS.
    pub certificate_expires: Option<i64>,
}

/// The writes to the API server of the cluster.
#[derive(Clone, Debug, Default)]
pub struct KubernetesWrites {
    /// The resource, the outcome, and the number of requests.
    pub requests: Vec<(&'static str, &'static str, u64)>,
    /// Findings that have no Event yet.
    pub waiting: u64,
}

/// The result of the writes of a file in the state directory.
#[derive(Clone, Debug, Default)]
pub struct StateWrite {
    pub file: &'static str,
    pub failures: u64,
    /// Whether the last write succeeded.
    pub has_succeeded: bool,
}

/// The exports of one signal.
#[derive(Clone, Debug, Default)]
pub struct Exported {
    pub signal: &'static str,
    /// Spans or log records that the receiver has accepted.
    pub exported: u64,
    /// Spans or log records that were not sent, by reason.
    pub dropped: Vec<(&'static str, u64)>,
    /// Requests that failed, by reason.
    pub failed: Vec<(&'static str, u64)>,
    /// Spans or log records that wait.
    pub waiting: u64,
    /// When a request last succeeded, seconds since the epoch.
    pub succeeded_at: Option<i64>,
}

/// A ring's counters since the programs were loaded, by kind of record, indexed like `event::NAMES`.
#[derive(Clone, Debug, Default)]
pub struct Ring {
    pub name: &'static str,
    pub sent: Vec<u64>,
    pub lost: Vec<u64>,
}

/// The kernel's counters of an eBPF program since it was loaded.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub name: String,
    /// Time and runs are zero unless the kernel measures them (`kernel.bpf_stats_enabled`).
    pub time: Duration,
    pub runs: u64,
    pub missed: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Queue {
    pub name: &'static str,
    pub length: u64,
    /// `None` if it has no bound.
    pub capacity: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Process {
    pub cpu: Duration,
    pub resident: u64,
    /// Bytes of memory, by owner.
    pub memory: [(&'static str, u64); 4],
    pub virtual_size: u64,
    pub threads: u64,
    pub open_fds: Option<u64>,
    pub max_fds: Option<u64>,
    /// When the process started, seconds since the epoch.
    pub started: f64,
    /// The effective capabilities, as bits.
    pub capabilities: u64,
}

/// The state of the server's certificate, key and token, shared with the metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerFiles {
    /// The current files cannot be used.
    pub stale: Arc<AtomicBool>,
    /// `None` without TLS.
    pub expiry: Option<Expiry>,
}

/// When the served certificate expires.
#[derive(Clone, Debug)]
pub(crate) struct Expiry(Arc<AtomicI64>);

impl Default for Expiry {
    /// Unknown.
    fn default() -> Self {
        Self(Arc::new(AtomicI64::new(i64::MIN)))
    }
}

impl Expiry {
    /// Seconds since the epoch; `None` if the certificate has the time in an unknown form.
    #[must_use]
    pub(crate) fn at(&self) -> Option<i64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|at| *at != i64::MIN)
    }

    pub(crate) fn set(&self, at: Option<i64>) {
        self.0.store(at.unwrap_or(i64::MIN), Ordering::Relaxed);
    }
}
