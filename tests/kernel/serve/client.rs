//! An agent that serves, and simple clients of it.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    process::{Child, Command, ExitStatus, Stdio},
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use tempfile::TempDir;
use tests::{clock, http, machine, program, refusal};

use crate::confine;

/// A running agent. Nobody reads its events.
pub(super) struct Agent {
    pub(super) address: SocketAddr,
    child: Child,
    printed: Option<JoinHandle<String>>,
    place: TempDir,
}

impl Agent {
    /// Starts it and waits until its hooks are attached and it is ready.
    pub(super) fn start() -> Result<Self> {
        Self::start_with("none", &[], Stdio::null(), "/readyz")
    }

    /// Starts it with more arguments. It is alive, and may not have read all of the node yet.
    pub(super) fn alive(arguments: &[&str]) -> Result<Self> {
        Self::start_with("none", arguments, Stdio::null(), "/healthz")
    }

    /// Starts it with `output` as its standard output for events.
    pub(super) fn with_output(output: Stdio) -> Result<Self> {
        Self::start_with("none", &[], output, "/readyz")
    }

    /// Starts it with the state directory `state`.
    pub(super) fn with_state(state: &str) -> Result<Self> {
        Self::start_with(state, &[], Stdio::null(), "/readyz")
    }

    /// Waits until it answers `path` with 200.
    pub(super) fn start_with(state: &str, arguments: &[&str], output: Stdio, path: &str) -> Result<Self> {
        let place = tempfile::tempdir()?;
        // Picks a free port.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut child = Command::new(program::agent()?)
            .args([
                "run",
                "--no-pin",
                "--output",
                "json",
                "--state-dir",
                state,
                "--listen",
                &address.to_string(),
            ])
            .arg("--socket")
            .arg(place.path().join("agent.sock"))
            .args(arguments)
            .stdout(output)
            .stderr(Stdio::piped())
            .spawn()
            .context("start the agent")?;
        let mut stderr = child.stderr.take().context("no output")?;
        let printed = thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).map_or_else(|error| error.to_string(), |_| text)
        });
        let agent = Self { address, child, printed: Some(printed), place };
        clock::poll("the agent is ready", machine::patience(), || Ok(get(address, path).ok()))?;
        Ok(agent)
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the answer on its socket.
    pub(super) fn ask(&self, path: &str) -> Result<String> {
        http::get(UnixStream::connect(self.place.path().join("agent.sock"))?, path, &[])?.ok()
    }

    /// Sends it a signal.
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        Ok(signal::kill(Pid::from_raw(i32::try_from(self.child.id())?), signal)?)
    }

    /// Ends it normally, which ends the streams and removes its socket.
    pub(super) fn end(self) -> Result<()> {
        let (ended, printed) = self.ended()?;
        ensure!(ended.success(), "the agent ended with {ended}: {printed}");
        Ok(())
    }

    /// Ends it. Returns its exit status and its standard error.
    pub(super) fn ended(mut self) -> Result<(ExitStatus, String)> {
        self.signal(Signal::SIGTERM)?;
        let ended = self.child.wait()?;
        let printed = self.printed.take().context("the agent has already ended")?;
        let printed = printed.join().map_err(|_panic| anyhow!("the reader panicked"))?;
        refusal::check(&printed)?;
        // Without Landlock no thread may remove a file (docs/security.md).
        let stays = self.place.path().join("agent.sock").exists();
        ensure!(stays != confine::has_landlock()?, "whether its socket stays: {stays}");
        Ok((ended, printed))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // The agent still runs only if a check has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the body of an answer, if it is 200.
pub(super) fn get(address: SocketAddr, path: &str) -> Result<String> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    http::get(stream, path, &[])?.ok()
}

/// A client that follows the events.
pub(super) struct Stream(BufReader<TcpStream>);

impl Stream {
    /// Uses HTTP/1.0, so that the answer has no chunks. Returns after the stream's own first record.
    pub(super) fn open(agent: &Agent, path: &str) -> Result<Self> {
        let mut stream = TcpStream::connect(agent.address)?;
        stream.set_read_timeout(Some(machine::patience()))?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes())?;
        let mut stream = Self(BufReader::new(stream));
        loop {
            let line = stream.line()?.context("the stream ended before its first record")?;
            if line.contains("stream.opened") {
                return Ok(stream);
            }
        }
    }

    /// Returns the next line. `None`: the stream has ended.
    pub(super) fn line(&mut self) -> Result<Option<String>> {
        let mut line = String::new();
        let length = self.0.read_line(&mut line)?;
        Ok((length > 0).then_some(line))
    }
}
