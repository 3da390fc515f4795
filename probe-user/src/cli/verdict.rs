//! `sandprobe verdict`: whether this node is well, in the form of a plugin of node-problem-detector.
//!
//! **Invariant:** standard output is one line of at most 80 bytes, and the exit code is right, whatever the
//! agent answers.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
};

use anyhow::{Context as _, anyhow};
use clap::Args;
use serde::Deserialize;

use super::{
    ExitStatus,
    args::{Form, made},
    client::{AgentArgs, VERDICT},
    output, say,
};
use crate::sink::{escape::escaped, state::file::not_plain};

/// The longest line, bytes: node-problem-detector cuts off the rest.
const MAX_LINE_BYTES: usize = 80;

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Verdict {
    /// The format of the output
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    output: Form,

    #[command(flatten)]
    agent: AgentArgs,

    /// Copy this program to FILE and do nothing else: for an init container, since the image has no shell
    #[arg(long, value_name = "FILE", conflicts_with = "output", value_parser = made())]
    copy_to: Option<PathBuf>,
}

const EXIT_CODES: &str = "\
Exit codes, those of a plugin of node-problem-detector:
  0  ok: no critical finding is confirmed
  1  not ok
  2  unknown: not everything is seen yet, or no agent answers";

/// What the agent answers, or why it cannot.
#[derive(Debug, Deserialize)]
pub(super) struct Answer {
    #[serde(default)]
    pub(super) status: Option<Status>,
    #[serde(default)]
    pub(super) message: Option<String>,
    #[serde(default)]
    pub(super) error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    Ok,
    NotOk,
    Unknown,
}

impl Verdict {
    pub(super) fn run(&self) -> anyhow::Result<ExitStatus> {
        if let Some(file) = &self.copy_to {
            return copy_to(file).map(|()| ExitStatus::Ok);
        }
        let body = match self.agent.ask_whether(VERDICT) {
            Ok(Some(body)) => body,
            Ok(None) => return self.unknown("no agent answers on this node", None),
            Err(error) => return self.unknown("the agent does not answer", Some(format!("{error:#}"))),
        };
        let answer: Result<Answer, _> = serde_json::from_slice(&body);
        let (status, message) = match answer {
            Ok(Answer { status: Some(status), message: Some(message), .. }) => (status, message),
            Ok(Answer { error: Some(error), .. }) => return self.unknown(&error, None),
            Ok(_) | Err(_) => {
                let where_from = self.agent.answer_at(VERDICT);
                let more = format!("{where_from} is not a verdict: it may be of another version");
                return self.unknown("the agent's answer is not a verdict", Some(more));
            }
        };
        match self.output {
            Form::Text => line(&message)?,
            Form::Json => output::write(&mut body.clone()).map(drop)?,
        }
        Ok(match status {
            Status::Ok => ExitStatus::Ok,
            Status::NotOk => ExitStatus::Incomplete,
            Status::Unknown => ExitStatus::CannotRun,
        })
    }

    /// Reports that there is no verdict, for the reason `why`; `more` is the same for a person. As JSON there
    /// is no document either, and the reason is on standard error.
    fn unknown(&self, why: &str, more: Option<String>) -> anyhow::Result<ExitStatus> {
        if self.output == Form::Text {
            line(why)?;
        }
        match more {
            Some(more) => say(&more),
            None if self.output == Form::Json => say(why),
            None => {}
        }
        Ok(ExitStatus::CannotRun)
    }
}

fn line(message: &str) -> anyhow::Result<()> {
    let message = escaped(message).to_string();
    let end = (0..=MAX_LINE_BYTES.min(message.len())).rev().find(|end| message.is_char_boundary(*end));
    let short = message.get(..end.unwrap_or_default()).unwrap_or_default();
    output::write(&mut format!("{short}\n").into_bytes()).map(drop)
}

/// Copies this program to a file. A reader finds either no program or the whole one. Anything there that is
/// not a regular file is left alone.
fn copy_to(file: &Path) -> anyhow::Result<()> {
    let name = file.file_name().ok_or_else(|| anyhow!("{} names no file", file.display()))?;
    if let Some(is) = not_plain(file) {
        return Err(anyhow!("{} is {is}: give another name", file.display()));
    }
    let own = env::current_exe().context("cannot find this program")?;
    let new = file.with_file_name(format!(".{}.{}", name.display(), process::id()));
    let done = fs::copy(&own, &new).and_then(|_| fs::rename(&new, file));
    if done.is_err() {
        // This temporary file is ours and is not needed.
        fs::remove_file(&new).ok();
    }
    done.with_context(|| format!("cannot copy {} to {}", own.display(), file.display()))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::copy_to;

    /// Root's `rename` would turn a device into a program.
    #[test]
    fn what_is_no_plain_file_is_not_replaced_by_the_copy() {
        let dir = tempfile::tempdir().expect("a folder");
        let [pipe, link, dangling, folder] =
            ["pipe", "link", "dangling", "folder"].map(|name| dir.path().join(name));
        mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe");
        symlink("pipe", &link).expect("a link");
        symlink("nothing", &dangling).expect("a link");
        fs::create_dir(&folder).expect("a folder");
        for (file, is) in [
            (&pipe, "a device, a pipe or a socket"),
            (&link, "a symbolic link"),
            (&dangling, "a symbolic link"),
            (&folder, "a directory"),
        ] {
            let kind = || fs::symlink_metadata(file).expect("it is there").file_type();
            let before = kind();
            let why = copy_to(file).expect_err("it is no plain file").to_string();
            let said = format!("{} is {is}, not a regular file: give another name", file.display());
            assert_eq!((why, kind()), (said, before));
        }
        assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 4, "nothing else is left");
    }
}
