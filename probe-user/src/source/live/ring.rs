//! Reads the rings: turns the kernel's records into observations, in batches, with a watermark whenever both rings
//! are empty.
//!
//! **Invariant:** the watermark is never ahead of what was read. It is the time before the poll in which both rings
//! were empty, minus a slack; a bulk ring that is not empty for a second holds it back no longer. A hook takes its time
//! stamp first, then gathers its record, and only then reserves room in a ring. A record that is reserved but not yet
//! submitted makes a ring look empty.
//!
//! **Invariant:** without records there is a wakeup every five minutes, beside those of whoever asks for the records of before
//! (`records_first`). After the last record there are only the wakeups that move the watermark past it and read the counters
//! once more, and those until its room is given back.

mod bulk_budget;
mod earlier;
mod poll;
mod record_buffer;
pub(super) mod selftest_filter;
mod succession;
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
        channel::{Batch, BatchSender, CancellationToken, Closed},
        clock,
        ready::Ready,
        records_first::{RecordsFirst, Teller, records_first},
    },
};

/// The size of an agent's bulk ring in bytes: half a second of execs outside of containers, at full speed. All of a ring counts
/// as this process's memory.
pub(crate) const BULK_BYTES: u32 = 2 << 20;
/// The longest time from a hook's time stamp until its record is readable, with some allowance for a virtual CPU that
/// is paused in between. A record that takes longer is told late, not lost.
pub const SLACK: Duration = Duration::from_millis(5);

/// How often the counters are read while records come.
const TALLY_PERIOD: Duration = Duration::from_secs(1);

/// How long to wait for more records before the rings are read, if none of those that are there is urgent. They hold what
/// comes in hundreds of times as long.
const GATHER: Duration = Duration::from_millis(25);

/// How often the rings are polled before the reader looks whether it is to stop.
const TURNS: u32 = 16;

/// How often they are polled at the beginning and at the end: enough for all that full rings hold, and not for ever where more comes than is read.
const LAST_TURNS: u32 = 512;

/// How often the hooks are told that they are read: within [`PATIENCE`](super::attach::PATIENCE), after which they would
/// stop.
const READ_PERIOD: Duration = Duration::from_secs(5 * 60);

/// The hooks and their rings. The hooks stay attached as long as this lives.
pub struct RingReader {
    probe: Probe,
    lifecycle: Watched,
    bulk: Watched,
    buffer: RecordBuffer,
    records: Vec<Taken>,
    /// Recognizes the self-test's own events, which are not told.
    own: SelfTestFilter,
    /// Records that were read during the self-test, before the agent listens.
    early: Vec<Taken>,
    /// How far the rings were read, and which losses were told.
    read: RingsRead,
    /// The position that was told last, if whoever takes the batches gives the room of records back.
    told: Option<RingsRead>,
    /// Gives the room of records back, until the agent takes it.
    held: Option<HeldRings>,
    /// Room was given back, so there may be records for which the kernel woke nobody.
    given_back: Arc<Notify>,
    /// Sources that list what exists wait for the records of before.
    teller: Teller,
    listings: RecordsFirst,
    /// How far the rings were read before this reader.
    begins: RingsRead,
    /// When to tell the hooks again that they are read.
    read_due: Instant,
    /// If the hooks did nothing before they were last told that, since when.
    silent: Timestamp,
    /// The latest counters, for metrics.
    totals: watch::Sender<Totals>,
    mark: WatermarkTimer,
    bulk_patience: BulkPatience,
    bulk_budget: BulkBudget,
    /// When to move the watermark.
    mark_due: Option<Instant>,
    /// When to look for records for which the kernel wakes nobody.
    look_due: Option<Instant>,
    /// When to read the counters, if records came since they were last read.
    tally_due: Option<Instant>,
    /// The failure to read them was logged. They are read every second, so it is logged once.
    warned: bool,
}

/// Why the rings are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// There are records.
    Records,
    /// It is time, or somebody waits for what is there.
    Due,
}

