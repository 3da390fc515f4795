//! Parses an entry: its time, and the offsets of its fields.

use super::object::{Object, long};
use crate::source::{host::ReadError, logs::plugin_log::Window};

const ENTRY: u8 = 3;
/// The bytes of the header, sequence number, both times, the boot id and a hash.
const ITEMS: usize = 64;
/// The most fields of an entry that are read. journald adds some thirty to the program's own.
const MAX_FIELDS: usize = 256;

/// Returns the time of an entry, and its fields if the time is in the window.
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
    // A COMPACT entry has no hash after each offset.
    let width = if is_compact { 4 } else { 16 };
    Ok((time, Some(offsets(items, width).take(MAX_FIELDS).collect())))
}

/// Returns only the time of an entry.
pub(super) fn time(object: &Object) -> Result<u64, ReadError> {
    if object.kind != ENTRY {
        return Err(ReadError::Malformed);
    }
    long(&object.bytes, 24).ok_or(ReadError::Malformed)
}

/// Returns the offsets at every `width` bytes.
pub(super) fn offsets(items: &[u8], width: usize) -> impl Iterator<Item = u64> {
    items.chunks_exact(width).map(|item| match item.first_chunk() {
        Some(wide) => u64::from_le_bytes(*wide),
        None => item.first_chunk().map_or(0, |narrow| u64::from(u32::from_le_bytes(*narrow))),
    })
}
