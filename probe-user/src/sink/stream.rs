//! The stream of events to standard output or to a log file. While nobody reads it, or while it cannot be
//! written, as on a full disk, events are dropped and counted. Once there is room again, a line says how many
//! were dropped.
//!
//! **Invariant:** the loop never waits for the reader or the disk.

pub(crate) mod log_file;
mod retry;
mod trouble;
pub(crate) mod write_queue;

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time;
use tracing::warn;

use self::retry::{EIO, Retrying};
pub(crate) use self::trouble::StreamTrouble;
use self::write_queue::{WriteQueue, lines};

/// The maximum number of bytes that wait for a reader: more than a listing of a full node produces. A pipe
/// itself holds 64 KiB.
const ROOM: usize = 16 << 20;

#[derive(Debug)]
pub(crate) struct Stream {
    outlet: WriteQueue,
    /// How many events were dropped since the last one that was written.
    missed: u64,
    dropped: Arc<AtomicU64>,
    trouble: StreamTrouble,
    destination: Destination,
    /// The terminal was closed.
    is_gone: bool,
    /// The number of the last event that was accepted, or is not wanted here.
    passed: Option<u64>,
    on_written: OnWritten,
}

/// A function that gets the number of the last event that need not be written again.
#[derive(Clone)]
struct OnWritten(Arc<dyn Fn(u64) + Send + Sync>);

impl fmt::Debug for OnWritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnWritten")
    }
}

/// The destination of the stream.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    /// The name in messages.
    pub(crate) name: String,
    pub(crate) terminal: Terminal,
    /// Any error may pass, because the file is opened again by its name.
    pub(crate) always_retries: bool,
}

impl Destination {
    pub(crate) fn standard_output(terminal: Terminal) -> Self {
        Self { name: "standard output".to_owned(), terminal, always_retries: false }
    }

    pub(crate) fn log_file(name: String) -> Self {
        Self { name, terminal: Terminal::None, always_retries: true }
    }
}

/// Whether the stream goes to a terminal, which may be closed while the run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terminal {
    None,
    /// The run ends when the terminal is closed.
    EndsRun,
    /// When the terminal is closed, events are dropped and counted, and the run goes on.
    Outlived,
}

/// How many events were not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unwritten(pub(crate) u64);

impl Stream {
    /// Starts a thread that writes to `to`, which is this destination. `on_written` gets the number of the
    /// last event that was written, or that came after it and no filter keeps.
    pub(crate) fn spawn(
        to: impl io::Write + Send + 'static,
        destination: Destination,
        on_written: impl Fn(u64) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::with_room(ROOM, to, destination, on_written)
    }

    /// Like `spawn`, with room for `room` bytes that wait.
    pub(crate) fn with_room(
        room: usize,
        to: impl io::Write + Send + 'static,
        destination: Destination,
        on_written: impl Fn(u64) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let to = Retrying::new(to, destination.clone());
        let trouble = to.trouble();
        let on_written = OnWritten(Arc::new(on_written));
        let outlet = WriteQueue::spawn_marked(room, "stream", to, {
            let on_written = on_written.clone();
            move |seq| (on_written.0)(seq)
        })?;
        Ok(Self {
            outlet,
            missed: 0,
            dropped: Arc::default(),
            trouble,
            destination,
            is_gone: false,
            passed: None,
            on_written,
        })
    }

    /// The destination's name in messages.
    pub(crate) fn name(&self) -> &str {
        &self.destination.name
    }