/// Gives the room of records back, once what they led to is safe.
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
        let begins = probe.begins();
        let rings = probe.take_rings().ok_or(DrainError::Taken)?;
        let read = RingsRead { hooks: begins.hooks, since: begins.since, ..RingsRead::default() };
        let (mut lifecycle, mut bulk) = (Watched::new(rings.lifecycle)?, Watched::new(rings.bulk)?);
        let given_back = Arc::default();
        // The next agent reads what this one did not keep.
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
            told: held.is_some().then(RingsRead::default),
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
            look_due: None,
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

    /// By which a source waits for the records of before.
    #[must_use]
    pub(crate) fn listings(&self) -> RecordsFirst {
        self.listings.clone()
    }

    /// What the agent shares with the hooks.
    pub(crate) fn page(&self) -> &ReaderPage {
        self.probe.page()
    }

    /// Whether a next agent may read these rings.
    pub(crate) fn is_pinned(&self) -> bool {
        matches!(self.probe.pinning(), Pinning::Pinned { .. })
    }

    /// Gives the room of records back; `None` if that is done when they are read, since no agent can follow.
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
            let Ok(emptied) = self.catch_up(feed, TURNS).await else { return Ok(()) };
            tokio::select! {
                biased;
                () = stop.requested() => return Ok(()),
                gathered = self.gather(emptied) => gathered?,
            }
        }
    }

    /// Returns when the rings are to be read: more records follow the first within moments, and one reading serves them all.
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
        let dues = [self.mark_due, self.look_due, self.tally_due, Some(self.read_due)];
        let due = dues.into_iter().flatten().min();
        tokio::select! {
            woken = self.lifecycle.wait() => woken.map(|()| Woken::Records),
            woken = self.bulk.wait() => woken.map(|()| Woken::Records),
            () = self.given_back.notified() => Ok(Woken::Due),
            () = self.teller.wanted() => Ok(Woken::Due),
            () = sleep_until(due) => Ok(Woken::Due),
        }
    }

    /// Polls the rings until both are empty, and a bounded number of times. Gives how the last poll ended.
    async fn catch_up(&mut self, feed: &BatchSender, most: u32) -> Result<Emptied, Closed> {
        let mut turns = 0;
        loop {
            let before = clock::now();
            let (batch, emptied, passed) = self.poll_once(before);
            feed.send(batch).await?;
            if passed {
                self.teller.told(before);
            }
            turns += 1;
            if emptied.both() || turns == most {
                return Ok(emptied);
            }
        }
    }

    /// Polls the rings once, at the time `before`. The flag is true if all of before was read that is waited for; then the batch
    /// may end with a watermark.
    fn poll_once(&mut self, before: Timestamp) -> (Batch, Emptied, bool) {
        let emptied =
            poll_batch(&mut self.lifecycle.ring, &mut self.bulk.ring, &mut self.buffer, &mut self.records);
        if self.read_due <= Instant::now() {
            self.silent = self.probe.page().silent_since(before);
            self.probe.page().reads();
            self.read_due = Instant::now() + READ_PERIOD;
        }
        // While room is held, records may find none although none is left to read, and once more when it is given back.
        let may_have_lost = !self.records.is_empty() || self.look_due.is_some();
        if may_have_lost && self.tally_due.is_none() {
            self.tally_due = Some(Instant::now() + TALLY_PERIOD);
        }
        let mut batch = self.decode(before);
        if self.tally_due.is_some_and(|due| due <= Instant::now()) {
            self.tally_due = None;
            self.count(before, &mut batch);
        }
        self.tell_end(before, &mut batch);
        let is_held = self.lifecycle.ring.holds_room() || self.bulk.ring.holds_room();
        // The kernel wakes nobody then, except for what is urgent.
        self.look_due = is_held.then(|| Instant::now() + GATHER);
        // A look that finds nothing wakes nobody else.
        let is_news = !batch.is_empty() || !is_held || self.mark.due(before).is_some();
        let passed = self.bulk_patience.lets_pass(emptied, Instant::now());
        if passed && is_news {
            if let Some(at) = self.mark.advance(before) {
                batch.push(Observation { at, origin: Origin::Agent, fact: Fact::Watermark });
            }
            // A look that comes anyway moves it as well.
            self.mark_due = self.mark.due(before).filter(|_| !is_held).map(|span| Instant::now() + span);
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

    /// Tells that all was read that the rings gave, if somebody needs that.
    fn tell_end(&mut self, at: Timestamp, batch: &mut Batch) {
        self.read.lifecycle.position = self.lifecycle.ring.position();
        self.read.bulk.position = self.bulk_budget.position(self.bulk.ring.position());
        self.tell_position(at, batch);
    }

    /// Tells how far the rings were read, if somebody needs that and it has changed.
    fn tell_position(&mut self, at: Timestamp, batch: &mut Batch) {
        if self.told.is_some_and(|told| told != self.read) {
            self.told = Some(self.read);
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

    fn count(&mut self, now: Timestamp, batch: &mut Batch) {
        match self.probe.totals() {
            Ok(totals) => {
                earlier::tell_losses(&totals, &mut self.read, self.silent, now, batch);
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
        if self.told.is_some() {
            // So that all is told that happened before the end was asked for: the watermark stays behind by as much.
            time::sleep(SLACK).await;
        }
        let caught_up = self.catch_up(feed, LAST_TURNS).await;
        let now = clock::now();
        let mut last = Batch::new();
        self.count(now, &mut last);
        if let Some(count) = self.bulk_budget.end() {
            last.push(lost(now, Loss::BulkRing, count));
        }
        if let Err(Closed) = caught_up {
            return;
        }
        self.tell_end(now, &mut last);
        // What hooks stamp now is for the next agent, if there can be one.
        let at = if self.told.is_some() { now.saturating_sub(SLACK) } else { now };
        last.push(Observation { at, origin: Origin::Agent, fact: Fact::Watermark });
        // If the agent is gone, nobody needs it.
        feed.send(last).await.ok();
    }
}

fn away(at: Timestamp, since: Timestamp) -> Observation {
    Observation { at, origin: Origin::Agent, fact: Fact::AgentAway { since } }
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
