//! The page that the agent shares with its hooks, and leaves to the next agent: when it last read, and what
//! it has reported.

use std::{
    io,
    mem::offset_of,
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use nix::time::{ClockId, clock_gettime};
use probe_common::reader_page::Reader;

use super::{MAX_UNREAD, ring_map::Mapping, support::page_size};
use crate::model::time::Timestamp;

#[derive(Clone)]
pub(crate) struct ReaderPage(Arc<Mapping>);

impl ReaderPage {
    /// Maps `READER`. Its value is at the beginning of a page.
    pub(super) fn new(map: BorrowedFd<'_>) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        Ok(Self(Arc::new(Mapping::new(map, page_size() as usize, 0, access)?)))
    }

    /// Records that an agent reads now.
    pub(crate) fn reads(&self) {
        self.word(offset_of!(Reader, read_at)).store(monotonic(), Ordering::Relaxed);
    }

    /// Returns how long ago an agent last read. A suspend of the node does not count.
    pub(super) fn unread_for(&self) -> Duration {
        let read_at = self.word(offset_of!(Reader, read_at)).load(Ordering::Relaxed);
        Duration::from_nanos(monotonic().saturating_sub(read_at))
    }

    /// Returns when the hooks stopped, if no agent has read for [`MAX_UNREAD`], or when they would stop.
    pub(crate) fn silent_since(&self, now: Timestamp) -> Timestamp {
        now.saturating_sub(self.unread_for()) + MAX_UNREAD
    }

    /// Records that all events up to this number were reported.
    pub(crate) fn tell(&self, seq: u64) {
        self.word(offset_of!(Reader, told)).store(seq, Ordering::Release);
    }

    /// Returns the number of the last event that was reported; 0 if none was.
    pub(crate) fn told(&self) -> u64 {
        self.word(offset_of!(Reader, told)).load(Ordering::Acquire)
    }

    /// Records that the hooks report what happens from now on.
    pub(crate) fn begin(&self, since: Timestamp) {
        self.word(offset_of!(Reader, since)).store(since.0, Ordering::Relaxed);
    }

    pub(crate) fn since(&self) -> Timestamp {
        Timestamp(self.word(offset_of!(Reader, since)).load(Ordering::Relaxed))
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        self.0.word(offset)
    }
}

/// Returns the hooks' `bpf_ktime_get_ns`.
fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
