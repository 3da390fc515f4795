//! The events in a log file that is renamed when it is full, while agents are killed.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::{
    machine,
    succession::{End, Place, Run, check_numbers},
};

use crate::pinned::make_namespaces;

/// Of one file, in bytes.
const SIZE: u64 = 16 << 10;
/// A line is shorter, in bytes.
const LINE: u64 = 4 << 10;

fn run(place: &Place, file: &Path) -> Result<Run> {
    let errors = file.with_extension("err");
    let mut command = place.command("run")?;
    command.args(["--listen", "none", "--socket", "none", "--log-size", "16KiB", "--log-keep", "1000"]);
    command.arg("--state-dir").arg(place.state()).arg("--log-file").arg(file);
    let child = command.stdout(Stdio::null()).stderr(fs::File::create(&errors)?).spawn()?;
    Ok(Run { child, errors })
}

/// The file and those that were renamed, the oldest first.
fn files(newest: &Path) -> Vec<PathBuf> {
    let renamed = (1..).map(|number| PathBuf::from(format!("{}.{number}", newest.display())));
    let mut all: Vec<PathBuf> = renamed.take_while(|file| file.exists()).collect();
    all.reverse();
    all.push(newest.to_owned());
    all
}

#[test]
fn a_log_has_each_event_whole_whatever_becomes_of_the_agents() -> Result<()> {
    let (place, folder) = (Place::new()?, tempfile::tempdir()?);
    let file = folder.path().join("events");
    for end in [End::Killed, End::Killed, End::Stopped] {
        let mut agent = run(&place, &file)?;
        agent.attached()?;
        make_namespaces(machine::share_of(100))?;
        agent.end(end)?;
    }
    let files = files(&file);
    let mut events: Vec<Value> = Vec::new();
    for file in &files {
        let (text, metadata) = (fs::read_to_string(file)?, fs::metadata(file)?);
        ensure!(metadata.permissions().mode() & 0o777 == 0o600, "{metadata:?}");
        ensure!(metadata.len() < SIZE + LINE && text.ends_with('\n'), "{}: {metadata:?}", file.display());
        for line in text.lines() {
            events.push(serde_json::from_str(line).with_context(|| format!("{}: {line}", file.display()))?);
        }
    }
    ensure!(files.len() > 3, "{files:?}");
    let (events, _) = check_numbers(events)?;
    let made = events.iter().filter(|event| event["event"] == "netns.created").count();
    ensure!(made >= 3 * machine::share_of(100), "{made} namespaces");
    Ok(())
}
