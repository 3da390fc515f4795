//! Writes bytes on a separate thread. A pipe that nobody reads, or a slow disk, delays that thread and not
//! the agent's loop.
//!
//! **Invariant:** the sender never waits, and the number of bytes that wait is bounded.

use std::{
    io::{self, Write},
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
};

use tokio::sync::{mpsc, oneshot};

/// The memory of a waiting chunk besides its bytes.
const CHUNK_OVERHEAD: usize = 64;

#[derive(Debug)]
pub(crate) struct WriteQueue {
    chunks: mpsc::UnboundedSender<(Vec<u8>, u64)>,
    waiting: Arc<Waiting>,
    room: usize,
    /// The result of the thread; `None` once it was returned.
    end: Option<oneshot::Receiver<io::Result<()>>>,
}

/// The bytes that were accepted and are not written yet.
#[derive(Debug, Default)]
struct Waiting {
    bytes: AtomicUsize,
    lines: AtomicU64,
}

impl Waiting {
    fn add(&self, chunk: &[u8]) {
        self.bytes.fetch_add(chunk.len() + CHUNK_OVERHEAD, Ordering::Relaxed);
        self.lines.fetch_add(lines(chunk), Ordering::Relaxed);
    }

    fn remove(&self, chunk: &[u8]) {
        self.bytes.fetch_sub(chunk.len() + CHUNK_OVERHEAD, Ordering::Relaxed);
        self.lines.fetch_sub(lines(chunk), Ordering::Relaxed);
    }
}

/// The number of lines that end in the chunk.
pub(super) fn lines(chunk: &[u8]) -> u64 {
    chunk.iter().map(|byte| u64::from(*byte == b'\n')).sum()
}

impl WriteQueue {
    /// Starts a thread `name` that writes what is offered to `to`. At most `room` bytes wait, however slowly
    /// it writes.
    pub(crate) fn spawn(room: usize, name: &str, to: impl Write + Send + 'static) -> io::Result<Self> {
        Self::spawn_marked(room, name, to, |_mark| {})
    }

