//! Writes to standard error without waiting for its reader, for the agent. A line that cannot be written, as
//! on a full disk, is no error: it is dropped and counted.

use std::{
    io::{self, Write},
    os::fd::AsFd,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

static IS_ENABLED: AtomicBool = AtomicBool::new(false);
static STDERR: Outlet = Outlet::new();
/// A pipe that is writable has room for this many bytes (`PIPE_BUF`, pipe(7)).
const PIECE: usize = 4096;

/// From now on, writes to standard error do not wait.
pub(in crate::cli) fn enable() {
    IS_ENABLED.store(true, Ordering::Relaxed);
}

pub(super) fn is_enabled() -> bool {
    IS_ENABLED.load(Ordering::Relaxed)
}

/// Writes a line to standard error, or drops it if it cannot be written now.
pub(super) fn write(to: &mut io::StderrLock<'_>, line: &[u8]) {
    STDERR.write(to, line);
}

struct Outlet {
    /// How many lines were dropped since the last line that was written.
    dropped: AtomicU64,
    /// The last line was written only in part.
    is_torn: AtomicBool,
}

impl Outlet {
    const fn new() -> Self {
        Self { dropped: AtomicU64::new(0), is_torn: AtomicBool::new(false) }
    }

    fn write<W: Write + AsFd>(&self, to: &mut W, line: &[u8]) {
        let dropped = self.dropped.load(Ordering::Relaxed);
        let missed = match dropped {
            0 => String::new(),
            _ => format!(
                "sandprobe: {dropped} lines were not written here: nobody read them, or there was no room\n"
            ),
        };
        if self.put(to, missed.as_bytes()) {
            self.dropped.fetch_sub(dropped, Ordering::Relaxed);
            if self.put(to, line) {
                return;
            }
        }
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes the line, which begins on a line of its own. Returns whether all of it was written.
    fn put<W: Write + AsFd>(&self, to: &mut W, line: &[u8]) -> bool {
        if line.is_empty() {
            return true;
        }
        if self.is_torn.load(Ordering::Relaxed) {
            if write_some(to, b"\n") == 0 {
                return false;
            }
            self.is_torn.store(false, Ordering::Relaxed);
        }
        let mut rest = line;
        while !rest.is_empty() {
            let written = write_some(to, rest.get(..PIECE).unwrap_or(rest));
            if written == 0 {
                self.is_torn.store(rest.len() < line.len(), Ordering::Relaxed);
                return false;
            }
            rest = rest.get(written..).unwrap_or_default();
        }
        true
    }
}

/// Writes what there is room for, and returns how many bytes that was; zero if there is no room.
fn write_some<W: Write + AsFd>(to: &mut W, bytes: &[u8]) -> usize {
    loop {
        if !has_room(to) {
            return 0;
        }
        match to.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            written => return written.unwrap_or(0),
        }
    }
}

/// Whether a write returns at once. A file is always writable; a terminal or a pipe is while somebody reads
/// it.
fn has_room(to: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(to.as_fd(), PollFlags::POLLOUT)];
    // The write itself reports the error.
    poll(&mut fds, PollTimeout::ZERO).map_or(true, |ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{self, BufRead, BufReader, Write},
        os::fd::{AsFd, BorrowedFd},
    };

    use super::{Ordering, Outlet};

    #[test]
    fn lines_that_nobody_reads_are_dropped_and_told_of() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let (outlet, mut sent) = (Outlet::new(), 0);
        while outlet.dropped.load(Ordering::Relaxed) < 10 {
            outlet.write(&mut writer, &[&[b'x'; 999][..], b"\n"].concat());
            sent += 1;
        }
        let mut lines = BufReader::new(reader).lines().map(|line| line.expect("a line"));
        for _ in 0..sent - 10 {
            assert_eq!(lines.next().map(|line| line.len()), Some(999));
        }
        outlet.write(&mut writer, b"last\n");
        drop(writer);
        let rest: Vec<String> = lines.collect();
        let missed = "sandprobe: 10 lines were not written here: nobody read them, or there was no room";
        assert_eq!(rest, [missed, "last"]);
    }

    /// A disk with room for this many bytes.
    struct Disk {
        bytes: Vec<u8>,
        room: usize,
        file: File,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room);
            self.bytes.extend(&bytes[..taken]);
            self.room -= taken;
            if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl AsFd for Disk {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.file.as_fd()
        }
    }

    #[test]
    fn a_line_that_a_full_disk_cut_does_not_run_into_the_next() {
        let missed = "sandprobe: 2 lines were not written here: nobody read them, or there was no room";
        for (room, begun) in [(4, ""), (5, "t\n"), (7, "two\n")] {
            let file = File::options().write(true).open("/dev/null").expect("a device");
            let (outlet, mut disk) = (Outlet::new(), Disk { bytes: Vec::new(), room, file });
            for line in ["one\n", "two\n", "three\n"] {
                outlet.write(&mut disk, line.as_bytes());
            }
            disk.room = 1000;
            outlet.write(&mut disk, b"four\n");
            let text = String::from_utf8(disk.bytes).expect("text");
            assert_eq!(text, format!("one\n{begun}{missed}\nfour\n"));
        }
    }
}
