//! A QEMU process from start to end: feeds and reads the guest's port, and enforces the deadline.

use super::port::{Port, Word};
use anyhow::{Context as _, Result};
use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Why waiting for the guest ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Word(Word),
    /// QEMU ended, and the guest had not sent a word.
    Ended,
    TimedOut,
}

/// A running QEMU, which is killed when this is dropped.
pub(super) struct Guest {
    child: Child,
    port: Option<ChildStdin>,
    chunks: Receiver<Vec<u8>>,
    words: Port,
    deadline: Instant,
}

impl Guest {
    pub(super) fn start(mut command: Command, token: &str, deadline: Instant) -> Result<Self> {
        let mut child =
            command.spawn().with_context(|| format!("cannot run {}", command.get_program().display()))?;
        let port = child.stdin.take();
        let output = child.stdout.take().context("QEMU has no output")?;
        Ok(Self { child, port, chunks: read_all(output), words: Port::new(token), deadline })
    }

    /// Passes output on until the guest sends a word, QEMU ends or time is up.
    pub(super) fn listen(&mut self, mut output: impl FnMut(&[u8])) -> Heard {
        let mut chunk = Vec::new();
        loop {
            let (text, word) = self.words.take(&chunk);
            if !text.is_empty() {
                output(&text);
            }
            if let Some(word) = word {
                return Heard::Word(word);
            }
            match self.chunks.recv_timeout(self.left()) {
                Ok(more) => chunk = more,
                Err(RecvTimeoutError::Timeout) => return Heard::TimedOut,
                Err(RecvTimeoutError::Disconnected) => {
                    output(&self.words.rest());
                    return Heard::Ended;
                }
            }
        }
    }

    /// Sends a line to the guest.
    pub(super) fn say(&mut self, line: &str) -> Result<()> {
        let port = self.port.as_mut().context("the guest's port is closed")?;
        writeln!(port, "{line}").and_then(|()| port.flush()).context("cannot write to the guest's port")
    }

    /// Waits until QEMU ends by itself, so that all its writes are done. Returns false if time was up.
    pub(super) fn finish(mut self) -> bool {
        loop {
            match self.chunks.recv_timeout(self.left()) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return self.child.wait().is_ok(),
                Err(RecvTimeoutError::Timeout) => return false,
            }
        }
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a thread that reads the output until QEMU closes it.
fn read_all(mut output: ChildStdout) -> Receiver<Vec<u8>> {
    let (send, chunks) = mpsc::channel();
    thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(n @ 1..) = output.read(&mut buffer) {
            if send.send(buffer[..n].to_vec()).is_err() {
                break;
            }
        }
    });
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    fn guest(script: &str, patience: Duration) -> Guest {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        Guest::start(shell, "tok", Instant::now() + patience).unwrap()
    }

    #[test]
    fn hears_output_then_the_word() {
        let mut guest = guest("echo hello; printf '\\ntok 7\\n'", Duration::from_secs(20));
        let mut output = Vec::<u8>::new();
        assert_eq!(guest.listen(|bytes| output.extend(bytes)), Heard::Word(Word::Status(7)));
        assert_eq!(output, b"hello\n");
        assert!(guest.finish());
    }

    #[test]
    fn speaks() {
        let mut guest = guest("read -r line; printf 'got %s\\ntok 0\\n' \"$line\"", Duration::from_secs(20));
        guest.say("on").unwrap();
        let mut output = Vec::<u8>::new();
        assert_eq!(guest.listen(|bytes| output.extend(bytes)), Heard::Word(Word::Status(0)));
        assert_eq!(output, b"got on");
    }

    #[test]
    fn an_end_without_a_word_is_told() {
        let mut guest = guest("echo oops", Duration::from_secs(20));
        let mut output = Vec::<u8>::new();
        assert_eq!(guest.listen(|bytes| output.extend(bytes)), Heard::Ended);
        assert_eq!(output, b"oops\n");
    }

    #[test]
    fn time_is_bounded() {
        let mut guest = guest("read -r line", Duration::from_millis(50));
        assert_eq!(guest.listen(|_| {}), Heard::TimedOut);
    }
}
