//! Polls the rings once: reads a bounded number of records, the lifecycle ring before the bulk ring.

use std::ops::Deref;

use bytes::Bytes;

use super::{RingMap, record_buffer::RecordBuffer};

/// Gives records one at a time, the oldest first.
pub(super) trait Records {
    /// `None` if there is no record, or if the oldest is still being written; a wakeup follows then.
    fn next(&mut self) -> Option<impl Deref<Target = [u8]>>;
}

impl Records for RingMap {
    fn next(&mut self) -> Option<impl Deref<Target = [u8]>> {
        Self::next(self)
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
    out: &mut Vec<Bytes>,
) -> bool {
    let first = take(lifecycle, LIFECYCLE, copies, out);
    let second = take(bulk, BULK, copies, out);
    first && second
}

fn take(ring: &mut impl Records, most: usize, copies: &mut RecordBuffer, out: &mut Vec<Bytes>) -> bool {
    for _ in 0..most {
        match ring.next() {
            Some(record) => out.push(copies.copy(&record)),
            None => return true,
        }
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
        assert_eq!(out[0], [3][..]);
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
