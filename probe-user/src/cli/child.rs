//! Runs a program for its output, within limits.

use std::{
    io::{self, Read},
    process::{Child, Command, Stdio},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

/// How often to check whether the program has ended, once its output has.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How often to check whether the output is still wanted.
const CANCEL_INTERVAL: Duration = Duration::from_millis(50);

/// For a duration that is shown in whole seconds.
const HALF: Duration = Duration::from_millis(500);

/// How long and how much a program may write.
#[derive(Clone, Copy)]
pub(super) struct Limits<'a> {
    pub(super) patience: Duration,
    /// When all programs with these limits must have ended.
    pub(super) until: Option<Instant>,
    /// The longest output that is read.
    pub(super) max_bytes: u64,
    /// Whether nobody wants the output any more.
    pub(super) is_cancelled: &'a AtomicBool,
}

pub(super) struct Output {
    pub(super) stdout: String,
    pub(super) stderr: String,
    /// `None` if a signal ended it.
    pub(super) code: Option<i32>,
}

/// Runs the command until it and its output have ended, and kills it when its time is over. Messages call it
/// `name`.
pub(super) fn run(mut command: Command, name: &'static str, limits: Limits<'_>) -> Result<Output, String> {
    let now = Instant::now();
    let left = limits.until.map_or(limits.patience, |until| until.saturating_duration_since(now));
    let patience = left.min(limits.patience);
    if patience.is_zero() || limits.is_cancelled.load(Ordering::Relaxed) {
        return Err("it was not asked: the time was over".to_owned());
    }
    let until = now + patience;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            format!("{name} is not in PATH")
        } else {
            format!("cannot run {name}: {error}")
        }
    })?;
    let output = collected(&mut child, name, until, limits);
    if output.is_err() {
        // The child is ours, and may have ended by now. What it started may hold the pipes: nobody waits for
        // their end. Nor for the child's: it may hang in the kernel.
        child.kill().ok();
        thread::Builder::new().name(name.to_owned()).spawn(move || child.wait()).ok();
    }
    output.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => format!("it has not answered within {} s", (patience + HALF).as_secs()),
        _ => format!("cannot read what {name} prints: {error}"),
    })
}

fn collected(
    child: &mut Child,
    name: &'static str,
    until: Instant,
    limits: Limits<'_>,
) -> io::Result<Output> {
    let stdout = reading(child.stdout.take(), name, limits.max_bytes)?;
    let stderr = reading(child.stderr.take(), name, limits.max_bytes)?;
    let stdout = text(&stdout, until, limits.is_cancelled)?;
    let stderr = text(&stderr, until, limits.is_cancelled)?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Output { stdout, stderr, code: status.code() });
        }
        if Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        wanted(limits.is_cancelled)?;
        thread::sleep(POLL_INTERVAL);
    }
}

fn text(
    bytes: &Receiver<io::Result<Vec<u8>>>,
    until: Instant,
    is_cancelled: &AtomicBool,
) -> io::Result<String> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match bytes.recv_timeout(left.min(CANCEL_INTERVAL)) {
            Ok(bytes) => return Ok(String::from_utf8_lossy(&bytes?).into_owned()),
            Err(RecvTimeoutError::Timeout) if !left.is_zero() => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        wanted(is_cancelled)?;
    }
}

fn wanted(is_cancelled: &AtomicBool) -> io::Result<()> {
    if is_cancelled.load(Ordering::Relaxed) { Err(io::Error::other("it was cancelled")) } else { Ok(()) }
}

/// Reads to the end in a thread of its own, so that neither pipe fills up while the other is read.
fn reading(
    pipe: Option<impl Read + Send + 'static>,
    name: &'static str,
    max_bytes: u64,
) -> io::Result<Receiver<io::Result<Vec<u8>>>> {
    let pipe = pipe.ok_or_else(|| io::Error::other("it has no output"))?;
    let (sender, bytes) = mpsc::channel();
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        let mut bytes = Vec::new();
        let read = pipe.take(max_bytes + 1).read_to_end(&mut bytes).and_then(|_| {
            if bytes.len() as u64 <= max_bytes {
                Ok(bytes)
            } else {
                Err(io::Error::other(format!("it is longer than {} MiB", max_bytes >> 20)))
            }
        });
        // Nobody waits any more once the time is over.
        sender.send(read).ok();
    })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::{
        process::Command,
        sync::atomic::{AtomicBool, Ordering},
        thread,
        time::{Duration, Instant},
    };

    use super::{Limits, run};

    /// Runs a program that closes its output and does not end.
    fn silent(patience: Duration, is_cancelled: &AtomicBool) -> Result<String, String> {
        let mut command = Command::new("sh");
        command.args(["-c", "exec >&- 2>&-; exec sleep 100"]);
        let limits = Limits { patience, until: None, max_bytes: 1, is_cancelled };
        run(command, "sh", limits).map(|output| output.stdout)
    }

    #[test]
    fn a_program_that_closes_its_output_and_stays_is_not_waited_for() {
        let begun = Instant::now();
        let told = silent(Duration::from_millis(600), &AtomicBool::new(false));
        assert_eq!(told, Err("it has not answered within 1 s".to_owned()));
        let is_cancelled = AtomicBool::new(false);
        let told = thread::scope(|scope| {
            let running = scope.spawn(|| silent(Duration::from_secs(90), &is_cancelled));
            thread::sleep(Duration::from_millis(100));
            is_cancelled.store(true, Ordering::Relaxed);
            running.join().expect("no panic")
        });
        assert_eq!(told, Err("cannot read what sh prints: it was cancelled".to_owned()));
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
}
