//! Polls the rings once: reads a bounded number of records, the lifecycle ring before the bulk ring.

use std::ops::Deref;

use bytes::Bytes;
use probe_common::tally::Ring;

use super::{RingMap, record_buffer::RecordBuffer};

/// A record that was taken from a ring.
#[derive(Clone, Debug)]
pub(in super::super) struct Taken {
    pub bytes: Bytes,
    pub ring: Ring,
    /// The position in the ring after it.
    pub after: u64,
}

/// Gives records one at a time, the oldest first.
pub(super) trait Records {
    /// `None` if there is no record, or if the oldest is still being written; a wakeup follows then.
    fn next(&mut self) -> Option<impl Deref<Target = [u8]>>;

    /// The position after the last record that was given.
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
const LIFECYCLE: usize = 2048;

/// The most records of the bulk ring before the lifecycle ring is read again.
const BULK: usize = 256;

/// Reads the records of one poll; true if both rings were empty, the second after the first.
pub(super) fn poll_batch(
    lifecycle: &mut impl Records,
    bulk: &mut impl Records,
    copies: &mut RecordBuffer,
    out: &mut Vec<Taken>,
) -> bool {
    let first = take((Ring::Lifecycle, lifecycle), LIFECYCLE, copies, out);
    let second = take((Ring::Bulk, bulk), BULK, copies, out);
    first && second
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
    use std::{collections::VecDeque, ops::Deref};

    use super::{BULK, LIFECYCLE, RecordBuffer, Records, poll_batch};

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
        let (mut lifecycle, mut bulk) = (ring(2, 1), ring(3 * BULK, 2));
        let (mut copies, mut out) = (RecordBuffer::default(), Vec::new());
        assert!(!poll_batch(&mut lifecycle, &mut bulk, &mut copies, &mut out));
        assert_eq!(out.len(), 2 + BULK);
        lifecycle.push_back(vec![3]);
        out.clear();
        assert!(!poll_batch(&mut lifecycle, &mut bulk, &mut copies, &mut out));
        assert_eq!(out[0].bytes, [3][..]);
    }

    #[test]
    fn a_turn_is_bounded_and_says_when_there_is_nothing_left() {
        let (mut lifecycle, mut bulk) = (ring(LIFECYCLE + 1, 1), ring(0, 2));
        let (mut copies, mut out) = (RecordBuffer::default(), Vec::new());
        assert!(!poll_batch(&mut lifecycle, &mut bulk, &mut copies, &mut out));
        assert_eq!(out.len(), LIFECYCLE);
        assert!(poll_batch(&mut lifecycle, &mut bulk, &mut copies, &mut out));
        assert_eq!(out.len(), LIFECYCLE + 1);
    }
}
