//! Bytes on their way out, written by a thread of their own: a pipe that nobody reads, or a slow disk, holds up that
//! thread and not the loop, which can still be told to end.

use std::{
    io::{self, Write},
    mem, thread,
};

use tokio::sync::{mpsc, oneshot};

/// Chunks that may wait. Then the loop waits, and with it the sources, whose buffers are the kernel's.
const DEPTH: usize = 16;

#[derive(Debug)]
pub struct Outlet {
    chunks: mpsc::Sender<Vec<u8>>,
    /// What came of it; `None` once it was told.
    end: Option<oneshot::Receiver<io::Result<()>>>,
}

impl Outlet {
    /// Writes to `to` what is sent. `name` is the thread's.
    pub fn spawn(name: &str, mut to: impl Write + Send + 'static) -> io::Result<Self> {
        let (chunks, mut waiting) = mpsc::channel::<Vec<u8>>(DEPTH);
        let (ended, end) = oneshot::channel();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            let mut write = || {
                while let Some(chunk) = waiting.blocking_recv() {
                    to.write_all(&chunk)?;
                    if waiting.is_empty() {
                        to.flush()?;
                    }
                }
                Ok(())
            };
            let result = write();
            // Who sends learns of an error by this channel being closed.
            drop(waiting);
            ended.send(result).ok();
        })?;
        Ok(Self { chunks, end: Some(end) })
    }

    /// Takes all of `chunk` as soon as there is room for it; nothing of it if cancelled before.
    pub async fn send(&mut self, chunk: &mut Vec<u8>) -> io::Result<()> {
        if chunk.is_empty() {
            return Ok(());
        }
        if let Ok(room) = self.chunks.reserve().await {
            room.send(mem::take(chunk));
            return Ok(());
        }
        self.ended().await?;
        Err(io::ErrorKind::BrokenPipe.into())
    }

    /// Returns when all that was sent is written, or cannot be.
    pub async fn finish(mut self) -> io::Result<()> {
        // The thread ends when the last sender is gone.
        self.chunks = mpsc::channel(1).0;
        self.ended().await
    }

    async fn ended(&mut self) -> io::Result<()> {
        match self.end.take() {
            Some(end) => {
                end.await.unwrap_or_else(|_panicked| Err(io::Error::other("the writing thread ended")))
            }
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Read},
        os::unix::net::UnixStream,
    };

    use tokio::runtime;

    use super::Outlet;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
    }

    #[test]
    fn all_that_was_sent_is_written() {
        let (mut reader, writer) = UnixStream::pair().expect("a pair");
        block_on(async {
            let mut outlet = Outlet::spawn("test", writer).expect("a thread");
            for chunk in ["a\n", "", "b\n"] {
                outlet.send(&mut chunk.as_bytes().to_vec()).await.expect("room");
            }
            outlet.finish().await.expect("written");
        });
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("readable");
        assert_eq!(text, "a\nb\n");
    }

    #[test]
    fn who_sends_learns_that_nobody_reads() {
        let (reader, writer) = UnixStream::pair().expect("a pair");
        drop(reader);
        let errors = block_on(async {
            let mut outlet = Outlet::spawn("test", writer).expect("a thread");
            loop {
                if let Err(error) = outlet.send(&mut vec![b'x']).await {
                    // Nor does it hurt to try again.
                    let again = outlet.send(&mut vec![b'x']).await.expect_err("still nobody");
                    return [error, again, outlet.finish().await.expect_err("still nobody")];
                }
            }
        });
        assert_eq!(errors.map(|error| error.kind()), [io::ErrorKind::BrokenPipe; 3]);
    }
}
