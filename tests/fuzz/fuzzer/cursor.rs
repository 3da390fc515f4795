//! Decisions from the bytes of an input. Once they are used up, every decision is the first one.

use std::time::Duration;

pub(super) struct Cursor<'a>(&'a [u8]);

/// Spans after which the engine does something else.
const SPANS: [Duration; 12] = [
    Duration::ZERO,
    Duration::from_nanos(1),
    Duration::from_millis(1),
    Duration::from_millis(50),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(10),
    Duration::from_secs(31),
    Duration::from_secs(61),
    Duration::from_secs(20 * 60),
    Duration::from_secs(24 * 60 * 60),
    Duration::from_secs(100 * 365 * 24 * 60 * 60),
];

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Returns a number below `end`, which is not zero.
    pub(super) fn below(&mut self, end: usize) -> usize {
        let high = if end > usize::from(u8::MAX) { self.byte() } else { 0 };
        usize::from(u16::from_be_bytes([high, self.byte()])) % end
    }

    pub(super) fn span(&mut self) -> Duration {
        SPANS[self.below(SPANS.len())]
    }
}
