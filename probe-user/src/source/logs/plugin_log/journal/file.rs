//! Reads one journal file: from its header through the arrays of entries to the messages.
//!
//! Numbers are little-endian, and objects begin at multiples of 8. The entries' offsets are in arrays, each
//! of which links to the next. The last array has room for further entries. The offsets in a COMPACT file are
//! half as wide.

use std::{cell::Cell, collections::BTreeMap, fs::File, os::unix::fs::FileExt as _};

use super::{
    data::{self, Datum},
    entry,
    object::{Object, long},
    sender::{Sender, Signs},
};
use crate::source::{
    host::ReadError,
    logs::plugin_log::{Line, Place, Window},
};

const SIGNATURE: &[u8] = b"LPKSHHRH";
/// The header up to `tail_entry_monotonic`, which every version has.
const HEADER: usize = 208;

const COMPRESSED_XZ: u32 = 1;
const COMPRESSED_LZ4: u32 = 2;
const KEYED_HASH: u32 = 4;
const COMPRESSED_ZSTD: u32 = 8;
const COMPACT: u32 = 16;
const KNOWN: u32 = COMPRESSED_XZ | COMPRESSED_LZ4 | KEYED_HASH | COMPRESSED_ZSTD | COMPACT;

const ENTRY_ARRAY: u8 = 6;
/// The most arrays that are read. Each array is twice as long as the previous one.
const MAX_ARRAYS: usize = 64;
/// The most entries of a file that are read, the newest first. journald's files end at 128 MB, some 200,000
/// entries.
const MAX_ENTRIES: usize = 1 << 19;
/// The search ends after this many entries in a row that are older than the window. A clock that was set back
/// leaves few entries out of order, because journald then begins another file.
const MAX_OLDER: u32 = 256;
/// The most objects that are read of one file.
const MAX_OBJECTS: u32 = 1 << 20;
/// The bytes of an object that are read first. Few objects are larger.
const FIRST_READ_BYTES: usize = 1024;
/// The largest object that is read, bytes.
const MAX_OBJECT_BYTES: usize = 64 << 10;

pub(super) struct Journal {
    file: File,
    pub(super) is_compact: bool,
    header_size: u64,
    entries: u64,
    /// The offset of the items in the table of fields.
    pub(super) fields: u64,
    arrays: u64,
    head: u64,
    tail: u64,
    left: Cell<u32>,
}

