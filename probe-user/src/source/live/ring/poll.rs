//! Polls the rings once: reads a bounded number of records, the lifecycle ring before the bulk ring.

use std::{ops::Deref, time::Duration};

use bytes::Bytes;
use probe_common::tally::Ring;
use tokio::time::Instant;

use super::{RingMap, record_buffer::RecordBuffer};

/// A record that was taken from a ring.
#[derive(Clone, Debug)]
pub(in super::super) struct Taken {
    pub bytes: Bytes,
    pub ring: Ring,
    /// The position in the ring after it.
    pub after: u64,
}

/// A ring that returns records one at a time, the oldest first.
pub(super) trait Records {
    /// Returns the next record; `None` if there is none, or if the oldest is still being written: then a
    /// wakeup follows.
    fn next(&mut self) -> Option<impl Deref<Target = [u8]>>;

    /// Returns the position after the last record that was returned.
    fn position(&self) -> u64;
}

impl Records for RingMap {
    fn next(&mut self) -> Option<impl Deref<Target = [u8]>> {
        Self::next(self)
    }

    fn position(&self) -> u64 {
        Self::position(self)
    }
}

/// The most records of the lifecycle ring in one poll: more than arrive during a poll.
const MAX_LIFECYCLE: usize = 2048;

/// The most records of the bulk ring before the lifecycle ring is read again.
const MAX_BULK: usize = 256;

/// Which rings a poll has read to their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Emptied {
    pub lifecycle: bool,
    pub bulk: bool,
}

impl Emptied {
    pub(in super::super) fn both(self) -> bool {
        self.lifecycle && self.bulk
    }
}

/// How long the bulk ring may hold the watermark back. Containers that fill it faster than it is read would
/// hold back everything that the lifecycle ring reports; instead, later records of the bulk ring are reported
/// late.
const BULK_PATIENCE: Duration = Duration::from_secs(1);

/// The longest time between two polls that counts. If it was longer, this program mostly did not run, and
/// read nothing.
const BETWEEN_POLLS: Duration = Duration::from_millis(100);

/// How long the bulk ring was not read to its end.
#[derive(Debug, Default)]
pub(super) struct BulkPatience {
    behind: Duration,
    /// The last poll, if it left records in the bulk ring.
    polled: Option<Instant>,
}

impl BulkPatience {
    /// Returns whether the watermark may move to the time before a poll that ended like this at `now`.
    pub(super) fn lets_pass(&mut self, emptied: Emptied, now: Instant) -> bool {
        if emptied.bulk {
            *self = Self::default();
            return emptied.lifecycle;
        }
        let last = self.polled.replace(now).unwrap_or(now);
        self.behind += (now - last).min(BETWEEN_POLLS);
        emptied.lifecycle && self.behind >= BULK_PATIENCE
    }
}

/// Reads the records of one poll, the bulk ring after the lifecycle ring.
pub(super) fn poll_batch(
    lifecycle: &mut impl Records,
    bulk: &mut impl Records,
    copies: &mut RecordBuffer,
    out: &mut Vec<Taken>,
) -> Emptied {
    let lifecycle = take((Ring::Lifecycle, lifecycle), MAX_LIFECYCLE, copies, out);
    let bulk = take((Ring::Bulk, bulk), MAX_BULK, copies, out);
    Emptied { lifecycle, bulk }
}

fn take(
    (ring, records): (Ring, &mut impl Records),
    most: usize,
    copies: &mut RecordBuffer,
    out: &mut Vec<Taken>,
) -> bool {
    for _ in 0..most {
        let Some(bytes) = records.next().map(|record| copies.copy(&record)) else { return true };
        out.push(Taken { bytes, ring, after: records.position() });
    }
    false
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, ops::Deref, time::Duration};

    use tokio::time::Instant;

    use super::{
        BETWEEN_POLLS, BULK_PATIENCE, BulkPatience, Emptied, MAX_BULK, MAX_LIFECYCLE, RecordBuffer, Records,
        poll_batch,
    };

    impl Records for VecDeque<Vec<u8>> {
        fn next(&mut self) -> Option<impl Deref<Target = [u8]>> {
            self.pop_front()
        }

        fn position(&self) -> u64 {
            0
        }
    }

    fn ring(len: usize, byte: u8) -> VecDeque<Vec<u8>> {
        std::iter::repeat_n(vec![byte], len).collect()
    }

    #[test]
    fn the_lifecycle_ring_waits_for_a_part_of_the_bulk_ring_at_most() {
        let (mut lifecycle, mut bulk) = (ring(2, 1), ring(3 * MAX_BULK, 2));
        let (mut copies, mut out) = (RecordBuffer::default(), Vec::new());
        let emptied = poll_batch(&mut lifecycle, &mut bulk, &mut copies, &mut out);
        assert_eq!(emptied, Emptied { lifecycle: true, bulk: false });
        assert_eq!(out.len(), 2 + MAX_BULK);
        lifecycle.push_back(vec![3]);
        out.clear();
        assert!(!poll_batch(&mut lifecycle, &mut bulk, &mut copies, &mut out).both());
        assert_eq!(out[0].bytes, [3][..]);
    }

    #[test]
    fn a_turn_is_bounded_and_says_when_there_is_nothing_left() {
        let (mut lifecycle, mut bulk) = (ring(MAX_LIFECYCLE + 1, 1), ring(0, 2));
        let (mut copies, mut out) = (RecordBuffer::default(), Vec::new());
        assert!(!poll_batch(&mut lifecycle, &mut bulk, &mut copies, &mut out).both());
        assert_eq!(out.len(), MAX_LIFECYCLE);
        assert!(poll_batch(&mut lifecycle, &mut bulk, &mut copies, &mut out).both());
        assert_eq!(out.len(), MAX_LIFECYCLE + 1);
    }

    #[test]
    fn a_bulk_ring_that_is_never_empty_holds_the_watermark_back_for_a_while_only() {
        let (mut patience, begin) = (BulkPatience::default(), Instant::now());
        let mut lets_pass =
            |lifecycle, bulk, after: Duration| patience.lets_pass(Emptied { lifecycle, bulk }, begin + after);
        let moment = Duration::from_millis(1);
        assert!(lets_pass(true, true, Duration::ZERO));
        for polls in 0..10 {
            assert!(!lets_pass(true, false, moment + polls * BETWEEN_POLLS), "{polls}");
        }
        assert!(lets_pass(true, false, BULK_PATIENCE + moment));
        assert!(!lets_pass(false, false, BULK_PATIENCE * 2), "lifecycle records are always waited for");
        assert!(!lets_pass(false, true, BULK_PATIENCE * 3));
        assert!(!lets_pass(true, false, BULK_PATIENCE * 4), "it was empty in between");
    }

    #[test]
    fn a_program_that_does_not_run_waits_for_nothing() {
        let (mut patience, begin) = (BulkPatience::default(), Instant::now());
        for after in [Duration::ZERO, BULK_PATIENCE * 10, BULK_PATIENCE * 20] {
            assert!(
                !patience.lets_pass(Emptied { lifecycle: true, bulk: false }, begin + after),
                "{after:?}"
            );
        }
    }
}
