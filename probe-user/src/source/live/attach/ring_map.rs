//! A ring buffer of the kernel, mapped to be read.
//!
//! The kernel can map a ring's data twice, one after the other, so that a record which wraps around can be
//! read in one piece. All of a mapping counts as memory of this process, so the data is mapped once here, and
//! such a record is copied to a buffer.
//!
//! A record's room is freed when the record is dropped, or, after [`RingMap::hold`] was called, when the
//! holder frees it. Then the records that a reader had when it died are still in the ring, for the next
//! reader.
//!
//! **Invariant:** values in the mapping are checked before they are used: a wrong length ends the reading,
//! and nothing outside of the ring is read.

use std::{
    io, iter, mem,
    ops::Deref,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    ptr::{self, NonNull},
    slice,
    sync::{
        Arc,
        atomic::{self, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
};

use super::support::page_size;

/// The reading end of a ring.
pub struct RingMap {
    fd: OwnedFd,
    /// One page, which begins with the position up to which records were read.
    consumer: Arc<Mapping>,
    /// One page, which begins with the position up to which the kernel has reserved room; then the data.
    data: Mapping,
    page: usize,
    /// The size of the data: a power of two.
    size: usize,
    /// The position up to which records were read. Positions only grow, and are taken modulo the size.
    read: usize,
    /// The read position has moved since the ring was last seen empty.
    has_moved: bool,
    /// A [`HeldRoom`] frees the room of records that were read.
    is_held: bool,
    /// A record that wraps around.
    joined: Vec<u8>,
}

/// A record. Its room in the ring is free again when this is dropped, unless the room is held.
pub struct Record<'a> {
    bytes: &'a [u8],
    /// The reader's position in the mapping; `None` if the room is held.
    consumer: Option<&'a AtomicUsize>,
    /// The position after this record.
    after: usize,
}

/// Frees the room of records that were read.
pub(crate) struct HeldRoom(Arc<Mapping>);

impl HeldRoom {
    /// Frees the room of all records before this position. The ring must be read once more after this: the
    /// kernel did not wake the reader for earlier records. Room that was freed stays free.
    pub(crate) fn give_back(&self, position: u64) {
        if let Ok(position) = usize::try_from(position) {
            self.0.position().fetch_max(position, Ordering::AcqRel);
            // Either the reader, which reads after this, sees a new record, or the kernel sees this position.
            atomic::fence(Ordering::SeqCst);
        }
    }
}

/// `BPF_RINGBUF_BUSY_BIT`: the record is still being written.
const BUSY: u32 = 1 << 31;
/// `BPF_RINGBUF_DISCARD_BIT`: the record was given up.
const DISCARDED: u32 = 1 << 30;
/// The size of a record's header. Its first word has the length and the bits above.
const HEADER: usize = 8;
/// Records begin at a multiple of this.
const ALIGN: usize = 8;

impl RingMap {
    /// Maps a ring. `size` is the size of the data in bytes.
    pub(super) fn new(fd: BorrowedFd<'_>, size: u32) -> io::Result<Self> {
        let page = page_size() as usize;
        let size = size as usize;
        if !size.is_power_of_two() || size % page != 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it has {size} bytes")));
        }
        let fd = fd.try_clone_to_owned()?;
        let consumer = Mapping::new(fd.as_fd(), page, 0, libc::PROT_READ | libc::PROT_WRITE)?;
        let consumer = Arc::new(consumer);
        let data = Mapping::new(fd.as_fd(), page + size, page, libc::PROT_READ)?;
        let read = consumer.position().load(Ordering::Acquire);
        Ok(Self {
            fd,
            consumer,
            data,
            page,
            size,
            read,
            has_moved: false,
            is_held: false,
            joined: Vec::new(),
        })
    }

    /// Holds the room of records that are read from now on. Only the returned value frees it.
    pub(crate) fn hold(&mut self) -> HeldRoom {
        self.is_held = true;
        HeldRoom(Arc::clone(&self.consumer))
    }

    /// Returns the position after the last record that was read, in bytes since the ring was made.
    #[must_use]
    pub(crate) fn position(&self) -> u64 {
        self.read as u64
    }

    /// Returns whether room of records that were read is held. The kernel then wakes the reader only for
    /// urgent new records.
    pub(crate) fn holds_room(&self) -> bool {
        self.is_held && self.consumer.position().load(Ordering::Acquire) != self.read
    }

    /// Returns the oldest record. `None` if there is none, or if it is still being written: then the
    /// descriptor becomes readable once it is complete.
    #[expect(clippy::should_implement_trait, reason = "a record borrows the ring")]
    pub fn next(&mut self) -> Option<Record<'_>> {
        let len = self.next_len()?;
        let at = self.offset(self.read, HEADER);
        let after = after(self.read, len);
        let in_one_piece = at + len <= self.size;
        if !in_one_piece {
            let end = self.size - at;
            let beginning = len - end;
            self.joined.clear();
            self.joined.extend_from_slice(self.data.bytes(self.page + at, end));
            self.joined.extend_from_slice(self.data.bytes(self.page, beginning));
        }
        self.read = after;
        self.has_moved = true;
        let bytes = if in_one_piece { self.data.bytes(self.page + at, len) } else { &self.joined };
        let consumer = (!self.is_held).then(|| self.consumer.position());
        Some(Record { bytes, consumer, after })
    }

    /// Returns the length of the oldest record, if it is complete. Skips discarded records before it.
    fn next_len(&mut self) -> Option<usize> {
        loop {
            let Some(header) = self.header_at(self.read).filter(|header| header & BUSY == 0) else {
                if !mem::take(&mut self.has_moved) {
                    return None;
                }
                // The kernel wakes a reader that has read everything earlier. After this fence either the
                // reader sees the new record, or the kernel sees the reader's new position.
                atomic::fence(Ordering::SeqCst);
                continue;
            };
            let len = (header & !DISCARDED) as usize;
            if len > self.size - HEADER {
                return None;
            }
            if header & DISCARDED == 0 {
                return Some(len);
            }
            self.read = after(self.read, len);
            self.has_moved = true;
            if !self.is_held {
                self.consumer.position().store(self.read, Ordering::Release);
            }
        }
    }

    /// Returns the word at this byte of each record that is complete and not read yet, up to one that is
    /// still being written. `byte` is even, so that no word wraps around.
    pub(crate) fn words(&self, byte: usize) -> impl Iterator<Item = u16> {
        let mut at = self.read;
        iter::from_fn(move || {
            loop {
                let header = self.header_at(at).filter(|header| header & BUSY == 0)?;
                let len = (header & !DISCARDED) as usize;
                let word = self.offset(at, HEADER + byte);
                if len > self.size - HEADER {
                    return None;
                }
                at = after(at, len);
                let word = self.data.bytes(self.page + word, size_of::<u16>());
                if header & DISCARDED == 0 && byte + word.len() <= len {
                    return word.try_into().map(u16::from_ne_bytes).ok();
                }
            }
        })
    }

    /// Returns the first word of the record at this position; `None` if there is no record.
    fn header_at(&self, position: usize) -> Option<u32> {
        if self.data.position().load(Ordering::Acquire) == position {
            return None;
        }
        let word = self.data.bytes(self.page + self.offset(position, 0), size_of::<u32>()).as_ptr();
        // SAFETY: the word is within the mapping. It is aligned, because records begin at a multiple of 8.
        // The kernel writes it atomically.
        let word = unsafe { AtomicU32::from_ptr(word.cast_mut().cast()) };
        Some(word.load(Ordering::Acquire))
    }

    /// Returns where this byte of the record at this position is in the data.
    fn offset(&self, position: usize, byte: usize) -> usize {
        position.wrapping_add(byte) & (self.size - 1)
    }
}

