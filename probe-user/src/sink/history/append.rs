//! Appends lines to a file, each completely or not at all: a line that a full disk cut off is removed again.

use std::{
    fs::File,
    io::{self, Write},
};

/// The file that is written to.
pub(super) trait End: Write {
    /// Truncates it to this length.
    fn cut(&mut self, len: u64) -> io::Result<()>;

    /// Returns once the written data survives a power loss.
    fn settle(&mut self) -> io::Result<()>;
}

impl End for File {
    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }

    fn settle(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// A file, and the length of its complete lines.
#[derive(Debug)]
pub(super) struct Lines<E> {
    to: E,
    /// `None` once a failed write could not be removed, so that the length is unknown.
    len: Option<u64>,
    /// The last line has no newline, because a failed write could not be removed.
    torn: bool,
}

impl<E: End> Lines<E> {
    /// `torn`: the last line has no newline.
    pub(super) fn new(to: E, len: u64, torn: bool) -> Self {
        Self { to, len: Some(len), torn }
    }

    /// The file.
    pub(super) fn end(&self) -> &E {
        &self.to
    }

    /// Appends `line`, which ends with a newline.
    pub(super) fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.torn {
            self.put(b"\n")?;
            self.torn = false;
        }
        self.put(line)?;
        self.to.settle()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = self.to.write_all(bytes).and_then(|()| self.to.flush());
        match written {
            Ok(()) => self.len = self.len.map(|len| len + bytes.len() as u64),
            Err(_) => {
                // If the length were wrong, a complete line would be removed.
                self.torn = self.len.is_none_or(|len| self.to.cut(len).is_err());
                self.len = self.len.filter(|_| !self.torn);
            }
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};

    use super::{End, Lines};

    /// A disk with this much room.
    struct Disk {
        bytes: Vec<u8>,
        room: usize,
        cuts: bool,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = bytes.len().min(self.room - self.bytes.len());
            self.bytes.extend(&bytes[..n]);
            if n == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(n) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl End for Disk {
        fn cut(&mut self, len: u64) -> io::Result<()> {
            if !self.cuts {
                return Err(io::ErrorKind::ReadOnlyFilesystem.into());
            }
            self.bytes.truncate(usize::try_from(len).expect("short"));
            Ok(())
        }

        fn settle(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// However little room there is, each accepted line is complete, also after there is room again.
    #[test]
    fn a_full_disk_costs_the_line_that_found_no_room() {
        for cuts in [true, false] {
            for room in 0..16 {
                let disk = Disk { bytes: b"one\n".to_vec(), room: 4 + room, cuts };
                let mut lines = Lines::new(disk, 4, false);
                let taken = ["two\n", "three\n"].map(|line| (line, lines.append(line.as_bytes()).is_ok()));
                lines.to.room = 1 << 10;
                lines.append(b"four\n").expect("room");
                let text = String::from_utf8(lines.to.bytes).expect("text");
                for (line, _) in taken.iter().filter(|(_, is_taken)| *is_taken) {
                    assert!(text.split_inclusive('\n').any(|it| it == *line), "{room} {text:?}");
                }
                assert!(text.starts_with("one\n") && text.ends_with("\nfour\n"), "{room} {text:?}");
                let whole = taken.iter().filter(|(_, is_taken)| *is_taken).count() + 2;
                assert!(!cuts || whole == text.lines().count(), "{room} {text:?}");
            }
        }
    }

    #[test]
    fn what_could_not_be_cut_off_once_costs_no_line_later() {
        let mut lines = Lines::new(Disk { bytes: b"one\n".to_vec(), room: 7, cuts: false }, 4, false);
        lines.append(b"two\n").expect_err("no room");
        (lines.to.room, lines.to.cuts) = (14, true);
        lines.append(b"three\n").expect("room");
        lines.to.room = 16;
        lines.append(b"four\n").expect_err("no room");
        lines.to.room = 1 << 10;
        lines.append(b"five\n").expect("room");
        assert_eq!(lines.to.bytes, b"one\ntwo\nthree\nfo\nfive\n");
    }

    #[test]
    fn what_was_torn_before_stays_a_line_of_its_own() {
        let disk = Disk { bytes: b"one\ntw".to_vec(), room: 100, cuts: true };
        let mut lines = Lines::new(disk, 6, true);
        lines.append(b"three\n").expect("room");
        assert_eq!(lines.to.bytes, b"one\ntw\nthree\n");
    }
}
