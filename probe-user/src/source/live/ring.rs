//! Reads the rings: turns the kernel's records into observations, in batches, with a watermark whenever both rings
//! are empty.
//!
//! **Invariant:** the watermark is never ahead of what was read. It is the time before the poll in which both rings
//! were empty, minus a slack. A hook takes its time stamp first, then gathers its record, and only then reserves room
//! in a ring. A record that is reserved but not yet submitted makes a ring look empty.
//!
//! **Invariant:** without records there is no wakeup. After the last record there are only the wakeups that move the
//! watermark past it and read the counters once more.

mod poll;
mod record_buffer;
pub(super) mod selftest_filter;
mod watermark;

use std::{io, mem, os::fd::AsFd as _, time::Duration};

use bytes::Bytes;
use tokio::{
    sync::watch,
    time::{self, Instant},
};
use tracing::{debug, warn};

use self::{
    poll::poll_batch, record_buffer::RecordBuffer, selftest_filter::SelfTestFilter, watermark::WatermarkTimer,
};
use super::{
    attach::{Probe, RingMap},
    tally::Totals,
};
use crate::{
    engine::decode::decode,
    model::{
        fact::{Fact, Loss, Observation, Origin},
        time::Timestamp,
    },
    source::{
        channel::{Batch, BatchSender, CancellationToken, Closed},
        clock,
        ready::Ready,
    },
};

/// The longest time from a hook's time stamp until its record is readable, with some allowance for a virtual CPU that
/// is paused in between. A record that takes longer is told late, not lost.
pub const SLACK: Duration = Duration::from_millis(5);

/// How often the counters are read while records come.
const TALLY_PERIOD: Duration = Duration::from_secs(1);

/// The hooks and their rings. The hooks stay attached as long as this lives.
pub struct RingReader {
    probe: Probe,
    lifecycle: Watched,
    bulk: Watched,
    buffer: RecordBuffer,
    records: Vec<Bytes>,
    /// Recognizes the self-test's own events, which are not told.
    own: SelfTestFilter,
    /// Records that were read during the self-test, before the agent listens.
    early: Batch,
    /// The latest counters, for metrics.
    totals: watch::Sender<Totals>,
    mark: WatermarkTimer,
    /// When to move the watermark.
    mark_due: Option<Instant>,
    /// When to read the counters, if records came since they were last read.
    tally_due: Option<Instant>,
    /// The failure to read them was logged. They are read every second, so it is logged once.
    warned: bool,
}

/// The rings were taken already, or the runtime cannot watch them.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    #[error("the rings are being drained already")]
    Taken,
    #[error("cannot wait for records")]
    Wait(#[source] io::Error),
}

struct Watched {
    ring: RingMap,
    ready: Ready,
}

impl Watched {
    fn new(ring: RingMap) -> Result<Self, DrainError> {
        let ready = Ready::new(ring.as_fd()).map_err(DrainError::Wait)?;
        Ok(Self { ring, ready })
    }

    async fn wait(&self) -> io::Result<()> {
        // A record that comes while the ring is being read makes it ready again.
        self.ready.wait().await?.clear_ready();
        Ok(())
    }
}

impl RingReader {
    /// Must be called within a tokio runtime.
    pub fn new(mut probe: Probe, slack: Duration) -> Result<Self, DrainError> {
        let rings = probe.take_rings().ok_or(DrainError::Taken)?;
        Ok(Self {
            probe,
            lifecycle: Watched::new(rings.lifecycle)?,
            bulk: Watched::new(rings.bulk)?,
            buffer: RecordBuffer::default(),
            records: Vec::new(),
            own: SelfTestFilter::default(),
            early: Batch::new(),
            totals: watch::Sender::default(),
            mark: WatermarkTimer::new(slack),
            mark_due: None,
            tally_due: None,
            warned: false,
        })
    }

    #[must_use]
    pub(crate) fn probe(&self) -> &Probe {
        &self.probe
    }

    /// The counters as last read: within a second of any record.
    #[must_use]
    pub fn totals(&self) -> watch::Receiver<Totals> {
        self.totals.subscribe()
    }

    /// Leaves out the self-test's own events from now on.
    pub(super) fn leave_out(&mut self, own: SelfTestFilter) {
        self.own = own;
    }

