//! Standard error. Commands wait for whoever reads it; an agent does not: what finds no room is dropped, and how many
//! lines it was is said once there is room.

use std::io::{self, Write};
#[cfg(feature = "live")]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Whoever does not read standard error is not waited for.
#[cfg(feature = "live")]
static HURRIES: AtomicBool = AtomicBool::new(false);
#[cfg(feature = "live")]
static DROPPED: AtomicU64 = AtomicU64::new(0);
/// A pipe that can be written to at all has room for so much (`PIPE_BUF`, pipe(7)).
#[cfg(feature = "live")]
const PIECE: usize = 4096;

/// From here on nobody is waited for.
#[cfg(feature = "live")]
pub(super) fn hurry() {
    HURRIES.store(true, Ordering::Relaxed);
}

/// Where complaints go, a line at a time.
pub(super) struct Complaint;

impl Write for Complaint {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut stderr = io::stderr().lock();
        #[cfg(feature = "live")]
        if HURRIES.load(Ordering::Relaxed) {
            write_at_once(&mut stderr, line)?;
            return Ok(line.len());
        }
        stderr.write_all(line)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(feature = "live")]
fn write_at_once<W: Write + std::os::fd::AsFd>(to: &mut W, line: &[u8]) -> io::Result<()> {
    let dropped = DROPPED.load(Ordering::Relaxed);
    if dropped > 0 && has_room(to) {
        DROPPED.fetch_sub(dropped, Ordering::Relaxed);
        writeln!(to, "sandprobe: {dropped} lines were not written here: nobody read them")?;
    }
    for piece in line.chunks(PIECE) {
        if !has_room(to) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        to.write_all(piece)?;
    }
    Ok(())
}

/// Whether a write returns at once: always of a file, and of a terminal or a pipe that is read.
#[cfg(feature = "live")]
fn has_room(to: &impl std::os::fd::AsFd) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut fds = [PollFd::new(to.as_fd(), PollFlags::POLLOUT)];
    // An error is for the write to tell.
    poll(&mut fds, PollTimeout::ZERO).map_or(true, |ready| ready > 0)
}

#[cfg(all(test, feature = "live"))]
mod tests {
    use std::io::{self, BufRead, BufReader};

    use super::{DROPPED, Ordering, write_at_once};

    #[test]
    fn lines_that_nobody_reads_are_dropped_and_told_of() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let mut sent = 0;
        while DROPPED.load(Ordering::Relaxed) < 10 {
            write_at_once(&mut writer, &[&[b'x'; 999][..], b"\n"].concat()).expect("it is not closed");
            sent += 1;
        }
        let mut lines = BufReader::new(reader).lines().map(|line| line.expect("a line"));
        for _ in 0..sent - 10 {
            assert_eq!(lines.next().map(|line| line.len()), Some(999));
        }
        write_at_once(&mut writer, b"last\n").expect("it is not closed");
        drop(writer);
        let rest: Vec<String> = lines.collect();
        assert_eq!(rest, ["sandprobe: 10 lines were not written here: nobody read them", "last"]);
    }
}