/// Returns the position after the record of this length at this position.
fn after(position: usize, len: usize) -> usize {
    position.wrapping_add((HEADER + len).next_multiple_of(ALIGN))
}

impl AsFd for RingMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Deref for Record<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        if let Some(consumer) = self.consumer {
            consumer.store(self.after, Ordering::Release);
        }
    }
}

/// A part of a map in this process's memory. A ring's mapping begins with a position.
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to the process, and to this value alone.
unsafe impl Send for Mapping {}
// SAFETY: through a shared reference, positions are read and written atomically, and the rest is only read.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(super) fn new(
        fd: BorrowedFd<'_>,
        len: usize,
        offset: usize,
        access: libc::c_int,
    ) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: the kernel chooses a free range, so no other memory is replaced.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), len, access, libc::MAP_SHARED, fd.as_raw_fd(), offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { start, len })
    }

    fn position(&self) -> &AtomicUsize {
        // SAFETY: a mapping has at least one page and begins at a page. Both sides write the position
        // atomically. The reader writes only the position in its own writable mapping.
        unsafe { AtomicUsize::from_ptr(self.start.as_ptr().cast()) }
    }

    /// Returns a word of the mapping's first page.
    pub(super) fn word(&self, offset: usize) -> &AtomicU64 {
        let is_within = offset.is_multiple_of(size_of::<u64>()) && offset < page_size() as usize;
        assert!(is_within, "not a word of the first page");
        // SAFETY: a mapping has at least one page and begins at a page, and the word is aligned. Both sides
        // write words atomically.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    /// Returns a part of the mapping; empty if there is no such part.
    fn bytes(&self, at: usize, len: usize) -> &[u8] {
        if at.checked_add(len).is_none_or(|end| end > self.len) {
            return &[];
        }
        // SAFETY: it is within the mapping. The kernel writes to a complete record only after the reader's
        // position has passed it, and the position moves when the record is dropped.
        unsafe { slice::from_raw_parts(self.start.as_ptr().add(at), len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing borrows from it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsFd as _, os::unix::fs::FileExt as _};

    use super::{ALIGN, BUSY, DISCARDED, HEADER, RingMap, page_size};

    /// A file with the layout of a ring, to which the test writes as the kernel does.
    struct Writer {
        file: File,
        page: u64,
        size: u64,
        at: u64,
    }

    impl Writer {
        fn new() -> (Self, RingMap) {
            let (page, size) = (u64::from(page_size()), u64::from(page_size()));
            let file = tempfile::tempfile().expect("a file");
            file.set_len(2 * page + size).expect("room");
            let ring = RingMap::new(file.as_fd(), page_size()).expect("a ring");
            (Self { file, page, size, at: 0 }, ring)
        }

        /// Writes at a position of the data, modulo its size.
        fn put(&self, at: u64, bytes: &[u8]) {
            for (at, byte) in (at..).zip(bytes) {
                let place = 2 * self.page + at % self.size;
                self.file.write_all_at(&[*byte], place).expect("within the file");
            }
        }

        fn write(&mut self, record: &[u8], flags: u32) -> u64 {
            let header = u32::try_from(record.len()).expect("short") | flags;
            let begin = self.at;
            self.put(begin, &header.to_ne_bytes());
            self.put(begin + HEADER as u64, record);
            self.at += (HEADER + record.len()).next_multiple_of(ALIGN) as u64;
            self.file.write_all_at(&self.at.to_ne_bytes(), self.page).expect("within the file");
            begin
        }

        /// Returns the position that the reader has written.
        fn told(&self) -> u64 {
            let mut position = [0; 8];
            self.file.read_exact_at(&mut position, 0).expect("within the file");
            u64::from_ne_bytes(position)
        }
    }

    fn next(ring: &mut RingMap) -> Option<Vec<u8>> {
        ring.next().map(|record| record.to_vec())
    }

    #[test]
    fn records_come_in_order_and_their_room_is_given_back() {
        let (mut writer, mut ring) = Writer::new();
        assert_eq!(next(&mut ring), None);
        writer.write(b"one", 0);
        writer.write(b"given up", DISCARDED);
        writer.write(b"two", 0);
        assert_eq!(next(&mut ring).as_deref(), Some(&b"one"[..]));
        assert_eq!(writer.told(), 16);
        let record = ring.next().expect("the second");
        assert_eq!(&*record, b"two");
        assert_eq!(writer.told(), 32, "its room is not free as long as it is read");
        drop(record);
        assert_eq!(writer.told(), writer.at);
        assert_eq!(next(&mut ring), None);
    }

    /// The next reader finds records that were read and whose room was not freed.
    #[test]
    fn room_that_is_held_is_given_back_only_by_its_holder() {
        let (mut writer, mut ring) = Writer::new();
        let held = ring.hold();
        writer.write(b"one", 0);
        writer.write(b"given up", DISCARDED);
        writer.write(b"two", 0);
        assert_eq!(next(&mut ring).as_deref(), Some(&b"one"[..]));
        let after_one = ring.position();
        assert_eq!(next(&mut ring).as_deref(), Some(&b"two"[..]));
        assert_eq!((next(&mut ring), writer.told()), (None, 0));
        held.give_back(after_one);
        assert_eq!(writer.told(), after_one);
        assert!(ring.holds_room());
        // Otherwise the kernel would take the ring for full.
        held.give_back(0);
        assert_eq!(writer.told(), after_one);
        let mut later = RingMap::new(ring.as_fd(), page_size()).expect("a ring");
        assert_eq!(next(&mut later).as_deref(), Some(&b"two"[..]));
        held.give_back(ring.position());
        assert!(!ring.holds_room());
    }

    #[test]
    fn a_record_that_is_being_written_is_waited_for() {
        let (mut writer, mut ring) = Writer::new();
        let begin = writer.write(b"slow", BUSY);
        writer.write(b"fast", 0);
        assert_eq!(next(&mut ring), None);
        writer.put(begin, &4_u32.to_ne_bytes());
        assert_eq!(next(&mut ring).as_deref(), Some(&b"slow"[..]));
        assert_eq!(next(&mut ring).as_deref(), Some(&b"fast"[..]));
    }

    #[test]
    fn a_record_that_goes_on_at_the_beginning_is_whole() {
        let (mut writer, mut ring) = Writer::new();
        for round in 0_u8..=255 {
            let record: Vec<u8> = (0..1001).map(|byte: u16| round ^ byte.to_le_bytes()[0]).collect();
            writer.write(&record, 0);
            assert_eq!(next(&mut ring), Some(record), "round {round}");
            assert_eq!(writer.told(), writer.at);
        }
    }

    #[test]
    fn words_of_records_are_seen_before_they_are_read() {
        let (mut writer, mut ring) = Writer::new();
        let words = |ring: &RingMap| ring.words(2).map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
        // This is often enough that one of them wraps around.
        for _ in 0..300 {
            writer.write(b"..a1....", 0);
            writer.write(b"..b2", DISCARDED);
            writer.write(b"..", 0);
            writer.write(b"..c3", 0);
            let begin = writer.write(b"..d4", BUSY);
            assert_eq!(words(&ring), [*b"a1", *b"c3"]);
            writer.put(begin, &4_u32.to_ne_bytes());
            assert_eq!(words(&ring), [*b"a1", *b"c3", *b"d4"]);
            assert_eq!(next(&mut ring).as_deref(), Some(&b"..a1...."[..]));
            assert_eq!(words(&ring), [*b"c3", *b"d4"]);
            while next(&mut ring).is_some() {}
            assert_eq!(words(&ring), [[0; 2]; 0]);
        }
        let begin = writer.write(b"long", 0);
        writer.put(begin, &page_size().to_ne_bytes());
        assert_eq!(words(&ring), [[0; 2]; 0]);
    }

    #[test]
    fn a_record_longer_than_the_ring_is_not_read() {
        let (mut writer, mut ring) = Writer::new();
        let begin = writer.write(b"long", 0);
        writer.put(begin, &page_size().to_ne_bytes());
        assert_eq!(next(&mut ring), None);
    }
}
