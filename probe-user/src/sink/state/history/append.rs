//! Appends lines to a file, each completely or not at all: a line that a full disk cut off is removed again.

use std::{
    fs::File,
    io::{self, Write},
};

/// A file to which lines are appended.
pub(super) trait AppendFile: Write {
    /// Truncates the file to this length.
    fn truncate(&mut self, len: u64) -> io::Result<()>;

    /// Returns once the written data survives a power loss.
    fn sync(&mut self) -> io::Result<()>;
}

impl AppendFile for File {
    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// A file, and the length of its complete lines.
#[derive(Debug)]
pub(super) struct LineAppender<F> {
    file: F,
    /// `None` once a failed write could not be removed, so that the length is unknown.
    len: Option<u64>,
    /// The last line has no newline, because a failed write could not be removed.
    torn: bool,
}

impl<F: AppendFile> LineAppender<F> {
    /// `torn`: the last line has no newline.
    pub(super) fn new(file: F, len: u64, torn: bool) -> Self {
        Self { file, len: Some(len), torn }
    }

    pub(super) fn file(&self) -> &F {
        &self.file
    }

    /// Appends `line`, which ends with a newline.
    pub(super) fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.torn {
            self.put(b"\n")?;
            self.torn = false;
        }
        self.put(line)?;
        self.file.sync()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(bytes).and_then(|()| self.file.flush());
        match written {
            Ok(()) => self.len = self.len.map(|len| len + bytes.len() as u64),
            Err(_) => {
                // If the length were wrong, a complete line would be removed.
                self.torn = self.len.is_none_or(|len| self.file.truncate(len).is_err());
                if self.torn {
                    self.len = None;
                }
            }
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};

    use super::{AppendFile, LineAppender};

    /// A disk with `room` bytes.
    struct Disk {
        bytes: Vec<u8>,
        room: usize,
        can_truncate: bool,
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

    impl AppendFile for Disk {
        fn truncate(&mut self, len: u64) -> io::Result<()> {
            if !self.can_truncate {
                return Err(io::ErrorKind::ReadOnlyFilesystem.into());
            }
            self.bytes.truncate(usize::try_from(len).expect("short"));
            Ok(())
        }

        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Each accepted line is complete with any amount of room, also after there is room again.
    #[test]
    fn a_full_disk_costs_only_the_line_without_room() {
        for can_truncate in [true, false] {
            for room in 0..16 {
                let disk = Disk { bytes: b"one\n".to_vec(), room: 4 + room, can_truncate };
                let mut lines = LineAppender::new(disk, 4, false);
                let taken = ["two\n", "three\n"].map(|line| (line, lines.append(line.as_bytes()).is_ok()));
                lines.file.room = 1 << 10;
                lines.append(b"four\n").expect("room");
                let text = String::from_utf8(lines.file.bytes).expect("text");
                for (line, _) in taken.iter().filter(|(_, is_taken)| *is_taken) {
                    assert!(text.split_inclusive('\n').any(|it| it == *line), "{room} {text:?}");
                }
                assert!(text.starts_with("one\n") && text.ends_with("\nfour\n"), "{room} {text:?}");
                let whole = taken.iter().filter(|(_, is_taken)| *is_taken).count() + 2;
                assert!(!can_truncate || whole == text.lines().count(), "{room} {text:?}");
            }
        }
    }

    #[test]
    fn a_failed_truncation_costs_no_later_line() {
        let mut lines =
            LineAppender::new(Disk { bytes: b"one\n".to_vec(), room: 7, can_truncate: false }, 4, false);
        lines.append(b"two\n").expect_err("no room");
        (lines.file.room, lines.file.can_truncate) = (14, true);
        lines.append(b"three\n").expect("room");
        lines.file.room = 16;
        lines.append(b"four\n").expect_err("no room");
        lines.file.room = 1 << 10;
        lines.append(b"five\n").expect("room");
        assert_eq!(lines.file.bytes, b"one\ntwo\nthree\nfo\nfive\n");
    }

    #[test]
    fn a_line_that_was_torn_before_stays_a_separate_line() {
        let disk = Disk { bytes: b"one\ntw".to_vec(), room: 100, can_truncate: true };
        let mut lines = LineAppender::new(disk, 6, true);
        lines.append(b"three\n").expect("room");
        assert_eq!(lines.file.bytes, b"one\ntw\nthree\n");
    }
}
