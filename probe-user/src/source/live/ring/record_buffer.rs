//! A buffer for records, so that a ring's room is free again before its records are decoded.

use bytes::{Buf as _, Bytes, BytesMut};

/// Copies records into one allocation, which is reused once all records in it were dropped.
#[derive(Debug, Default)]
pub(super) struct RecordBuffer {
    buffer: BytesMut,
}

/// Room for some hundred records.
const CHUNK: usize = 64 << 10;

/// Records are aligned to this in a ring, and are read in place.
const ALIGN: usize = 8;

impl RecordBuffer {
    pub(super) fn copy(&mut self, record: &[u8]) -> Bytes {
        let room = record.len() + ALIGN;
        if self.buffer.capacity() < room {
            self.buffer.reserve(room.max(CHUNK));
        }
        let skipped = self.buffer.as_ptr().align_offset(ALIGN).min(ALIGN);
        self.buffer.resize(skipped, 0);
        self.buffer.extend_from_slice(record);
        let mut copy = self.buffer.split();
        copy.advance(skipped);
        copy.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::{ALIGN, RecordBuffer};

    #[test]
    fn a_copy_is_aligned_whatever_came_before() {
        let mut copies = RecordBuffer::default();
        let records: Vec<Vec<u8>> = (0_u8..=255).map(|len| vec![len; usize::from(len) * 7]).collect();
        let copied: Vec<_> = records.iter().map(|record| copies.copy(record)).collect();
        for (record, copy) in records.iter().zip(&copied) {
            assert_eq!(copy, record);
            assert_eq!(copy.as_ptr().align_offset(ALIGN), 0);
        }
    }

    #[test]
    fn the_room_is_used_again_once_the_copies_are_gone() {
        let mut copies = RecordBuffer::default();
        drop(copies.copy(&[1; 100]));
        let room = copies.buffer.capacity();
        for _ in 0..10_000 {
            drop(copies.copy(&[2; 100]));
        }
        assert!(copies.buffer.capacity() <= room + 2 * ALIGN);
    }
}