    /// Keeps a batch that is to be sent first.
    pub(super) fn keep(&mut self, batch: Batch) {
        self.early.extend(batch);
    }

    /// Sends the rings' records until `stop`. Returns the counters.
    pub async fn run(mut self, feed: &BatchSender, mut stop: CancellationToken) -> Totals {
        if let Err(error) = self.work(feed, &mut stop).await {
            warn!(%error, "records can no longer be waited for");
        }
        self.finish(feed).await;
        self.totals.borrow().clone()
    }

    async fn work(&mut self, feed: &BatchSender, stop: &mut CancellationToken) -> io::Result<()> {
        if let Err(Closed) = feed.send(mem::take(&mut self.early)).await {
            return Ok(());
        }
        loop {
            if let Err(Closed) = self.catch_up(feed).await {
                return Ok(());
            }
            tokio::select! {
                () = stop.requested() => return Ok(()),
                woken = self.wait() => woken?,
            }
        }
    }

    /// Returns when there are records, or when something is due.
    pub(super) async fn wait(&self) -> io::Result<()> {
        let due = match (self.mark_due, self.tally_due) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        tokio::select! {
            woken = self.lifecycle.wait() => woken,
            woken = self.bulk.wait() => woken,
            () = sleep_until(due) => Ok(()),
        }
    }

    async fn catch_up(&mut self, feed: &BatchSender) -> Result<(), Closed> {
        loop {
            let (batch, empty) = self.poll_once();
            feed.send(batch).await?;
            if empty {
                return Ok(());
            }
        }
    }

    /// Polls the rings once. The flag is true if both were empty; then the batch may end with a watermark.
    pub(super) fn poll_once(&mut self) -> (Batch, bool) {
        let before = clock::now();
        let empty =
            poll_batch(&mut self.lifecycle.ring, &mut self.bulk.ring, &mut self.buffer, &mut self.records);
        if !self.records.is_empty() && self.tally_due.is_none() {
            self.tally_due = Some(Instant::now() + TALLY_PERIOD);
        }
        let mut batch = self.decode(before);
        if self.tally_due.is_some_and(|due| due <= Instant::now()) {
            self.tally_due = None;
            self.count(before, &mut batch);
        }
        if empty {
            if let Some(at) = self.mark.advance(before) {
                batch.push(Observation { at, origin: Origin::Agent, fact: Fact::Watermark });
            }
            self.mark_due = self.mark.due(before).map(|span| Instant::now() + span);
        }
        (batch, empty)
    }

    fn decode(&mut self, now: Timestamp) -> Batch {
        let mut batch = Batch::with_capacity(self.records.len() + 1);
        let mut unreadable = 0;
        let read = clock::now();
        for record in self.records.drain(..) {
            match decode(&record) {
                Ok(seen) => {
                    self.mark.saw(seen.at, read);
                    if !self.own.is(&seen) {
                        batch.push(seen);
                    }
                }
                Err(error) => {
                    debug!(%error, "record unreadable");
                    unreadable += 1;
                }
            }
        }
        if unreadable > 0 {
            batch.push(lost(now, Loss::Record, unreadable));
        }
        batch
    }

    fn count(&mut self, now: Timestamp, batch: &mut Batch) {
        match self.probe.totals() {
            Ok(totals) => {
                let losses = totals.lost_since(&self.totals.borrow());
                batch.extend(losses.into_iter().map(|(what, count)| lost(now, what, count)));
                self.totals.send_replace(totals);
                self.warned = false;
            }
            Err(_) if self.warned => {}
            Err(error) => {
                self.warned = true;
                warn!(%error, "counters unreadable");
            }
        }
    }

    /// Sends the remaining records, and how many were lost. Nothing is read after that, so the watermark needs no
    /// slack.
    async fn finish(&mut self, feed: &BatchSender) {
        let caught_up = self.catch_up(feed).await;
        let now = clock::now();
        let mut last = Batch::new();
        self.count(now, &mut last);
        if let Err(Closed) = caught_up {
            return;
        }
        last.push(Observation { at: now, origin: Origin::Agent, fact: Fact::Watermark });
        // If the agent is gone, nobody needs it.
        feed.send(last).await.ok();
    }
}

fn lost(at: Timestamp, what: Loss, count: u64) -> Observation {
    Observation { at, origin: Origin::Agent, fact: Fact::Lost { what, count } }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
