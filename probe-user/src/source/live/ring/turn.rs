//! One turn at the rings: a bounded part of what is in them, the first ring before the second.

use std::ops::Deref;

use aya::maps::{MapData, RingBuf};
use bytes::Bytes;

use super::copy::RecordBuffer;

/// What gives out records one at a time, oldest first.
pub(super) trait Records {
    /// `None`: there is none, or the oldest is still being written, for which a wakeup follows.
    fn next(&mut self) -> Option<impl Deref<Target = [u8]>>;
}

impl Records for RingBuf<MapData> {
    fn next(&mut self) -> Option<impl Deref<Target = [u8]>> {
        Self::next(self)
    }
}

/// Records of the lifecycle ring in one turn: more than come in the time of a turn.
const LIFECYCLE: usize = 2048;

/// Records of the bulk ring before the lifecycle ring is looked at again.
const BULK: usize = 256;

/// Takes one turn's records; true if both rings were found empty, the second after the first.
pub(super) fn turn(
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

    use super::{BULK, LIFECYCLE, RecordBuffer, Records, turn};

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
        assert!(!turn(&mut lifecycle, &mut bulk, &mut copies, &mut out));
        assert_eq!(out.len(), 2 + BULK);
        lifecycle.push_back(vec![3]);
        out.clear();
        assert!(!turn(&mut lifecycle, &mut bulk, &mut copies, &mut out));
        assert_eq!(out[0], [3][..]);
    }

    #[test]
    fn a_turn_is_bounded_and_says_when_there_is_nothing_left() {
        let (mut lifecycle, mut bulk) = (ring(LIFECYCLE + 1, 1), ring(0, 2));
        let (mut copies, mut out) = (RecordBuffer::default(), Vec::new());
        assert!(!turn(&mut lifecycle, &mut bulk, &mut copies, &mut out));
        assert_eq!(out.len(), LIFECYCLE);
        assert!(turn(&mut lifecycle, &mut bulk, &mut copies, &mut out));
        assert_eq!(out.len(), LIFECYCLE + 1);
    }
}