    /// The counter of dropped events, for the metrics.
    #[must_use]
    pub(crate) fn dropped(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.dropped)
    }

    /// Why the stream is not written at the moment, if it is not.
    #[must_use]
    pub(crate) fn trouble(&self) -> StreamTrouble {
        self.trouble.clone()
    }

    /// Whether everything that was accepted is written.
    pub(crate) fn is_idle(&self) -> bool {
        self.outlet.waiting() == 0
    }

    /// Checks whether everything that waited was read. If so, the next event is accepted, even if it comes
    /// only hours later, and the events that are not wanted here need not be written.
    pub(crate) fn accept_after_read(&self) {
        if let Some(passed) = self.passed
            && self.missed == 0
            && self.is_idle()
        {
            (self.on_written.0)(passed);
        }
        if self.missed > 0 && !self.is_gone && self.is_idle() {
            self.trouble.unread(None);
        }
    }

    /// Returns when everything that was accepted is written, or `grace` is over.
    pub(crate) async fn idle(&self, grace: Duration) {
        let all = async {
            while !self.is_idle() {
                time::sleep(Duration::from_millis(1)).await;
            }
        };
        time::timeout(grace, all).await.ok();
    }

    /// Accepts or drops whole lines, one for each event that is wanted here. `seq` is the number of the last
    /// event. `say` makes the line that says how many events were dropped before.
    pub(crate) fn offer(
        &mut self,
        new: &mut Vec<u8>,
        seq: u64,
        say: impl FnOnce(u64) -> Vec<u8>,
    ) -> io::Result<()> {
        if new.is_empty() {
            self.passed = Some(seq);
            return Ok(());
        }
        let count = lines(new);
        // Once events are dropped, that goes on until half of the room is free. Otherwise every second line
        // would be about dropped events.
        let is_full = self.missed > 0 && self.outlet.waiting() > self.outlet.room() / 2;
        if !is_full && !self.is_gone {
            if self.missed > 0 {
                let mut all = say(self.missed);
                all.append(new);
                *new = all;
            }
            match self.outlet.offer_marked(new, seq) {
                Ok(true) => {
                    self.missed = 0;
                    self.passed = Some(seq);
                    self.trouble.unread(None);
                    return Ok(());
                }
                Ok(false) => {}
                Err(error) => self.failed(error)?,
            }
        }
        // The writing thread has reported a failing write. Once it succeeds again, events are dropped until
        // there is room.
        if self.missed == 0 && !self.is_gone && !self.trouble.is_failing() {
            let why = format!("{} is not read: events are dropped until it is", self.name());
            if self.trouble.unread(Some(why.clone())) {
                warn!("{why}");
            }
        }
        new.clear();
        self.missed += count;
        self.dropped.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    /// Handles an error. It ends the run, unless the terminal was closed and the run outlives it.
    fn failed(&mut self, error: io::Error) -> io::Result<()> {
        if !is_hangup(self.destination.terminal, &error) {
            return Err(error);
        }
        let why = "the terminal is gone: events are dropped from here on";
        warn!("{why}, and the agent runs on");
        self.trouble.unread(None);
        self.trouble.unread(Some(why.to_owned()));
        self.is_gone = true;
        Ok(())
    }

    /// Returns when everything is written, or cannot be written, or `grace` is over.
    pub(crate) async fn finish(self, grace: Duration) -> io::Result<Unwritten> {
        let waiting = self.outlet.lines_waiting();
        let terminal = self.destination.terminal;
        let is_gone = self.is_gone;
        match time::timeout(grace, self.outlet.finish()).await {
            Ok(Ok(())) => {
                // The last events may be ones that are not wanted here.
                if let Some(passed) = self.passed
                    && self.missed == 0
                {
                    (self.on_written.0)(passed);
                }
            }
            Ok(Err(error)) if !is_gone && !is_hangup(terminal, &error) => return Err(error),
            Ok(Err(_hangup)) => {}
            Err(_late) => {
                self.dropped.fetch_add(waiting(), Ordering::Relaxed);
            }
        }
        Ok(Unwritten(self.dropped.load(Ordering::Relaxed)))
    }
}

