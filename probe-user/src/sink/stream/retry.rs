//! Tries a failed write again if its error may pass, such as a full disk. To the queue before it, this looks
//! like a reader that does not read.
//!
//! **Invariant:** a line that was written in part is continued where it broke off.

use std::{
    io::{self, Write},
    thread,
    time::Duration,
};

use tracing::warn;

use super::{Destination, StreamTrouble, Terminal};

/// The error of a write to a failing disk, or to a terminal that was closed (`asm-generic/errno-base.h`).
pub(super) const EIO: i32 = 5;

/// The time between two tries.
const PAUSE: Duration = Duration::from_secs(1);

/// Writes the stream.
pub(super) struct Retrying<W> {
    to: W,
    destination: Destination,
    pause: Duration,
    trouble: StreamTrouble,
}

impl<W> Retrying<W> {
    pub(super) fn new(to: W, destination: Destination) -> Self {
        Self { to, destination, pause: PAUSE, trouble: StreamTrouble::default() }
    }

    /// Whether the last try failed, and why.
    pub(super) fn trouble(&self) -> StreamTrouble {
        self.trouble.clone()
    }
}

impl<W: Write> Write for Retrying<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let written = self.to.write(bytes);
            match &written {
                Err(error) if may_pass(error, &self.destination) => {
                    let why = format!(
                        "cannot write to {}: {error}; until it can be written, events wait in memory, and those for \
                         which there is no room are dropped",
                        self.destination.name
                    );
                    if self.trouble.failing(Some(why.clone())) {
                        warn!("{why}");
                    }
                    thread::sleep(self.pause);
                    continue;
                }
                // A full disk still accepts the first part of a write, so only a whole write counts.
                Ok(length) if *length == bytes.len() && self.trouble.failing(None) => {
                    warn!("{} can be written again", self.destination.name);
                }
                Ok(_) | Err(_) => {}
            }
            return written;
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn may_pass(error: &io::Error, destination: &Destination) -> bool {
    match error.kind() {
        _ if destination.always_retries => true,
        io::ErrorKind::StorageFull
        | io::ErrorKind::QuotaExceeded
        | io::ErrorKind::FileTooLarge
        | io::ErrorKind::ReadOnlyFilesystem => true,
        // A closed terminal does not come back.
        _ => error.raw_os_error() == Some(EIO) && destination.terminal == Terminal::None,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Write},
        time::Duration,
    };

    use super::{Destination, EIO, Retrying, Terminal};

    /// A disk with room for a few bytes. After some failed tries it has room for the same number again.
    struct Disk {
        bytes: Vec<u8>,
        room: usize,
        failures: usize,
        error: fn() -> io::Error,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room);
            self.bytes.extend(&bytes[..taken]);
            self.room -= taken;
            if taken > 0 {
                return Ok(taken);
            }
            self.failures += 1;
            self.room = if self.failures.is_multiple_of(3) { 7 } else { 0 };
            Err((self.error)())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn retrying(error: fn() -> io::Error, terminal: Terminal) -> Retrying<Disk> {
        let disk = Disk { bytes: Vec::new(), room: 5, failures: 0, error };
        Retrying { pause: Duration::ZERO, ..Retrying::new(disk, Destination::standard_output(terminal)) }
    }

    #[test]
    fn a_line_that_a_full_disk_cut_is_completed_before_the_next() {
        for error in [
            || io::ErrorKind::StorageFull.into(),
            || io::ErrorKind::QuotaExceeded.into(),
            || io::Error::from_raw_os_error(EIO),
        ] {
            let mut to = retrying(error, Terminal::None);
            let trouble = to.trouble();
            let mut expected: Vec<u8> = Vec::new();
            for number in 0..20 {
                let line = format!("event {number}\n");
                to.write_all(line.as_bytes()).expect("it passes");
                expected.extend(line.as_bytes());
            }
            assert_eq!(to.to.bytes, expected);
            assert!(to.to.failures > 20);
            to.destination.always_retries = true;
            to.to.bytes.clear();
            (to.to.room, to.to.failures) = (3, 0);
            assert_eq!(to.write(b"cut").expect("there is room"), 3);
            assert_eq!(trouble.shown(), None);
            assert_eq!(to.write(b"more than seven").expect("a part of it passes"), 7);
            let said = trouble.shown().expect("the rest is not written");
            assert!(said.starts_with("cannot write to standard output: "), "{said}");
            to.to.room = 100;
            to.write_all(b"last\n").expect("there is room");
            assert_eq!(trouble.shown(), None);
        }
    }

    #[test]
    fn an_error_that_stays_is_told_at_once() {
        let closed: fn() -> io::Error = || io::Error::from_raw_os_error(EIO);
        let gone: fn() -> io::Error = || io::ErrorKind::BrokenPipe.into();
        for (error, terminal) in [
            (closed, Terminal::EndsRun),
            (closed, Terminal::Outlived),
            (gone, Terminal::None),
            (gone, Terminal::Outlived),
        ] {
            let mut to = retrying(error, terminal);
            let failed = to.write_all(b"event 0\n").expect_err("it does not pass");
            assert_eq!(failed.kind(), error().kind());
            assert_eq!(to.to.failures, 1);
        }
    }
}
