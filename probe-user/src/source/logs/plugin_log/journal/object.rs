//! An object of a journal file: its kind, its flags, and its bytes.

/// An object, with its 16 bytes of header.
pub(super) struct Object {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) bytes: Vec<u8>,
}

/// Returns the 64-bit number at this offset.
pub(super) fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
}
