//! An agent as it runs on a node: pinned hooks, events as JSON to a file or a pipe, findings in a state
//! directory, the API on a socket.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use tempfile::TempDir;
use tests::{clock, http, machine, succession::Place};

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
    socket: PathBuf,
    _folder: TempDir,
    /// Its pins and its state.
    _place: Place,
}

impl Agent {
    /// Starts the agent and waits until it is ready. `output` gets the path of the agent's own folder and
    /// returns the agent's standard output.
    pub(crate) fn start(output: impl FnOnce(&Path) -> Result<Stdio>) -> Result<Self> {
        let (folder, place) = (tempfile::tempdir()?, Place::new()?);
        let socket = folder.path().join("agent.sock");
        let begun = Instant::now();
        let mut child = place
            .command("run")?
            .args(["--output", "json", "--listen", "none", "--state-dir"])
            .arg(place.state())
            .arg("--socket")
            .arg(&socket)
            .stdin(Stdio::null())
            .stdout(output(folder.path())?)
            .stderr(Stdio::piped())
            .spawn()
            .context("start the agent")?;
        let stderr = child.stderr.take().context("its standard error was asked for")?;
        let mut agent = Self {
            child,
            stderr: None,
            attached: Duration::ZERO,
            ready: Duration::ZERO,
            socket,
            _folder: folder,
            _place: place,
        };
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
        clock::poll("the agent is ready", machine::patience(), || Ok(agent.get("/readyz").ok()))?;
        agent.ready = begun.elapsed();
        Ok(agent)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the body of its answer to a request.
    pub(crate) fn get(&self, path: &str) -> Result<String> {
        http::get(UnixStream::connect(&self.socket)?, path, &[])?.ok()
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
