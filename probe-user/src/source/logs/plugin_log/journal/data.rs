//! A field of an entry: `NAME=value`, plain or compressed.

use std::io::Read as _;

use ruzstd::decoding::StreamingDecoder;

use super::{
    object::Object,
    sender::{Sign, sign},
};
use crate::source::host::ReadError;

const DATA: u8 = 1;
const XZ: u8 = 1;
const LZ4: u8 = 2;
const ZSTD: u8 = 4;
/// The bytes before the value: a header, a hash, five offsets and counts; a COMPACT file has eight more.
const HEAD: usize = 64;
const COMPACT_HEAD: usize = 72;
/// The most bytes of a compressed field that are read. journald splits a service's lines at 48 KiB.
const MAX_FIELD_BYTES: u64 = 128 << 10;
/// The zstd window at journald's compression level.
const MAX_WINDOW_BYTES: u64 = 8 << 20;

const MESSAGE: &[u8] = b"MESSAGE=";
const BOOT_ID: &[u8] = b"_BOOT_ID=";

/// The fields of an entry that are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Datum {
    Message(String),
    Sender(Sign),
    Other,
}

pub(super) fn read(object: &Object, is_compact: bool) -> Result<Datum, ReadError> {
    if object.kind != DATA {
        return Err(ReadError::Malformed);
    }
    let head = if is_compact { COMPACT_HEAD } else { HEAD };
    let stored = object.bytes.get(head..).ok_or(ReadError::Malformed)?;
    match object.flags & (XZ | LZ4 | ZSTD) {
        0 => Ok(datum(stored)),
        ZSTD => Ok(datum(&zstd(stored)?)),
        LZ4 => Ok(datum(&lz4(stored)?)),
        _ => Err(ReadError::Malformed),
    }
}

/// Returns the boot's id in a value of the field for it. The value is too short to be compressed.
pub(super) fn boot_id(object: &Object, is_compact: bool) -> Result<String, ReadError> {
    if object.kind != DATA || object.flags & (XZ | LZ4 | ZSTD) != 0 {
        return Err(ReadError::Malformed);
    }
    let head = if is_compact { COMPACT_HEAD } else { HEAD };
    let stored = object.bytes.get(head..).ok_or(ReadError::Malformed)?;
    let id = stored.strip_prefix(BOOT_ID);
    let id = id.filter(|id| id.len() == 32 && id.iter().all(u8::is_ascii_hexdigit));
    id.map(|id| String::from_utf8_lossy(id).into_owned()).ok_or(ReadError::Malformed)
}

fn datum(field: &[u8]) -> Datum {
    match field.strip_prefix(MESSAGE) {
        Some(message) => Datum::Message(String::from_utf8_lossy(message).into_owned()),
        None => sign(field).map_or(Datum::Other, Datum::Sender),
    }
}

fn zstd(stored: &[u8]) -> Result<Vec<u8>, ReadError> {
    let decoder = StreamingDecoder::new_with_max_window_size(stored, MAX_WINDOW_BYTES);
    let decoder = decoder.map_err(|_not_zstd| ReadError::Malformed)?;
    let mut field = Vec::new();
    // The wanted text is never beyond the bound.
    decoder.take(MAX_FIELD_BYTES).read_to_end(&mut field).map_err(|_not_zstd| ReadError::Malformed)?;
    Ok(field)
}

/// Decompresses a block that follows its decompressed size.
fn lz4(stored: &[u8]) -> Result<Vec<u8>, ReadError> {
    let (size, block) = stored.split_first_chunk().ok_or(ReadError::Malformed)?;
    let size = Some(u64::from_le_bytes(*size)).filter(|size| *size <= MAX_FIELD_BYTES);
    let size = size.and_then(|size| usize::try_from(size).ok()).ok_or(ReadError::Malformed)?;
    let mut field = vec![0; size];
    let written =
        lz4_flex::block::decompress_into(block, &mut field).map_err(|_not_lz4| ReadError::Malformed)?;
    field.truncate(written);
    Ok(field)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Datum, HEAD, Object, Sign, read};
    use crate::source::host::ReadError;

    fn field(flags: u8, stored: &[u8]) -> Result<Datum, ReadError> {
        let mut bytes = vec![0; HEAD];
        bytes.extend_from_slice(stored);
        read(&Object { kind: 1, flags, bytes }, false)
    }

    #[test]
    fn a_field_is_read_as_it_is_stored() {
        let message = |text: &str| Ok(Datum::Message(text.to_owned()));
        assert_eq!(field(0, b"MESSAGE=no address"), message("no address"));
        assert_eq!(field(0, b"MESSAGE_ID=1"), Ok(Datum::Other));
        assert_eq!(field(0, b"_COMM=kubelet"), Ok(Datum::Sender(Sign::Kubelet)));
        assert_eq!(field(0, b"_COMM=kubelet-wrapper"), Ok(Datum::Other));
        assert_eq!(field(0, b"_UID=0"), Ok(Datum::Sender(Sign::Root)));
        // Ten literals, a copy of four bytes from two bytes before, and five literals at the end.
        let mut lz4 = 19_u64.to_le_bytes().to_vec();
        lz4.extend_from_slice(b"\xa0MESSAGE=ab\x02\x00\x50abcde");
        assert_eq!(field(2, &lz4), message("ababababcde"));
        lz4[0..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(field(2, &lz4), Err(ReadError::Malformed));
        // xz, two compressions at once, and data that is not of the given compression.
        for flags in [1, 3, 6, 4, 2] {
            assert_eq!(field(flags, b"MESSAGE=x"), Err(ReadError::Malformed), "{flags}");
        }
        assert_eq!(read(&Object { kind: 3, flags: 0, bytes: vec![0; 80] }, false), Err(ReadError::Malformed));
    }

    proptest! {
        #[test]
        fn nothing_stored_does_harm(flags in 0_u8..8, stored: Vec<u8>) {
            let _either = field(flags, &stored);
            let _zstd = field(4, &[b"\x28\xb5\x2f\xfd".as_slice(), &stored].concat());
        }
    }
}
