//! Reads the rings: turns the kernel's records into observations, in batches, with a watermark whenever both
//! rings are empty.
//!
//! **Invariant:** the watermark is never ahead of what was read. It is the time before the poll in which both
//! rings were empty, minus a slack; a bulk ring that stays non-empty holds it back for at most a second. A
//! hook takes its time stamp first, then gathers its record, and only then reserves room in a ring. A record
//! that is reserved but not yet submitted makes a ring look empty.
//!
//! **Invariant:** without records there is a wakeup every five minutes, and one for each source that waits
//! for earlier records (`records_first`). After the last record there are only the wakeups that move the
//! watermark past it and read the counters once more, and those until its room is freed.

mod bulk_budget;
mod earlier;
mod poll;
mod record_buffer;
pub(super) mod selftest_filter;
mod takeover;
mod watermark;

use std::{io, mem::offset_of, os::fd::AsFd as _, sync::Arc, time::Duration};

use probe_common::event::{Header, URGENT};
use tokio::{
    sync::{Notify, watch},
    time::{self, Instant},
};
use tracing::{debug, warn};

use self::{
    bulk_budget::BulkBudget,
    earlier::Times,
    poll::{BulkPatience, Emptied, Taken, poll_batch},
    record_buffer::RecordBuffer,
    selftest_filter::SelfTestFilter,
    watermark::WatermarkTimer,
};
use super::{
    attach::{HeldRoom, Pinning, Probe, ReaderPage, RingMap},
    tally::Totals,
};
use crate::{
    engine::decode::decode,
    model::{
        fact::{Fact, Loss, Observation, Origin, RingsRead},
        time::Timestamp,
    },
    source::{
        node::clock,
        task::{
            channel::{Batch, BatchSender, CancellationToken, Closed},
            ready::Ready,
            records_first::{RecordsFirst, Teller, records_first},
        },
    },
};

/// The size of an agent's bulk ring in bytes: half a second of execs outside of containers, at full speed.
/// All of a ring counts as this process's memory.
pub(crate) const BULK_BYTES: u32 = 2 << 20;
/// The longest time from a hook's time stamp until its record is readable, with some allowance for a virtual
/// CPU that is paused in between. A record that takes longer is reported late, not lost.
pub const SLACK: Duration = Duration::from_millis(5);

/// How often the counters are read while records come.
const TALLY_PERIOD: Duration = Duration::from_secs(1);

/// How long to wait for more records before the rings are read, if no record in them is urgent. The rings
/// have room for hundreds of such periods.
const GATHER: Duration = Duration::from_millis(25);

/// How many polls are made before the reader checks whether it should stop.
const MAX_POLLS: u32 = 16;

/// The most polls at the beginning and at the end: enough to read full rings, but bounded if records come
/// faster than they are read.
const MAX_LAST_POLLS: u32 = 512;

/// How often the reader page is updated. It must be less than [`MAX_UNREAD`](super::attach::MAX_UNREAD):
/// then the hooks would stop.
const READ_PERIOD: Duration = Duration::from_secs(5 * 60);

/// The hooks and their rings. The hooks stay attached as long as this lives.
pub struct RingReader {
    probe: Probe,
    lifecycle: Watched,
    bulk: Watched,
    buffer: RecordBuffer,
    records: Vec<Taken>,
    /// Recognizes the self-test's own events, which are not reported.
    own: SelfTestFilter,
    /// Records that were read during the self-test, before the agent receives any.
    early: Vec<Taken>,
    /// How far the rings were read, and which losses were reported.
    read: RingsRead,
    /// The position that was reported last; `None` if records free their room when they are read.
    reported: Option<RingsRead>,
    /// Frees the room of records, until the agent takes it.
    held: Option<HeldRings>,
    /// Room was freed, so there may be records for which the kernel did not wake the reader.
    given_back: Arc<Notify>,
    /// Reports progress to sources that list what exists: they wait for earlier records.
    teller: Teller,
    listings: RecordsFirst,
    /// How far the rings were read before this reader.
    begins: RingsRead,
    /// When to update the reader page again.
    read_due: Instant,
    /// If the hooks had stopped before the last update of the reader page, since when.
    silent: Timestamp,
    /// The latest counters, for metrics.
    totals: watch::Sender<Totals>,
    mark: WatermarkTimer,
    bulk_patience: BulkPatience,
    bulk_budget: BulkBudget,
    /// When to move the watermark.
    mark_due: Option<Instant>,
    /// When to poll for records for which the kernel does not wake the reader.
    poll_due: Option<Instant>,
    /// When the counters were last read.
    counted_at: Instant,
    /// When to read the counters, if records came since they were last read.
    tally_due: Option<Instant>,
    /// The failure to read the counters was logged. They are read every second, so it is logged once.
    warned: bool,
}

