//! Drains the rings: the kernel's records become observations, in batches, with a watermark whenever nothing is left.
//!
//! **Invariant:** the watermark is never ahead of what was read. It is the time before the turn in which both rings
//! were found empty, less a slack: a hook takes its time first, then gathers its record, and only then reserves its
//! room in a ring; and a record that is reserved but not yet submitted makes a ring look empty.
//!
//! **Invariant:** without records there is no wakeup, and after the last of them only those that the watermark needs
//! to get past it and the counters to be read once more.

mod copy;
mod mark;
pub(super) mod own;
mod turn;

use std::{io, mem, os::fd::AsFd as _, time::Duration};

use aya::maps::{MapData, RingBuf};
use bytes::Bytes;
use tokio::{
    sync::watch,
    time::{self, Instant},
};
use tracing::{debug, warn};

use self::{copy::RecordBuffer, mark::Mark, own::SelfTestFilter, turn::turn};
use super::{attach::Probe, tally::Totals};
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

/// What a hook may take from its time stamp to its record's being readable, with room for a virtual CPU that is made
/// to wait in between. A record that takes longer is told late, not lost.
pub const SLACK: Duration = Duration::from_millis(5);

/// How often the counters are read while records come.
const TALLY_PERIOD: Duration = Duration::from_secs(1);

/// The hooks and what they write. The hooks stay attached as long as this lives.
pub struct RingReader {
    probe: Probe,
    lifecycle: Watched,
    bulk: Watched,
    copies: RecordBuffer,
    records: Vec<Bytes>,
    /// The self-test's own doings, which are not told.
    own: SelfTestFilter,
    /// What was read before there was anybody to tell it to.
    early: Batch,
    /// As they were counted last, for whoever looks.
    totals: watch::Sender<Totals>,
    mark: Mark,
    /// When the watermark is to be moved.
    mark_due: Option<Instant>,
    /// When the counters are to be read, if records came since they were.
    tally_due: Option<Instant>,
    /// It was said that they cannot be read: they are read every second.
    warned: bool,
}

/// The rings are somebody else's, or the runtime cannot watch them.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    #[error("the rings are being drained already")]
    Taken,
    #[error("cannot wait for records")]
    Wait(#[source] io::Error),
}

struct Watched {
    ring: RingBuf<MapData>,
    ready: Ready,
}

impl Watched {
    fn new(ring: RingBuf<MapData>) -> Result<Self, DrainError> {
        let ready = Ready::new(ring.as_fd()).map_err(DrainError::Wait)?;
        Ok(Self { ring, ready })
    }

    async fn wait(&self) -> io::Result<()> {
        // What comes while the ring is being drained makes it ready once more.
        self.ready.wait().await?.clear_ready();
        Ok(())
    }
}

impl RingReader {
    /// Must be called within a runtime.
    pub fn new(mut probe: Probe, slack: Duration) -> Result<Self, DrainError> {
        let rings = probe.take_rings().ok_or(DrainError::Taken)?;
        Ok(Self {
            probe,
            lifecycle: Watched::new(rings.lifecycle)?,
            bulk: Watched::new(rings.bulk)?,
            copies: RecordBuffer::default(),
            records: Vec::new(),
            own: SelfTestFilter::default(),
            early: Batch::new(),
            totals: watch::Sender::default(),
            mark: Mark::new(slack),
            mark_due: None,
            tally_due: None,
            warned: false,
        })
    }

    #[must_use]
    pub fn probe(&self) -> &Probe {
        &self.probe
    }

    /// The counters as they were read last: within a second of any record.
    #[must_use]
    pub fn totals(&self) -> watch::Receiver<Totals> {
        self.totals.subscribe()
    }

    /// Leaves out from here on what the self-test did.
    pub(super) fn leave_out(&mut self, own: SelfTestFilter) {
        self.own = own;
    }

    /// Keeps what was read to be told first.
    pub(super) fn keep(&mut self, batch: Batch) {
        self.early.extend(batch);
    }

    /// Tells what the rings hold, until `stop`. Gives back what was counted.
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

    /// Returns when there are records, or something is due.
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
            let (batch, empty) = self.turn();
            feed.send(batch).await?;
            if empty {
                return Ok(());
            }
        }
    }

    /// One turn at the rings; true if nothing was left in them, and then a watermark may be the batch's last.
    pub(super) fn turn(&mut self) -> (Batch, bool) {
        let before = clock::now();
        let empty = turn(&mut self.lifecycle.ring, &mut self.bulk.ring, &mut self.copies, &mut self.records);
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

    /// The rest, and how much was lost of it; nothing is read after that, so the watermark needs no slack.
    async fn finish(&mut self, feed: &BatchSender) {
        let caught_up = self.catch_up(feed).await;
        let now = clock::now();
        let mut last = Batch::new();
        self.count(now, &mut last);
        if let Err(Closed) = caught_up {
            return;
        }
        last.push(Observation { at: now, origin: Origin::Agent, fact: Fact::Watermark });
        // If the agent is gone, nobody is left to be told so.
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
