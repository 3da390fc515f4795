//! Collects the agent's own figures for a scrape.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use probe_common::tally;
use tokio::sync::watch;

use crate::{
    api_server::stats::KubernetesStats,
    confine::refusal,
    model::fact::{Mechanism, Signal},
    sink::{
        metrics::agent_stats::{
            AgentStats, Expiry, Exported, KubernetesWrites, ProbeStats, Process, Program, Queue,
            ReadingStats, Ring, ServerFiles, ServerStats, StateWrite,
        },
        otlp::figures::{ExportCounters, Snapshot},
        serve::ring,
        state::state_writes::{Outcome, StateFile, StateWrites},
        stream::StreamTrouble,
    },
    source::{
        files::ReadProgress,
        live::{
            attach::HookReport,
            ring::RingReader,
            tally::{Runs, Totals},
        },
        node::{clock, netns_limit::NetnsLimit, usage::Usage},
        task::channel::Gauge,
    },
};

/// Collects the agent's statistics from these parts.
#[derive(Debug)]
pub(crate) struct StatsCollector {
    hooks: Vec<(Signal, Option<Mechanism>)>,
    totals: watch::Receiver<Totals>,
    parts: Parts,
    netns_limit: NetnsLimit,
    /// The latest events, for clients of the server.
    latest: Option<Arc<ring::Ring>>,
    /// Seconds since the epoch.
    started: f64,
}

/// The counters that the parts of the agent keep.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) batches: Gauge,
    /// Files of the node that could not be read at the last pass.
    pub(crate) unreadable: Arc<AtomicU64>,
    /// Events that were not written to the stream.
    pub(crate) dropped: Arc<AtomicU64>,
    /// Why the stream is not written at the moment, if so.
    pub(crate) stream: StreamTrouble,
    /// Events that `--event-rate` left out of the stream.
    pub(crate) left_out: Arc<AtomicU64>,
    pub(crate) reading: Arc<ReadProgress>,
    pub(crate) server: ServerFiles,
    pub(crate) state: StateWrites,
    /// The requests to the API server, if any are made.
    pub(crate) kubernetes: Option<Arc<KubernetesStats>>,
    /// What was sent to a receiver, by signal.
    pub(crate) otlp: Vec<ExportCounters>,
}

impl StatsCollector {
    /// Starts with the process; `reports` includes the results of the self-test.
    #[must_use]
    pub(crate) fn new(reports: &[HookReport], drain: &RingReader, parts: Parts) -> Self {
        let hooks = reports.iter().map(|report| (report.signal, report.mechanism));
        let netns_limit = NetnsLimit::open();
        Self {
            hooks: hooks.collect(),
            totals: drain.totals(),
            parts,
            netns_limit,
            latest: None,
            started: wall(),
        }
    }

    /// Counts the memory of the latest events, too.
    pub(crate) fn count(&mut self, latest: Arc<ring::Ring>) {
        self.latest = Some(latest);
    }

    /// Returns the results of the writes to the state directory.
    #[must_use]
    pub(crate) fn state_writes(&self) -> StateWrites {
        self.parts.state.clone()
    }

    /// Returns whether the stream is written.
    #[must_use]
    pub(crate) fn stream_trouble(&self) -> StreamTrouble {
        self.parts.stream.clone()
    }

    #[must_use]
    pub(crate) fn own(&self) -> AgentStats {
        let totals = self.totals.borrow();
        let Parts {
            batches,
            unreadable,
            dropped,
            stream,
            left_out,
            reading,
            server,
            state,
            kubernetes,
            otlp,
        } = &self.parts;
        AgentStats {
            probe: ProbeStats {
                hooks: self.hooks.clone(),
                rings: vec![
                    ring("lifecycle", &totals, tally::Ring::Lifecycle),
                    ring("bulk", &totals, tally::Ring::Bulk),
                ],
                programs: totals.programs().iter().map(|(name, runs)| program(name, runs)).collect(),
                netns_untracked: totals.netns_untracked(),
                not_kept: totals.not_kept(),
            },
            reading: ReadingStats {
                unreadable: unreadable.load(Ordering::Relaxed),
                hanging: reading.hanging(),
                oldest_question: reading.oldest(clock::now()),
                dropped_questions: reading.dropped(),
            },
            server: ServerStats {
                stale: server.stale.load(Ordering::Relaxed),
                certificate_expires: server.expiry.as_ref().and_then(Expiry::at),
            },
            queues: vec![
                Queue {
                    name: "batches",
                    length: u64::try_from(batches.length()).unwrap_or(u64::MAX),
                    capacity: u64::try_from(Gauge::CAPACITY).ok(),
                },
                Queue {
                    name: "questions",
                    length: reading.waiting(),
                    capacity: u64::try_from(ReadProgress::CAPACITY).ok(),
                },
            ],
            refused: refusal::count(),
            dropped: dropped.load(Ordering::Relaxed),
            is_stream_written: Some(stream.shown().is_none()),
            left_out: left_out.load(Ordering::Relaxed),
            state_writes: state
                .outcomes()
                .iter()
                .map(|(file, outcome)| state_write(*file, outcome))
                .collect(),
            kubernetes: kubernetes.as_deref().map(written),
            exported: otlp.iter().map(exported).collect(),
            process: self.process(),
            netns_limit: self.netns_limit(),
        }
    }

    /// Returns how many network namespaces the kernel allows; `None` if that cannot be read.
    #[must_use]
    pub(crate) fn netns_limit(&self) -> Option<u64> {
        self.netns_limit.read()
    }

    /// Returns the figures of the process; `None` if /proc cannot be read.
    #[must_use]
    pub(crate) fn process(&self) -> Option<Process> {
        let Usage { cpu, resident, memory, virtual_size, threads, open_fds, max_fds, capabilities } =
            Usage::read().ok()?;
        let latest = self.latest.as_ref().map_or(0, |ring| ring.memory());
        let memory = [
            ("program", memory.program),
            ("hooks", memory.maps),
            ("latest_events", latest),
            ("rest", memory.rest.saturating_sub(latest)),
        ];
        Some(Process {
            cpu,
            resident,
            memory,
            virtual_size,
            threads,
            open_fds: Some(open_fds),
            max_fds: Some(max_fds),
            started: self.started,
            capabilities,
        })
    }
}

fn ring(name: &'static str, totals: &Totals, ring: tally::Ring) -> Ring {
    Ring { name, sent: totals.sent(ring), lost: totals.lost(ring) }
}

fn written(stats: &KubernetesStats) -> KubernetesWrites {
    let requests = stats.requests().map(|(what, how, count)| (what.into_str(), how.into_str(), count));
    KubernetesWrites { requests: requests.collect(), waiting: stats.waiting() }
}

fn state_write(file: StateFile, outcome: &Outcome) -> StateWrite {
    StateWrite { file: file.as_str(), failures: outcome.failures, has_succeeded: outcome.trouble.is_none() }
}

fn exported(figures: &ExportCounters) -> Exported {
    let Snapshot { signal, exported, dropped, failed, waiting, succeeded_at } = figures.read();
    Exported { signal, exported, dropped, failed, waiting, succeeded_at }
}

fn program(name: &str, runs: &Runs) -> Program {
    Program { name: name.to_owned(), time: runs.time, runs: runs.count, missed: runs.skipped }
}

#[expect(clippy::cast_precision_loss, reason = "a double has microseconds for centuries")]
fn wall() -> f64 {
    (i128::from(clock::boot_wall_ns()) + i128::from(clock::now().0)) as f64 / 1e9
}
