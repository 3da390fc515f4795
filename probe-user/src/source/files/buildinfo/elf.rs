//! Finds the two strings of Go's linker in an ELF file: the Go version and the modules.
//!
//! `.go.buildinfo` begins with 14 bytes of magic, the pointer size and flags, padded to 32 bytes. Since Go
//! 1.18 the two strings follow, each after its length as a varint. Before, byte 16 has two pointers, each to
//! a string header (address, length) in a segment.

use std::{
    cell::Cell,
    io::{Read, Seek},
    ops::Range,
};

use object::{
    LittleEndian, ReadCache, ReadRef,
    elf::{ELFCLASS64, ELFDATA2LSB, ELFMAG, FileHeader64, PT_LOAD, ProgramHeader64},
    read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _},
};

use super::Unknown;

const MAGIC: &[u8] = b"\xff Go buildinf:";
const HEADER: usize = 32;
/// The length of Go's sentinel before and after the modules.
const FENCE: usize = 16;
/// How much is read of one file in all, bytes. A kubelet's modules are 30 KB, and it has 30 sections.
const BUDGET: u64 = 4 << 20;
/// The most that `object` reads of a section's name.
const NAME: u64 = 4096;

const BIG_ENDIAN: u8 = 1;
const INLINE: u8 = 2;

/// The two strings as they are in the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) go: String,
    pub(super) modules: String,
}

pub(super) fn read(executable: impl Read + Seek) -> Result<Found, Unknown> {
    let data = &Bounded { cache: ReadCache::new(executable), left: Cell::new(BUDGET) };
    let ident = data.read_bytes_at(0, 16).map_err(|()| Unknown::NotElf)?;
    if !ident.starts_with(&ELFMAG) {
        return Err(Unknown::NotElf);
    }
    if ident[4] != ELFCLASS64 {
        return Err(Unknown::Narrow);
    }
    if ident[5] != ELFDATA2LSB {
        return Err(Unknown::BigEndian);
    }
    let header = FileHeader64::<LittleEndian>::parse(data).map_err(malformed)?;
    let sections = header.sections(LittleEndian, data).map_err(malformed)?;
    let (_, section) = sections.section_by_name(LittleEndian, b".go.buildinfo").ok_or(Unknown::NotGo)?;
    let info = section.data(LittleEndian, data).map_err(malformed)?;
    if !info.starts_with(MAGIC) || info.len() < HEADER {
        return Err(Unknown::Malformed(".go.buildinfo is"));
    }
    let flags = info[15];
    if flags & INLINE != 0 {
        return inline(&info[HEADER..]).ok_or(Unknown::Malformed(".go.buildinfo is"));
    }
    if flags & BIG_ENDIAN != 0 {
        return Err(Unknown::BigEndian);
    }
    if info[14] != 8 {
        return Err(Unknown::Narrow);
    }
    let segments = header.program_headers(LittleEndian, data).map_err(malformed)?;
    let go = pointed(data, segments, info, 16).ok_or(Unknown::Malformed("pointer to the version is"))?;
    // Without modules the pointer is null.
    let modules = pointed(data, segments, info, 24).and_then(fenced).unwrap_or_default();
    Ok(Found { go: text(go), modules })
}

fn malformed(_why: object::Error) -> Unknown {
    Unknown::Malformed("ELF headers are")
}

fn inline(info: &[u8]) -> Option<Found> {
    let (go, rest) = counted(info)?;
    let (modules, _) = counted(rest)?;
    Some(Found { go: text(go), modules: fenced(modules).unwrap_or_default() })
}

/// Returns the string after its length, and the bytes after the string.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut length = 0_u64;
    for (at, byte) in bytes.iter().enumerate().take(9) {
        length |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return bytes[at + 1..].split_at_checked(usize::try_from(length).ok()?);
        }
    }
    None
}

/// Returns the string to whose header byte `at` of `info` has a pointer.
fn pointed<'a, R: Read + Seek>(
    data: &'a Bounded<R>,
    segments: &[ProgramHeader64<LittleEndian>],
    info: &[u8],
    at: usize,
) -> Option<&'a [u8]> {
    let header = mapped(data, segments, word(info, at)?, 16)?;
    mapped(data, segments, word(header, 0)?, word(header, 8)?)
}

/// Returns the bytes of the file for a range of addresses.
fn mapped<'a, R: Read + Seek>(
    data: &'a Bounded<R>,
    segments: &[ProgramHeader64<LittleEndian>],
    address: u64,
    size: u64,
) -> Option<&'a [u8]> {
    let end = address.checked_add(size)?;
    segments.iter().filter(|segment| segment.p_type(LittleEndian) == PT_LOAD).find_map(|segment| {
        let start = segment.p_vaddr(LittleEndian);
        let offset = segment.p_offset(LittleEndian);
        let within = start <= address && end <= start.checked_add(segment.p_filesz(LittleEndian))?;
        let at = offset.checked_add(address.checked_sub(start)?)?;
        if within { data.read_bytes_at(at, size).ok() } else { None }
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// Returns the lines between the two sentinels. The byte before the second one ends the last line.
fn fenced(bytes: &[u8]) -> Option<String> {
    let lines = bytes.get(FENCE..bytes.len().checked_sub(FENCE)?)?;
    lines.ends_with(b"\n").then(|| text(lines))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A file with a bound on the bytes that may still be read.
struct Bounded<R: Read + Seek> {
    cache: ReadCache<R>,
    left: Cell<u64>,
}

impl<R: Read + Seek> Bounded<R> {
    fn take(&self, size: u64) -> Result<(), ()> {
        self.left.set(self.left.get().checked_sub(size).ok_or(())?);
        Ok(())
    }
}

impl<'a, R: Read + Seek> ReadRef<'a> for &'a Bounded<R> {
    fn len(self) -> Result<u64, ()> {
        (&self.cache).len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.take(size)?;
        self.cache.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        self.take(NAME)?;
        self.cache.read_bytes_at_until(range, delimiter)
    }
}
