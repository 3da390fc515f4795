//! Runs a command, shows its lines as they come, and ends it with all its children when it exceeds its time.

use crate::{root, workspace};
use anyhow::{Context as _, Result, bail};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, PipeReader, pipe};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use std::{fs, process, thread};

/// How long a command may take to end after the request.
const GRACE: Duration = Duration::from_secs(10);

const MARK: &str = "XTASK_WATCHED";

enum Event {
    Line(String),
    /// Nobody holds its standard output any more.
    Closed,
    Ended(std::io::Result<ExitStatus>),
}

/// Which output of a command is captured. It shares its input and the rest with this process.
#[derive(Clone, Copy)]
pub(crate) enum Output {
    Standard,
    /// Standard output and standard error together, as on a terminal.
    Both,
}

/// Runs the command until it and all writers of its output have ended. The output goes to `show` line by
/// line.
pub(crate) fn run(
    command: &mut Command,
    limit: Duration,
    output: Output,
    mut show: impl FnMut(&str),
) -> Result<ExitStatus> {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    // All processes that it starts inherit this variable, so that those that outlive it can be found.
    let mark = format!("{MARK}={}-{}", process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
    let (reader, writer) = pipe().context("cannot make a pipe")?;
    if let Output::Both = output {
        command.stderr(writer.try_clone().context("cannot make a pipe")?);
    }
    let child = command
        .env(MARK, &mark[MARK.len() + 1..])
        .stdout(writer)
        .spawn()
        .with_context(|| format!("cannot run {}", workspace::line(command)))?;
    // The command itself would hold the pipe open.
    command.stdout(Stdio::null()).stderr(Stdio::inherit());
    let pid = child.id();
    let events = follow(child, reader);

    let begun = Instant::now();
    let mut closed = false;
    let mut ended = None;
    while !closed || ended.is_none() {
        match events.recv_timeout(limit.saturating_sub(begun.elapsed())) {
            Ok(Event::Line(line)) => show(&line),
            Ok(Event::Closed) => closed = true,
            Ok(Event::Ended(status)) => ended = Some(status.context("cannot wait for a command")?),
            Err(RecvTimeoutError::Timeout) => {
                end_all(ended.is_none().then_some(pid), &mark, &events);
                bail!("{} was not done after {} s and was ended", workspace::line(command), limit.as_secs());
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    ended.context("a command's end went unseen")
}

fn follow(mut child: Child, output: PipeReader) -> Receiver<Event> {
    let (to, events) = channel();
    let of_lines: Sender<Event> = to.clone();
    thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            let _gone = of_lines.send(Event::Line(line.trim_end_matches('\r').to_owned()));
        }
        let _gone = of_lines.send(Event::Closed);
    });
    thread::spawn(move || to.send(Event::Ended(child.wait())));
    events
}

/// Asks all processes of the command to end, then kills them.
fn end_all(child: Option<u32>, mark: &str, events: &Receiver<Event>) {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        for pid in family(child, mark) {
            end(pid, signal);
        }
        let asked = Instant::now();
        // The channel closes when the last of them is gone, because both threads of `follow` end then.
        while let Ok(_event) = events.recv_timeout(GRACE.saturating_sub(asked.elapsed())) {}
    }
}

fn end(pid: u32, signal: Signal) {
    let Ok(raw) = i32::try_from(pid) else { return };
    // A process of root is ended through sudo. One that is gone already is no error.
    if kill(Pid::from_raw(raw), signal) == Err(Errno::EPERM) {
        let _gone = root::command("kill").args(["-s", &signal.as_str()[3..], &pid.to_string()]).status();
    }
}

/// Finds the command, all processes with its mark, and their descendants, in any process group or session.
fn family(child: Option<u32>, mark: &str) -> Vec<u32> {
    let mut found: Vec<u32> = child.into_iter().collect();
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A user cannot read the environment of root's processes. They are found as descendants of sudo.
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes()) {
            found.push(pid);
        } else if let Ok(stat) = fs::read_to_string(entry.path().join("stat"))
            && let Some(parent) = parent(&stat)
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    found
}

/// Returns the parent from `/proc/PID/stat`. State and parent follow the name, which may contain any
/// characters.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{Output, parent, run};
    use std::process::Command;
    use std::time::{Duration, Instant};

    #[test]
    fn a_name_may_hold_anything() {
        assert_eq!(parent("7 (a) b) S 3 7 7 0 -1"), Some(3));
        assert_eq!(parent("7 (a"), None);
    }

    #[test]
    fn lines_and_status_come_through() {
        let mut lines = Vec::new();
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; printf 'two\\r\\nthree'; exit 3"]);
        let status =
            run(&mut command, Duration::from_secs(60), Output::Standard, |line| lines.push(line.to_owned()))
                .unwrap();
        assert_eq!((status.code(), lines.join(" ")), (Some(3), "one two three".to_owned()));
    }

    #[test]
    fn all_of_a_command_is_ended_at_its_limit() {
        let begun = Instant::now();
        let mut command = Command::new("sh");
        // It is found although it is orphaned and in its own session.
        command.args(["-c", "setsid sh -c 'sleep 600' & exit 0"]);
        let error =
            run(&mut command, Duration::from_millis(200), Output::Standard, |_| {}).unwrap_err().to_string();
        assert!(error.contains("was not done"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
}