/// Why the rings should be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// There are records.
    Records,
    /// It is time, or a source waits for the records.
    Due,
}

/// Frees the room of records, once their results are saved.
pub(crate) struct HeldRings {
    lifecycle: HeldRoom,
    bulk: HeldRoom,
    given_back: Arc<Notify>,
}

impl HeldRings {
    pub(crate) fn give_back(&self, read: &RingsRead) {
        self.lifecycle.give_back(read.lifecycle.position);
        self.bulk.give_back(read.bulk.position);
        self.given_back.notify_one();
    }
}

/// The rings were already taken, or the runtime cannot watch them.
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
    /// Makes a reader. Must be called within a tokio runtime.
    pub fn new(mut probe: Probe, slack: Duration) -> Result<Self, DrainError> {
        let begins = probe.begins();
        let rings = probe.take_rings().ok_or(DrainError::Taken)?;
        let read = RingsRead { hooks: begins.hooks, since: begins.since, ..RingsRead::default() };
        let mut lifecycle = Watched::new(rings.lifecycle)?;
        let mut bulk = Watched::new(rings.bulk)?;
        let given_back = Arc::default();
        // The next agent reads the records that this one did not save.
        let is_pinned = matches!(probe.pinning(), Pinning::Pinned { .. });
        let (teller, listings) = records_first(slack);
        let held = is_pinned.then(|| HeldRings {
            lifecycle: lifecycle.ring.hold(),
            bulk: bulk.ring.hold(),
            given_back: Arc::clone(&given_back),
        });
        Ok(Self {
            probe,
            lifecycle,
            bulk,
            buffer: RecordBuffer::default(),
            records: Vec::new(),
            own: SelfTestFilter::default(),
            early: Vec::new(),
            read,
            reported: held.is_some().then(RingsRead::default),
            held,
            given_back,
            teller,
            listings,
            begins,
            read_due: Instant::now() + READ_PERIOD,
            silent: Timestamp::ZERO,
            totals: watch::Sender::default(),
            mark: WatermarkTimer::new(slack),
            bulk_patience: BulkPatience::default(),
            bulk_budget: BulkBudget::new(Instant::now()),
            mark_due: None,
            poll_due: None,
            counted_at: Instant::now(),
            tally_due: None,
            warned: false,
        })
    }

    #[must_use]
    pub(crate) fn probe(&self) -> &Probe {
        &self.probe
    }

    /// Returns the counters as last read: within a second of any record.
    #[must_use]
    pub fn totals(&self) -> watch::Receiver<Totals> {
        self.totals.subscribe()
    }

    /// Lets a source wait for earlier records.
    #[must_use]
    pub(crate) fn listings(&self) -> RecordsFirst {
        self.listings.clone()
    }

    /// Returns the page that the agent shares with the hooks.
    pub(crate) fn page(&self) -> &ReaderPage {
        self.probe.page()
    }

    /// Returns whether a next agent may read these rings.
    pub(crate) fn is_pinned(&self) -> bool {
        matches!(self.probe.pinning(), Pinning::Pinned { .. })
    }

    /// Takes the value that frees the room of records; `None` if records free their room when they are read,
    /// because no agent can follow.
    pub(crate) fn take_held(&mut self) -> Option<HeldRings> {
        self.held.take()
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
        let read = self.read;
        for first in self.begin(Some(read), &mut []) {
            if let Err(Closed) = feed.send(first).await {
                return Ok(());
            }
        }
        loop {
            let Ok(emptied) = self.catch_up(feed, MAX_POLLS).await else { return Ok(()) };
            tokio::select! {
                biased;
                () = stop.requested() => return Ok(()),
                gathered = self.gather(emptied) => gathered?,
            }
        }
    }

    /// Returns when the rings should be read: more records follow the first within moments, and one reading
    /// serves them all.
    async fn gather(&self, emptied: Emptied) -> io::Result<()> {
        if !emptied.both() {
            return Ok(());
        }
        let mut until = None;
        loop {
            let woken = tokio::select! {
                woken = self.wait() => woken?,
                () = sleep_until(until) => return Ok(()),
            };
            if woken == Woken::Due || self.has_urgent() {
                return Ok(());
            }
            until.get_or_insert_with(|| Instant::now() + GATHER);
        }
    }

    fn has_urgent(&self) -> bool {
        self.lifecycle.ring.words(offset_of!(Header, kind)).any(|kind| kind == URGENT)
    }

    /// Returns when there are records, or when something is due.
    pub(super) async fn wait(&self) -> io::Result<Woken> {
        let dues = [self.mark_due, self.poll_due, self.tally_due, Some(self.read_due)];
        let due = dues.into_iter().flatten().min();
        tokio::select! {
            woken = self.lifecycle.wait() => woken.map(|()| Woken::Records),
            woken = self.bulk.wait() => woken.map(|()| Woken::Records),
            () = self.given_back.notified() => Ok(Woken::Due),
            () = self.teller.wanted() => Ok(Woken::Due),
            () = sleep_until(due) => Ok(Woken::Due),
        }
    }

    /// Polls the rings until both are empty, but at most `most` times. Returns how the last poll ended.
    async fn catch_up(&mut self, feed: &BatchSender, most: u32) -> Result<Emptied, Closed> {
        let mut polls = 0;
        loop {
            let before = clock::now();
            let (batch, emptied, passed) = self.poll_once(before);
            feed.send(batch).await?;
            if passed {
                self.teller.told(before);
            }
            polls += 1;
            if emptied.both() || polls == most {
                return Ok(emptied);
            }
        }
    }

    /// Polls the rings once, at the time `before`. The flag is true if all earlier records that the watermark
    /// waits for were read; then the batch may end with a watermark.
    fn poll_once(&mut self, before: Timestamp) -> (Batch, Emptied, bool) {
        let emptied =
            poll_batch(&mut self.lifecycle.ring, &mut self.bulk.ring, &mut self.buffer, &mut self.records);
        if self.read_due <= Instant::now() {
            self.silent = self.probe.page().silent_since(before);
            self.probe.page().reads();
            self.read_due = Instant::now() + READ_PERIOD;
        }
        // While room is held, new records may find no room although all were read; so the counters are read
        // once more when the room is freed.
        let may_have_lost = !self.records.is_empty() || self.poll_due.is_some();
        if may_have_lost && self.tally_due.is_none() {
            self.tally_due = Some(Instant::now() + TALLY_PERIOD);
        }
        let mut batch = self.decode(before);
        // Nothing may be concluded from records that waited until it is known whether others were lost.
        let waiting_since = earlier::waiting_since(&batch, before);
        let was_paused = waiting_since.is_some() && self.counted_at.elapsed() > TALLY_PERIOD;
        if was_paused || self.tally_due.is_some_and(|due| due <= Instant::now()) {
            self.tally_due = None;
            self.count(before, waiting_since, &mut batch);
        }
        self.report_end(before, &mut batch);
        let is_held = self.lifecycle.ring.holds_room() || self.bulk.ring.holds_room();
        // The kernel then wakes the reader only for urgent records.
        self.poll_due = is_held.then(|| Instant::now() + GATHER);
        // A poll that finds nothing does not wake the engine.
        let is_news = !batch.is_empty() || !is_held || self.mark.due(before).is_some();
        let passed = self.bulk_patience.lets_pass(emptied, Instant::now());
        if passed && is_news {
            if let Some(at) = self.mark.advance(before) {
                batch.push(Observation { at, origin: Origin::Agent, fact: Fact::Watermark });
            }
            // While room is held, the next poll moves the watermark.
            let span = if is_held { None } else { self.mark.due(before) };
            self.mark_due = span.map(|span| Instant::now() + span);
        }
        (batch, emptied, passed)
    }

    /// Polls the rings once, for the self-test.
    pub(super) fn take_once(&mut self) -> (Vec<Taken>, Emptied) {
        let mut records = Vec::new();
        let emptied =
            poll_batch(&mut self.lifecycle.ring, &mut self.bulk.ring, &mut self.buffer, &mut records);
        (records, emptied)
    }

    /// Reports that the rings were read up to their positions now, if the position is needed.
    fn report_end(&mut self, at: Timestamp, batch: &mut Batch) {
        self.read.lifecycle.position = self.lifecycle.ring.position();
        self.read.bulk.position = self.bulk_budget.position(self.bulk.ring.position());
        self.report_position(at, batch);
    }

    /// Reports how far the rings were read, if the position is needed and has changed.
    fn report_position(&mut self, at: Timestamp, batch: &mut Batch) {
        if self.reported.is_some_and(|reported| reported != self.read) {
            self.reported = Some(self.read);
            batch.push(Observation { at, origin: Origin::Agent, fact: Fact::RingsRead(self.read) });
        }
    }

    fn decode(&mut self, now: Timestamp) -> Batch {
        let mut batch = Batch::with_capacity(self.records.len() + 1);
        if let Some(count) = self.bulk_budget.renew(Instant::now()) {
            batch.push(lost(now, Loss::BulkRing, count));
        }
        let mut unreadable = 0;
        let read = clock::now();
        for record in self.records.drain(..) {
            if !self.bulk_budget.takes(&record) {
                continue;
            }
            match decode(&record.bytes) {
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

    /// Reads the counters, and adds what was lost since `since`, or just now.
    fn count(&mut self, now: Timestamp, since: Option<Timestamp>, batch: &mut Batch) {
        self.counted_at = Instant::now();
        match self.probe.totals() {
            Ok(totals) => {
                let times = Times { silent: self.silent, since, now };
                earlier::report_losses(&totals, &mut self.read, times, batch);
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

    /// Sends the remaining records, and how many were lost. Nothing is read after that, so the watermark
    /// needs no slack.
    async fn finish(&mut self, feed: &BatchSender) {
        if self.reported.is_some() {
            // Wait for records stamped before the stop: the watermark is behind by as much.
            time::sleep(SLACK).await;
        }
        let caught_up = self.catch_up(feed, MAX_LAST_POLLS).await;
        let now = clock::now();
        let mut last = Batch::new();
        self.count(now, None, &mut last);
        if let Some(count) = self.bulk_budget.end() {
            last.push(lost(now, Loss::BulkRing, count));
        }
        if let Err(Closed) = caught_up {
            return;
        }
        self.report_end(now, &mut last);
        // Records that hooks stamp now are for the next agent, if there can be one.
        let at = if self.reported.is_some() { now.saturating_sub(SLACK) } else { now };
        last.push(Observation { at, origin: Origin::Agent, fact: Fact::Watermark });
        // If the agent is gone, the batch is not needed.
        feed.send(last).await.ok();
    }
}

fn away(at: Timestamp, since: Timestamp) -> Observation {
    Observation { at, origin: Origin::Agent, fact: Fact::AgentAway { since } }
}

fn lost(at: Timestamp, what: Loss, count: u64) -> Observation {
    Observation { at, origin: Origin::Agent, fact: Fact::Lost { what, count, since: None } }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
