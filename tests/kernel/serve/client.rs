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
use tests::{clock, http, machine, refusal};

use crate::{agent::agent, confine};

/// A running agent; it prints nothing that anybody reads.
pub(super) struct Agent {
    pub(super) address: SocketAddr,
    child: Child,
    said: Option<JoinHandle<String>>,
    place: TempDir,
}

impl Agent {
    /// Until it has attached its hooks and is ready.
    pub(super) fn start() -> Result<Self> {
        Self::start_with("none", &[], Stdio::null(), "/readyz")
    }

    /// With more arguments; it is alive, and not all of the node has been read yet.
    pub(super) fn alive(arguments: &[&str]) -> Result<Self> {
        Self::start_with("none", arguments, Stdio::null(), "/healthz")
    }

    /// The same with the stream of events going there.
    pub(super) fn with_output(output: Stdio) -> Result<Self> {
        Self::start_with("none", &[], output, "/readyz")
    }

    /// One that keeps what it has found below `state`.
    pub(super) fn with_state(state: &str) -> Result<Self> {
        Self::start_with(state, &[], Stdio::null(), "/readyz")
    }

    /// Until it answers that path with 200.
    fn start_with(state: &str, arguments: &[&str], output: Stdio, path: &str) -> Result<Self> {
        let place = tempfile::tempdir()?;
        // One that is free now.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut child = Command::new(agent()?)
            .args(["run", "--output", "json", "--state-dir", state, "--listen", &address.to_string()])
            .arg("--socket")
            .arg(place.path().join("agent.sock"))
            .args(arguments)
            .stdout(output)
            .stderr(Stdio::piped())
            .spawn()
            .context("start the agent")?;
        let mut words = child.stderr.take().context("no output")?;
        let said = thread::spawn(move || {
            let mut text = String::new();
            words.read_to_string(&mut text).map_or_else(|error| error.to_string(), |_| text)
        });
        let agent = Self { address, child, said: Some(said), place };
        clock::poll("the agent is ready", machine::patience(), || Ok(get(address, path).ok()))?;
        Ok(agent)
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it answers on its socket.
    pub(super) fn ask(&self, path: &str) -> Result<String> {
        http::get(UnixStream::connect(self.place.path().join("agent.sock"))?, path, &[])?.ok()
    }

    /// Sends it a signal.
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        Ok(signal::kill(Pid::from_raw(i32::try_from(self.child.id())?), signal)?)
    }

    /// Ends it in order; streams end with it, and its socket is gone.
    pub(super) fn end(self) -> Result<()> {
        let (ended, said) = self.ended()?;
        ensure!(ended.success(), "it ended with {ended}: {said}");
        Ok(())
    }

    /// Ends it in order, whatever it was that it could not do. Gives its exit status, and what it said.
    pub(super) fn ended(mut self) -> Result<(ExitStatus, String)> {
        self.signal(Signal::SIGTERM)?;
        let ended = self.child.wait()?;
        let said = self.said.take().context("it has ended before")?;
        let said = said.join().map_err(|_panic| anyhow!("the reader panicked"))?;
        refusal::check(&said)?;
        // Without Landlock nobody may remove a file (docs/security.md).
        let stays = self.place.path().join("agent.sock").exists();
        ensure!(stays != confine::has_landlock()?, "its socket is there: {stays}");
        Ok((ended, said))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Only where a check has failed is there anything left to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The body of an answer, if it is 200.
pub(super) fn get(address: SocketAddr, path: &str) -> Result<String> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    http::get(stream, path, &[])?.ok()
}

/// One who follows the events.
pub(super) struct Stream(BufReader<TcpStream>);

impl Stream {
    /// By HTTP/1.0, so that nothing is in pieces. The stream's own first record was read when this returns.
    pub(super) fn open(agent: &Agent, path: &str) -> Result<Self> {
        let mut stream = TcpStream::connect(agent.address)?;
        stream.set_read_timeout(Some(machine::patience()))?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes())?;
        let mut stream = Self(BufReader::new(stream));
        loop {
            let line = stream.line()?.context("it ended before it began")?;
            if line.contains("stream.opened") {
                return Ok(stream);
            }
        }
    }

    /// `None`: it has ended.
    pub(super) fn line(&mut self) -> Result<Option<String>> {
        let mut line = String::new();
        let length = self.0.read_line(&mut line)?;
        Ok((length > 0).then_some(line))
    }
}
