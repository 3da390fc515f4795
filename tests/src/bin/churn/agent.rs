//! An agent as it runs on a node: events as JSON to a file, findings in a state directory, the API on a socket.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::net::UnixStream,
    path::Path,
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use tempfile::TempDir;
use tests::{clock, http, machine, program};

/// `run` prints this line once all hooks are attached and tested.
const ATTACHED: &str = "confined:";

/// A running agent. [`Agent::end`] ends it normally. Dropping it kills it.
pub(crate) struct Agent {
    child: Child,
    stderr: Option<JoinHandle<String>>,
    /// The time from its start until its hooks were attached and tested.
    pub(crate) attached: Duration,
    /// The time from its start until `/readyz` was 200.
    pub(crate) ready: Duration,
    _place: TempDir,
}

impl Agent {
    /// Starts it and waits until it is ready.
    pub(crate) fn start() -> Result<Self> {
        let place = tempfile::tempdir()?;
        let socket = place.path().join("agent.sock");
        let begun = Instant::now();
        let mut child = Command::new(program::path("sandprobe")?)
            .args(["run", "--output", "json", "--listen", "none", "--state-dir"])
            .arg(place.path().join("state"))
            .arg("--socket")
            .arg(&socket)
            .stdin(Stdio::null())
            .stdout(File::create(place.path().join("events"))?)
            .stderr(Stdio::piped())
            .spawn()
            .context("start the agent")?;
        let stderr = child.stderr.take().context("its standard error was asked for")?;
        let mut agent =
            Self { child, stderr: None, attached: Duration::ZERO, ready: Duration::ZERO, _place: place };
        let mut stderr = BufReader::new(stderr);
        let mut line = String::new();
        while !line.starts_with(ATTACHED) {
            line.clear();
            ensure!(stderr.read_line(&mut line)? > 0, "the agent ended before its hooks were attached");
        }
        agent.attached = begun.elapsed();
        agent.stderr = Some(thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).map_or_else(|error| error.to_string(), |_| text)
        }));
        clock::poll("the agent is ready", machine::patience(), || Ok(is_ready(&socket).then_some(())))?;
        agent.ready = begun.elapsed();
        Ok(agent)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn end(mut self) -> Result<()> {
        signal::kill(Pid::from_raw(i32::try_from(self.pid())?), Signal::SIGTERM)?;
        let status = self.child.wait()?;
        let stderr = self.stderr.take().map(JoinHandle::join).transpose();
        let stderr = stderr.map_err(|_panic| anyhow!("the reader panicked"))?.unwrap_or_default();
        ensure!(status.success(), "the agent ended with {status}: {stderr}");
        Ok(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // After `end` there is nothing left to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_ready(socket: &Path) -> bool {
    let answer = UnixStream::connect(socket).ok().map(|stream| http::get(stream, "/readyz", &[]));
    answer.is_some_and(|answer| answer.is_ok_and(|answer| answer.status == 200))
}
