//! An entry: when it was written, and where its fields are.

use super::object::{Object, long};
use crate::source::{host::ReadError, message::Window};

const ENTRY: u8 = 3;
/// The header, sequence number, both times, the boot and a hash.
const ITEMS: usize = 64;
/// Fields of an entry looked at: journald adds some thirty to what a program gave.
const FIELDS: usize = 256;

/// The time of an entry, and its fields if it is of the window.
pub(super) fn read(
    object: &Object,
    is_compact: bool,
    window: Window,
) -> Result<(u64, Option<Vec<u64>>), ReadError> {
    if object.kind != ENTRY {
        return Err(ReadError::Malformed);
    }
    let time = long(&object.bytes, 24).ok_or(ReadError::Malformed)?;
    if !window.has(time) {
        return Ok((time, None));
    }
    let items = object.bytes.get(ITEMS..).ok_or(ReadError::Malformed)?;
    // A COMPACT entry leaves the hash out that stands behind each offset.
    let width = if is_compact { 4 } else { 16 };
    Ok((time, Some(offsets(items, width).take(FIELDS).collect())))
}

/// The time alone.
pub(super) fn time(object: &Object) -> Result<u64, ReadError> {
    long(&object.bytes, 24).filter(|_| object.kind == ENTRY).ok_or(ReadError::Malformed)
}

/// The offsets that begin every so many bytes.
pub(super) fn offsets(items: &[u8], width: usize) -> impl Iterator<Item = u64> {
    items.chunks_exact(width).map(|item| match item.first_chunk() {
        Some(wide) => u64::from_le_bytes(*wide),
        None => item.first_chunk().map_or(0, |narrow| u64::from(u32::from_le_bytes(*narrow))),
    })
}