impl Journal {
    pub(super) fn open(file: File) -> Result<Self, ReadError> {
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, 0)?;
        let incompatible =
            header[12..].first_chunk().copied().map(u32::from_le_bytes).ok_or(ReadError::Malformed)?;
        if !header.starts_with(SIGNATURE) || incompatible & !KNOWN != 0 {
            return Err(ReadError::Malformed);
        }
        Ok(Self {
            file,
            is_compact: incompatible & COMPACT != 0,
            header_size: number(&header, 88)?,
            entries: number(&header, 152)?,
            fields: number(&header, 120)?,
            arrays: number(&header, 176)?,
            head: number(&header, 184)?,
            tail: number(&header, 192)?,
            left: Cell::new(MAX_OBJECTS),
        })
    }

    /// Returns whether the file's time range overlaps the window.
    pub(super) fn may_have(&self, window: Window) -> bool {
        self.entries > 0 && self.head <= window.until && window.from <= self.tail
    }

    /// Reports each message of the window that such a program of the node logged, the newest first.
    pub(super) fn messages(
        &self,
        window: Window,
        sender: Sender,
        mut report: impl FnMut(Line<'_>),
    ) -> Result<(), ReadError> {
        // Entries share most of their fields.
        let mut known = BTreeMap::new();
        let mut skipped = Ok(());
        let mut older = 0;
        for at in self.entries()?.into_iter().rev() {
            if older > MAX_OLDER {
                break;
            }
            let read = self
                .object(at, MAX_OBJECT_BYTES)
                .and_then(|entry| entry::read(&entry, self.is_compact, window));
            // A broken entry does not hide the others.
            let (time, fields) = match read {
                Ok((time, Some(fields))) => (time, fields),
                Ok((time, None)) => {
                    older = if time < window.from { older + 1 } else { 0 };
                    continue;
                }
                Err(ReadError::TooMany(n)) => return Err(ReadError::TooMany(n)),
                Err(why) => {
                    skipped = Err(why);
                    continue;
                }
            };
            let mut message = None;
            let mut signs = Signs::default();
            for field in fields {
                match self.field(field, &mut known) {
                    Ok(Datum::Message(text)) => message = Some(text),
                    Ok(Datum::Sender(sign)) => signs.add(sign),
                    Ok(Datum::Other) => {}
                    Err(why) => skipped = Err(why),
                }
            }
            if signs.are_of(sender)
                && let Some(message) = message
            {
                let is_from_kubelet = signs.is_from_kubelet;
                report(Line { place: Place::Journal, at: time, text: &message, is_from_kubelet });
            }
        }
        skipped
    }

    /// Returns the offsets of the entries, in the order of writing.
    fn entries(&self) -> Result<Vec<u64>, ReadError> {
        let mut found = Vec::new();
        let mut left = usize::try_from(self.entries).unwrap_or(usize::MAX);
        let mut at = self.arrays;
        for _ in 0..MAX_ARRAYS {
            if at == 0 || left == 0 {
                break;
            }
            let array = self.object(at, usize::MAX)?;
            if array.kind != ENTRY_ARRAY {
                return Err(ReadError::Malformed);
            }
            let items = array.bytes.get(24..).ok_or(ReadError::Malformed)?;
            let before = found.len();
            found.extend(entry::offsets(items, self.width()).take(left).take_while(|offset| *offset != 0));
            left -= found.len() - before;
            found.drain(..found.len().saturating_sub(MAX_ENTRIES));
            at = long(&array.bytes, 16).ok_or(ReadError::Malformed)?;
        }
        Ok(found)
    }

    /// Returns the size of an offset in an array, bytes.
    fn width(&self) -> usize {
        if self.is_compact { 4 } else { 8 }
    }

    fn field(&self, at: u64, known: &mut BTreeMap<u64, Datum>) -> Result<Datum, ReadError> {
        if let Some(datum) = known.get(&at) {
            return Ok(datum.clone());
        }
        let datum = match self.object(at, MAX_OBJECT_BYTES) {
            Ok(object) => data::read(&object, self.is_compact)?,
            // This may be a core dump; it is never a plugin's message.
            Err(ReadError::TooLarge(_)) => Datum::Other,
            Err(why) => return Err(why),
        };
        if !matches!(datum, Datum::Message(_)) {
            known.insert(at, datum.clone());
        }
        Ok(datum)
    }

    /// Reads the object at an offset, if it has at most `limit` bytes.
    pub(super) fn object(&self, at: u64, limit: usize) -> Result<Object, ReadError> {
        let left = self.left.get().checked_sub(1).ok_or(ReadError::TooMany(MAX_ENTRIES))?;
        self.left.set(left);
        if at < self.header_size || !at.is_multiple_of(8) {
            return Err(ReadError::Malformed);
        }
        let mut piece = [0; FIRST_READ_BYTES];
        let read = self.file.read_at(&mut piece, at)?;
        let size = long(&piece[..read], 8).and_then(|size| usize::try_from(size).ok());
        let size = size.filter(|size| *size >= 16).ok_or(ReadError::Malformed)?;
        // This is the size of the largest array that is needed.
        if size > limit.min(16 * MAX_ENTRIES) {
            return Err(ReadError::TooLarge(limit.min(16 * MAX_ENTRIES)));
        }
        let mut bytes = piece[..read.min(size)].to_vec();
        if bytes.len() < size {
            // The claimed bytes must exist before memory is allocated for them.
            let end = at.checked_add(u64::try_from(size).unwrap_or(u64::MAX)).ok_or(ReadError::Malformed)?;
            if self.file.metadata()?.len() < end {
                return Err(ReadError::Malformed);
            }
            bytes.resize(size, 0);
            self.file.read_exact_at(&mut bytes, at)?;
        }
        Ok(Object { kind: bytes[0], flags: bytes[1], bytes })
    }
}

/// Reads a number of the header.
fn number(header: &[u8; HEADER], at: usize) -> Result<u64, ReadError> {
    long(header, at).ok_or(ReadError::Malformed)
}