/// Whether the error means that a terminal which the run outlives was closed.
fn is_hangup(to: Terminal, error: &io::Error) -> bool {
    to == Terminal::Outlived && error.raw_os_error() == Some(EIO)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, BufRead, BufReader, Read},
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering},
        },
        time::Duration,
    };

    use tokio::runtime;

    use super::{Destination, EIO, Stream, Terminal, Unwritten};

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        runtime::Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(future)
    }

    fn to(terminal: Terminal) -> Destination {
        Destination::standard_output(terminal)
    }

    fn say(count: u64) -> Vec<u8> {
        format!("missed {count}\n").into_bytes()
    }

    #[test]
    fn unread_events_are_dropped_and_counted_once_somebody_reads() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let mut stream = Stream::with_room(10_000, writer, to(Terminal::None), drop).expect("a thread");
        let mut sent = 0_u64;
        let dropped = stream.dropped();
        let dropped = || dropped.load(Ordering::Relaxed);
        // A pipe holds some thousand of these lines.
        while dropped() < 20_000 {
            stream.offer(&mut format!("event {sent}\n").into_bytes(), 0, say).expect("it is not closed");
            sent += 1;
        }
        // Some may have been accepted in between, while the thread still filled the pipe.
        let mut lines = BufReader::new(reader).lines().map(|line| line.expect("a line"));
        let (mut next, mut missed) = (0, 0);
        let mut read = |line: String| match line.strip_prefix("missed ") {
            Some(count) => {
                let count: u64 = count.parse().expect("a number");
                (next, missed) = (next + count, missed + count);
                (next, missed)
            }
            None => {
                assert_eq!(line, format!("event {next}"));
                next += 1;
                (next, missed)
            }
        };
        let mut so_far = (0, 0);
        while so_far.0 - so_far.1 + dropped() < sent {
            so_far = read(lines.next().expect("it is not closed"));
        }
        stream.offer(&mut format!("event {sent}\n").into_bytes(), 0, say).expect("it is not closed");
        let unwritten = block_on(stream.finish(Duration::from_secs(20))).expect("written");
        assert_eq!(unwritten, Unwritten(dropped_before(so_far, sent)));
        let last = lines.map(read).last();
        assert_eq!(last, Some((sent + 1, unwritten.0)), "all are read, or told of as missing");
    }

    /// How many of the `sent` events were dropped when the reader was at this place.
    fn dropped_before((next, missed): (u64, u64), sent: u64) -> u64 {
        sent - (next - missed)
    }

    /// Each write fails with this error.
    struct Failing(fn() -> io::Error);

    impl io::Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err((self.0)())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Whether the stream ends the run, and not only drops events.
    fn ends_run(stream: &mut Stream) -> bool {
        let begun = std::time::Instant::now();
        loop {
            let offered = stream.offer(&mut b"x\n".repeat(1000), 0, say);
            if offered.is_err() || stream.missed > 2 || begun.elapsed() > Duration::from_secs(20) {
                return offered.is_err();
            }
        }
    }

    #[test]
    fn a_terminal_that_is_gone_ends_only_a_run_that_does_not_outlive_it() {
        let closed = || Failing(|| io::Error::from_raw_os_error(EIO));
        let mut stream = Stream::spawn(closed(), to(Terminal::Outlived), drop).expect("a thread");
        assert!(!ends_run(&mut stream));
        stream.accept_after_read();
        let said = stream.trouble().shown();
        assert!(said.as_deref().is_some_and(|said| said.starts_with("the terminal is gone")), "{said:?}");
        let unwritten = block_on(stream.finish(Duration::from_secs(20))).expect("no error");
        assert!(unwritten.0 > 2, "they are counted: {unwritten:?}");
        assert!(ends_run(&mut Stream::spawn(closed(), to(Terminal::EndsRun), drop).expect("a thread")));
    }

    /// Otherwise, an agent whose stream has only findings would not record that its server has reported the
    /// other events.
    #[test]
    fn events_that_are_not_wanted_here_are_told_behind_those_that_are() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let last = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&last);
        let tell = move |seq| told.store(seq, Ordering::Relaxed);
        let mut stream = Stream::with_room(10_000, writer, to(Terminal::None), tell).expect("a thread");
        let mut offer = |lines: &[u8], seq| {
            stream.offer(&mut lines.to_vec(), seq, say).expect("it is not closed");
            stream.accept_after_read();
            (stream.missed > 0, last.load(Ordering::Relaxed))
        };
        assert_eq!(offer(b"", 7), (false, 7));
        // More than the pipe holds.
        assert_eq!(offer(&b"x\n".repeat(100_000), 8), (false, 7));
        assert_eq!(offer(b"", 9), (false, 7));
        reader.read_exact(&mut [0; 200_000]).expect("readable");
        block_on(stream.idle(Duration::from_secs(20)));
        stream.accept_after_read();
        assert_eq!(last.load(Ordering::Relaxed), 9);
        // The last event before the end.
        stream.offer(&mut Vec::new(), 10, say).expect("it is not closed");
        let unwritten = block_on(stream.finish(Duration::from_secs(20))).expect("written");
        assert_eq!((unwritten, last.load(Ordering::Relaxed)), (Unwritten(0), 10));
    }

    /// The next event may not come for hours.
    #[test]
    fn a_reader_that_has_read_everything_is_believed_before_the_next_event() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let mut stream = Stream::with_room(10_000, writer, to(Terminal::None), drop).expect("a thread");
        while stream.missed == 0 {
            stream.offer(&mut b"x\n".repeat(1000), 0, say).expect("it is not closed");
        }
        stream.accept_after_read();
        let trouble = stream.trouble();
        assert!(trouble.shown().is_some_and(|said| said.contains("is not read")), "{trouble:?}");
        let reads = std::thread::spawn(|| io::copy(&mut { reader }, &mut io::sink()));
        block_on(stream.idle(Duration::from_secs(20)));
        stream.accept_after_read();
        assert_eq!(trouble.shown(), None);
        drop(stream);
        reads.join().expect("no panic").expect("a pipe");
    }

    #[test]
    fn a_full_disk_ends_nothing_and_what_is_missing_is_counted() {
        let full = Failing(|| io::ErrorKind::StorageFull.into());
        let mut stream = Stream::with_room(10_000, full, to(Terminal::None), drop).expect("a thread");
        assert!(!ends_run(&mut stream));
        let dropped = stream.dropped().load(Ordering::Relaxed);
        assert!(dropped > 0);
        let unwritten = block_on(stream.finish(Duration::from_millis(10))).expect("no error");
        assert!(unwritten.0 > dropped, "what waited is counted too: {unwritten:?}");
    }

    #[test]
    fn the_end_does_not_wait_for_a_slow_reader() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let mut stream = Stream::spawn(writer, to(Terminal::None), drop).expect("a thread");
        stream.offer(&mut b"x\n".repeat(100_000), 0, say).expect("it is not closed");
        let unwritten = block_on(stream.finish(Duration::from_millis(10))).expect("no error");
        assert_eq!(unwritten, Unwritten(100_000));
        drop(reader);
    }
}