    /// Like [`Self::spawn`]; `wrote` gets the mark of each chunk that was written.
    pub(crate) fn spawn_marked(
        room: usize,
        name: &str,
        mut to: impl Write + Send + 'static,
        wrote: impl Fn(u64) + Send + 'static,
    ) -> io::Result<Self> {
        let (chunks, mut queue) = mpsc::unbounded_channel::<(Vec<u8>, u64)>();
        let (ended, end) = oneshot::channel();
        let waiting = Arc::<Waiting>::default();
        let written = Arc::clone(&waiting);
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            ended.send(write_chunks(&mut queue, &mut to, &wrote, &written)).ok();
            // The sender learns of an error because this channel closes, and then reads the error.
            drop(queue);
        })?;
        Ok(Self { chunks, waiting, room, end: Some(end) })
    }

    /// Accepts the whole chunk, or nothing of it if there is no room. Returns whether it was accepted.
    pub(crate) fn offer(&mut self, chunk: &mut Vec<u8>) -> io::Result<bool> {
        self.offer_marked(chunk, 0)
    }

    /// Like [`Self::offer`], with the chunk's mark.
    pub(crate) fn offer_marked(&mut self, chunk: &mut Vec<u8>, mark: u64) -> io::Result<bool> {
        if chunk.is_empty() {
            return Ok(true);
        }
        // A chunk that is larger than the room is accepted when nothing else waits.
        let waiting = self.waiting();
        if waiting > 0 && waiting + chunk.len() + CHUNK_OVERHEAD > self.room {
            return if self.chunks.is_closed() { Err(self.failed()) } else { Ok(false) };
        }
        self.waiting.add(chunk);
        self.chunks.send((mem::take(chunk), mark)).map_err(|_ended| self.failed())?;
        Ok(true)
    }

    /// Bytes that wait to be written.
    #[must_use]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.bytes.load(Ordering::Relaxed)
    }

    /// How many bytes may wait.
    #[must_use]
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// Returns a function that counts the lines that wait.
    pub(super) fn lines_waiting(&self) -> impl Fn() -> u64 + use<> {
        let waiting = Arc::clone(&self.waiting);
        move || waiting.lines.load(Ordering::Relaxed)
    }

    /// Returns when everything is written, or cannot be written.
    pub(crate) async fn finish(self) -> io::Result<()> {
        let Self { chunks, end, .. } = self;
        // The thread ends when the last sender is gone.
        drop(chunks);
        match end {
            Some(end) => end.await.unwrap_or_else(|_panicked| Err(panicked())),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Why the thread no longer accepts anything.
    fn failed(&mut self) -> io::Error {
        match self.end.take().map(|mut end| end.try_recv()) {
            Some(Ok(Err(error))) => error,
            Some(Ok(Ok(())) | Err(_)) => panicked(),
            None => io::ErrorKind::BrokenPipe.into(),
        }
    }
}

fn write_chunks(
    queue: &mut mpsc::UnboundedReceiver<(Vec<u8>, u64)>,
    to: &mut impl Write,
    wrote: &impl Fn(u64),
    waiting: &Waiting,
) -> io::Result<()> {
    while let Some((chunk, mark)) = queue.blocking_recv() {
        to.write_all(&chunk)?;
        if queue.is_empty() {
            to.flush()?;
        }
        wrote(mark);
        waiting.remove(&chunk);
    }
    Ok(())
}

fn panicked() -> io::Error {
    io::Error::other("the writing thread ended")
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Read},
        os::unix::net::UnixStream,
        sync::mpsc::{self, Receiver},
        thread,
    };

    use tokio::runtime;

    use super::WriteQueue;

    fn finish(outlet: WriteQueue) -> io::Result<()> {
        runtime::Builder::new_current_thread().build().expect("a runtime").block_on(outlet.finish())
    }

    #[test]
    fn all_that_was_sent_is_written() {
        let (mut reader, writer) = UnixStream::pair().expect("a pair");
        let mut outlet = WriteQueue::spawn(1000, "test", writer).expect("a thread");
        for chunk in ["a\n", "", "b\n"] {
            assert!(outlet.offer(&mut chunk.as_bytes().to_vec()).expect("it is read"));
        }
        finish(outlet).expect("written");
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("readable");
        assert_eq!(text, "a\nb\n");
    }

    #[test]
    fn the_sender_learns_that_nobody_reads() {
        let (reader, writer) = UnixStream::pair().expect("a pair");
        drop(reader);
        let mut outlet = WriteQueue::spawn(1000, "test", writer).expect("a thread");
        let errors = loop {
            if let Err(error) = outlet.offer(&mut vec![b'x']) {
                // Another try gives the same error.
                let again = outlet.offer(&mut vec![b'x']).expect_err("still nobody");
                break [error, again, finish(outlet).expect_err("still nobody")];
            }
        };
        assert_eq!(errors.map(|error| error.kind()), [io::ErrorKind::BrokenPipe; 3]);
    }

    #[test]
    fn a_burst_waits_for_the_reader() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let mut outlet = WriteQueue::spawn(700_000, "test", writer).expect("a thread");
        // More than the pipe holds.
        for _ in 0..6 {
            assert!(outlet.offer(&mut vec![b'x'; 100_000]).expect("it is not closed"), "nobody read yet");
        }
        reader.read_exact(&mut vec![0; 600_000]).expect("readable");
        finish(outlet).expect("written");
    }

    /// Writes one piece for each token.
    struct Slow(Receiver<()>);

    impl io::Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.recv().ok();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_writer_that_makes_slow_progress_lets_no_more_wait_either() {
        let (token, tokens) = mpsc::channel();
        let mut outlet = WriteQueue::spawn(1000, "test", Slow(tokens)).expect("a thread");
        for _ in 0..50 {
            let before = outlet.waiting();
            while outlet.offer(&mut vec![b'x'; 100]).expect("it is not closed") {
                assert!(outlet.waiting() <= 1000, "{} bytes wait", outlet.waiting());
            }
            token.send(()).expect("it listens");
            while outlet.waiting() >= before.max(900) {
                thread::yield_now();
            }
        }
        drop(token);
        finish(outlet).expect("written");
    }

    #[test]
    fn no_more_waits_than_has_room() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let mut outlet = WriteQueue::spawn(1000, "test", writer).expect("a thread");
        // More than a pipe holds, so that the thread waits.
        assert!(outlet.offer(&mut vec![b'x'; 1 << 20]).expect("it is not closed"), "nothing else waits");
        let mut chunk = vec![b'y'; 10];
        assert!(!outlet.offer(&mut chunk).expect("it is not closed"));
        assert_eq!((chunk.len(), outlet.waiting() > 1 << 20), (10, true), "nothing of it was taken");
        reader.read_exact(&mut vec![0; 1 << 20]).expect("readable");
        while !outlet.offer(&mut chunk).expect("it is not closed") {
            thread::yield_now();
        }
        finish(outlet).expect("written");
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).expect("readable");
        assert_eq!(rest, [b'y'; 10]);
    }
}
