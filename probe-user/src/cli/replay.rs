//! `sandprobe replay`: prints the events of a recording again, byte for byte.

use std::{
    io::{self, BufRead},
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use clap::Args;

use super::{
    ExitStatus,
    args::Shown,
    input::{self, packed},
    output::{self, Reader as Audience},
    say,
};
use crate::{
    engine::Engine,
    recording::{ReadError, Reader},
    replay::{Pace, ReplayError, Replayed, Step, replay, to_end},
    session::Session,
};

#[derive(Debug, Args)]
pub(super) struct Replay {
    /// The recording; "-" is standard input
    file: PathBuf,

    /// Replay at the original pace, not as fast as possible
    #[arg(long)]
    pace: bool,

    #[command(flatten)]
    shown: Shown,
}

/// Bytes of output that are collected before they are written, unless somebody waits for them.
const CHUNK: usize = 64 << 10;

/// Why the replay stops.
enum Stopped {
    AudienceGone,
    Failed(anyhow::Error),
}

impl Replay {
    pub(super) fn run(&self) -> anyhow::Result<ExitStatus> {
        let mut reader = Reader::open(open(&self.file)?).map_err(|error| unreadable(&self.file, &error))?;
        let mut session =
            Session::new(reader.header(), self.shown.filter(), output::format(self.shown.output));
        if let Some(rate) = self.shown.rate() {
            session.limit(rate);
        }
        let (pace, chunk) = if self.pace { (Pace::Then, 0) } else { (Pace::FlatOut, CHUNK) };
        let mut has_printed = false;
        let ended = replay(&mut reader, pace, |call| {
            session.call(call).map_err(|error| Stopped::Failed(error.into()))?;
            has_printed |= !session.output().is_empty();
            if session.output().len() > chunk { write(session.output()) } else { Ok(()) }
        });
        let cut_off = match ended {
            Ok(()) => None,
            Err(ReplayError::Make(Stopped::AudienceGone)) => return Ok(ExitStatus::Ok),
            Err(ReplayError::Make(Stopped::Failed(error))) => return Err(error),
            Err(ReplayError::Read(error)) => Some(error),
        };
        session.say_left_out(session.engine().now(), true);
        // Complete events are printed before the error.
        match write(session.output()) {
            Ok(()) => {}
            Err(Stopped::AudienceGone) => return Ok(ExitStatus::Ok),
            Err(Stopped::Failed(error)) => return Err(error),
        }
        let choice = self.shown.choice();
        if !has_printed && !choice.is_empty() {
            say(&format!("no event matched {choice}"));
        }
        match cut_off {
            None => Ok(ExitStatus::Ok),
            Some(error @ ReadError::CutOff { .. }) => {
                say(&unreadable(&self.file, &error).to_string());
                Ok(ExitStatus::Incomplete)
            }
            Some(error) => Err(unreadable(&self.file, &error)),
        }
    }
}

/// Replays a recording to its end.
pub(super) fn replayed(file: &Path) -> anyhow::Result<Replayed> {
    replayed_with(file, |_, _| {})
}

/// Replays a recording to its end, as [`to_end`] does.
pub(super) fn replayed_with(file: &Path, take: impl FnMut(&Engine, Step)) -> anyhow::Result<Replayed> {
    let reader = Reader::open(open(file)?);
    reader.and_then(|mut reader| to_end(&mut reader, take)).map_err(|error| unreadable(file, &error))
}

fn open(file: &Path) -> anyhow::Result<Box<dyn BufRead>> {
    let mut reader: Box<dyn BufRead> = if file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        let opened = input::open(file).with_context(|| format!("cannot open {}", file.display()))?;
        // Opening a directory works, reading it does not.
        let about = opened.get_ref().metadata();
        if about.with_context(|| format!("cannot read {}", file.display()))?.is_dir() {
            return Err(anyhow!(
                "{} is a directory: give the file that sandprobe record wrote",
                file.display()
            ));
        }
        Box::new(opened)
    };
    // Whoever reads the lines reports what cannot be read.
    match reader.fill_buf().ok().and_then(|head| packed(file, head)) {
        Some(error) => Err(error),
        None => Ok(reader),
    }
}

pub(super) fn unreadable(file: &Path, error: &ReadError) -> anyhow::Error {
    anyhow!("{}: {error}", file.display())
}

fn write(bytes: &mut Vec<u8>) -> Result<(), Stopped> {
    match output::write(bytes) {
        Ok(Audience::There) => Ok(()),
        Ok(Audience::Gone) => Err(Stopped::AudienceGone),
        Err(error) => Err(Stopped::Failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::replayed;

    #[test]
    fn a_compressed_recording_is_said_to_be_one() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("recording");
        for head in [&b"\x1f\x8b\x08\0"[..], b"\x28\xb5\x2f\xfd\0", b"\xfd7zXZ\0\0"] {
            fs::write(&file, head).expect("a file");
            let why = replayed(&file).err().expect("it is none").to_string();
            let said = " is compressed: give it as <(zcat FILE), <(zstdcat FILE) or <(xzcat FILE)";
            assert_eq!(why, format!("{}{said}", file.display()));
        }
    }
}
