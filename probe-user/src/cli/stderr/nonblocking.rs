//! Writes to standard error without waiting for its reader, for the agent.

use std::{
    io::{self, Write},
    os::fd::AsFd,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

static IS_ENABLED: AtomicBool = AtomicBool::new(false);
static DROPPED: AtomicU64 = AtomicU64::new(0);
/// A pipe that is writable has room for this many bytes (`PIPE_BUF`, pipe(7)).
const PIECE: usize = 4096;

/// From now on, writes to standard error do not wait.
pub(in crate::cli) fn enable() {
    IS_ENABLED.store(true, Ordering::Relaxed);
}

pub(super) fn is_enabled() -> bool {
    IS_ENABLED.load(Ordering::Relaxed)
}

/// Writes a line, or drops it if there is no room.
pub(super) fn write<W: Write + AsFd>(to: &mut W, line: &[u8]) -> io::Result<()> {
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

/// Whether a write returns at once. A file is always writable; a terminal or a pipe is while somebody reads it.
fn has_room(to: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(to.as_fd(), PollFlags::POLLOUT)];
    // The write itself reports the error.
    poll(&mut fds, PollTimeout::ZERO).map_or(true, |ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use std::io::{self, BufRead, BufReader};

    use super::{DROPPED, Ordering, write};

    #[test]
    fn lines_that_nobody_reads_are_dropped_and_told_of() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let mut sent = 0;
        while DROPPED.load(Ordering::Relaxed) < 10 {
            write(&mut writer, &[&[b'x'; 999][..], b"\n"].concat()).expect("it is not closed");
            sent += 1;
        }
        let mut lines = BufReader::new(reader).lines().map(|line| line.expect("a line"));
        for _ in 0..sent - 10 {
            assert_eq!(lines.next().map(|line| line.len()), Some(999));
        }
        write(&mut writer, b"last\n").expect("it is not closed");
        drop(writer);
        let rest: Vec<String> = lines.collect();
        assert_eq!(rest, ["sandprobe: 10 lines were not written here: nobody read them", "last"]);
    }
}
