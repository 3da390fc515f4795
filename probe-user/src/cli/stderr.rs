//! Standard error. A command waits for its reader. An agent does not wait: it drops lines for which there is
//! no room, and reports their number once there is room again.

#[cfg(feature = "live")]
pub(super) mod nonblocking;

use std::io::{self, Write};

/// Writes to standard error, one line at a time.
pub(super) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut stderr = io::stderr().lock();
        #[cfg(feature = "live")]
        if nonblocking::is_enabled() {
            nonblocking::write(&mut stderr, line);
            return Ok(line.len());
        }
        stderr.write_all(line)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
