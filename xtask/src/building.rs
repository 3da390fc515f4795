//! Runs cargo, and shows how far a build is: one line that changes on a terminal, a line at each end
//! elsewhere.

use crate::workspace;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::io::{self, BufReader, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// A program that cargo built.
pub(crate) struct Executable {
    pub(crate) name: String,
    /// The file of its `main`.
    pub(crate) source: PathBuf,
    pub(crate) path: PathBuf,
}

/// How often the line on a terminal changes, to show that the build is at work.
const TICK: Duration = Duration::from_secs(1);

/// Runs a `cargo build` or `cargo test --no-run`, and returns the programs that it built, by the paths in
/// cargo's messages. `what` names them to the user.
pub(crate) fn executables(what: &str, cargo: &mut Command) -> Result<Vec<Executable>> {
    cargo.args(["--quiet", "--message-format=json-render-diagnostics"]);
    let mut child = cargo.stdout(Stdio::piped()).spawn().context("cannot run cargo")?;
    let stdout = child.stdout.take().context("cargo has no output")?;
    let (sender, messages) = mpsc::channel();
    let reader = thread::spawn(move || {
        for message in serde_json::Deserializer::from_reader(BufReader::new(stdout)).into_iter::<Value>() {
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    let mut progress = Progress::new(what);
    let mut built = Vec::new();
    loop {
        match messages.recv_timeout(TICK) {
            Ok(message) => {
                let message = message.context("cargo's messages are not JSON")?;
                progress.count(&message);
                if let Some(path) = message["executable"].as_str()
                    && let Some(name) = message["target"]["name"].as_str()
                    && let Some(source) = message["target"]["src_path"].as_str()
                {
                    built.push(Executable {
                        name: name.to_owned(),
                        source: source.into(),
                        path: path.into(),
                    });
                }
            }
            Err(RecvTimeoutError::Timeout) => progress.show(),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    reader.join().ok().context("the reader of cargo's messages panicked")?;
    let status = child.wait().context("cannot wait for cargo")?;
    progress.end();
    ensure!(status.success(), "{} ended with {status}", workspace::line(cargo));
    Ok(built)
}

struct Progress<'a> {
    what: &'a str,
    begun: Instant,
    /// The number of crates that this build compiled.
    compiled: usize,
    is_terminal: bool,
}

impl<'a> Progress<'a> {
    fn new(what: &'a str) -> Self {
        Self { what, begun: Instant::now(), compiled: 0, is_terminal: io::stderr().is_terminal() }
    }

    /// Counts a crate if the message says that one was compiled.
    fn count(&mut self, message: &Value) {
        if message["reason"] != "compiler-artifact" || message["fresh"] != false {
            return;
        }
        self.compiled += 1;
        if self.compiled == 1 && !self.is_terminal {
            self.say(format_args!("building {}\n", self.what));
        }
    }

    fn show(&self) {
        if self.is_terminal {
            self.say(format_args!("\r\x1b[Kbuilding {}", self.figures()));
        }
    }

    /// Prints nothing for a build that had nothing to do.
    fn end(&self) {
        let clear = if self.is_terminal { "\r\x1b[K" } else { "" };
        if self.compiled > 0 {
            self.say(format_args!("{clear}built {}\n", self.figures()));
        } else {
            self.say(format_args!("{clear}"));
        }
    }

    fn figures(&self) -> String {
        let seconds = self.begun.elapsed().as_secs();
        format!("{}: {} crates, {} min {:02} s", self.what, self.compiled, seconds / 60, seconds % 60)
    }

    /// Ignores errors: a build does not fail because its progress cannot be shown.
    fn say(&self, text: std::fmt::Arguments<'_>) {
        let mut stderr = io::stderr().lock();
        let _ = stderr.write_fmt(text).and_then(|()| stderr.flush());
    }
}
