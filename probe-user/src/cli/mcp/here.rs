//! The node on which the server runs, or a recording of one.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::ensure;
use clap::Args;

use super::{Nodes, Reply, serve, tool::Call};
use crate::cli::{
    CANNOT, ExitStatus,
    child::{self, Limits, Output},
};

/// This program, even if its file was replaced by that of another version.
const PROGRAM: &str = "/proc/self/exe";
/// How long a call may take. Clients give up after a minute.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(in crate::cli) struct Mcp {
    /// Answer from a recording instead of this node
    #[arg(long, value_name = "FILE")]
    recording: Option<PathBuf>,
}

const HELP: &str = "\
It answers on standard output what a client asks on standard input, and ends when that does. The variables
SANDPROBE_SOCKET and SANDPROBE_STATE_DIR say where the agent is, as for other commands. docs/mcp.md says how a client
starts it.";

impl Mcp {
    pub(in crate::cli) fn run(self, known: Option<PathBuf>) -> anyhow::Result<ExitStatus> {
        let is_input = self.recording.as_deref() == Some(Path::new("-"));
        ensure!(!is_input, "the recording cannot be standard input, on which the client asks: give a file");
        serve(&Here { known, recording: self.recording })?;
        Ok(ExitStatus::Ok)
    }
}

struct Here {
    known: Option<PathBuf>,
    recording: Option<PathBuf>,
}

impl Nodes for Here {
    fn is_cluster(&self) -> bool {
        false
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn ask(&self, call: &Call<'_>, limits: Limits<'_>) -> Result<Reply, String> {
        let mut more = Vec::new();
        if let Some(file) = &self.recording {
            let flag = call.tool.recording.as_ref().ok_or("a recording does not have this")?;
            if !flag.is_empty() {
                more.push(format!("{flag}={}", file.display()));
            }
        }
        let mut command = Command::new(PROGRAM);
        if let Some(known) = &self.known {
            command.arg("--known").arg(known);
        }
        command.args(call.words(&more));
        let Output { stdout, stderr, code } = child::run(command, "sandprobe", limits)?;
        let mut notes = Vec::new();
        for line in stderr.lines().filter(|line| !line.trim().is_empty()) {
            notes.push(line.strip_prefix("sandprobe: ").unwrap_or(line).to_owned());
        }
        let has_failed = code.is_none_or(|code| code >= i32::from(CANNOT));
        let has_answer = !(has_failed && stdout.is_empty());
        if has_failed && notes.is_empty() {
            notes.push(match code {
                Some(code) => format!("the command ended with exit code {code}"),
                None => "the command was killed by a signal".to_owned(),
            });
        }
        Ok(Reply { text: stdout, notes, has_answer })
    }
}
