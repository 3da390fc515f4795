//! The counters of spans and records that were sent or dropped, shared with the metrics.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU64, Ordering},
};

use super::{failure::Reason, signal::Signal};

/// Why spans or records were not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dropped {
    /// Newer ones needed the room in the queue.
    QueueFull,
    /// The receiver could not be reached, or asked to wait, for too long.
    Expired,
    /// The receiver refused the request.
    Refused,
    /// The receiver accepted the request and rejected these.
    Rejected,
    /// One trace was larger than receivers accept.
    TooLarge,
    /// The agent ended.
    Ended,
}

impl Dropped {
    const ALL: [(Self, &'static str); 6] = [
        (Self::QueueFull, "queue_full"),
        (Self::Expired, "expired"),
        (Self::Refused, "refused"),
        (Self::Rejected, "rejected"),
        (Self::TooLarge, "too_large"),
        (Self::Ended, "ended"),
    ];
}

/// The counters of one signal. A clone shares them.
#[derive(Clone, Debug)]
pub(crate) struct ExportCounters(Arc<Counters>);

#[derive(Debug)]
struct Counters {
    signal: Signal,
    exported: AtomicU64,
    dropped: [AtomicU64; Dropped::ALL.len()],
    failed: [AtomicU64; Reason::ALL.len()],
    waiting: AtomicU64,
    /// Seconds since the epoch; 0: never.
    succeeded_at: AtomicI64,
}

/// The counters at one time.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) signal: &'static str,
    /// Spans or records that the receiver has accepted.
    pub(crate) exported: u64,
    /// Spans or records by the reason why they were not sent.
    pub(crate) dropped: Vec<(&'static str, u64)>,
    /// Requests by the reason why they failed.
    pub(crate) failed: Vec<(&'static str, u64)>,
    /// Spans or records that wait.
    pub(crate) waiting: u64,
    /// Seconds since the epoch.
    pub(crate) succeeded_at: Option<i64>,
}

impl ExportCounters {
    pub(super) fn new(signal: Signal) -> Self {
        Self(Arc::new(Counters {
            signal,
            exported: AtomicU64::new(0),
            dropped: Default::default(),
            failed: Default::default(),
            waiting: AtomicU64::new(0),
            succeeded_at: AtomicI64::new(0),
        }))
    }

    pub(super) fn signal(&self) -> &'static str {
        self.0.signal.as_str()
    }

    pub(super) fn add_exported(&self, entries: u64) {
        self.0.exported.fetch_add(entries, Ordering::Relaxed);
    }

    pub(super) fn add_dropped(&self, why: Dropped, entries: u64) {
        let at = Dropped::ALL.iter().position(|(it, _)| *it == why);
        if let Some(counter) = at.and_then(|at| self.0.dropped.get(at)) {
            counter.fetch_add(entries, Ordering::Relaxed);
        }
    }

    pub(super) fn add_failed(&self, why: Reason) {
        let at = Reason::ALL.iter().position(|it| *it == why);
        if let Some(counter) = at.and_then(|at| self.0.failed.get(at)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn set_waiting(&self, entries: u64) {
        self.0.waiting.store(entries, Ordering::Relaxed);
    }

    pub(super) fn succeeded(&self, at: i64) {
        self.0.succeeded_at.store(at, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Snapshot {
        let Counters { signal: _, exported, dropped, failed, waiting, succeeded_at } = &*self.0;
        let dropped = Dropped::ALL.iter().zip(dropped);
        let failed = Reason::ALL.iter().zip(failed);
        Snapshot {
            signal: self.signal(),
            exported: exported.load(Ordering::Relaxed),
            dropped: dropped.map(|((_, name), it)| (*name, it.load(Ordering::Relaxed))).collect(),
            failed: failed.map(|(why, it)| (why.as_str(), it.load(Ordering::Relaxed))).collect(),
            waiting: waiting.load(Ordering::Relaxed),
            succeeded_at: Some(succeeded_at.load(Ordering::Relaxed)).filter(|at| *at != 0),
        }
    }

    /// How many spans or records were dropped, for any reason.
    pub(super) fn all_dropped(&self) -> u64 {
        self.0.dropped.iter().map(|it| it.load(Ordering::Relaxed)).sum()
    }
}
