//! The events in a log file that is renamed when it is full, while agents are killed.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, Result, ensure};
use nix::unistd::{Uid, chown};
use serde_json::Value;
use tests::{
    clock, machine,
    succession::{End, Place, Run, check_numbers},
};

use crate::pinned::make_namespaces;

/// The size of one file, in bytes.
const SIZE: u64 = 16 << 10;
/// The maximum length of a line, in bytes.
const LINE: u64 = 4 << 10;

/// Starts an agent with this log file. Its standard error goes to a file in the directory `said`.
fn run(place: &Place, file: &Path, said: &Path) -> Result<Run> {
    let errors = said.join("said");
    let mut command = place.command("run")?;
    command.args(["--listen", "none", "--socket", "none", "--log-size", "16KiB", "--log-keep", "1000"]);
    command.arg("--state-dir").arg(place.state()).arg("--log-file").arg(file);
    let child = command.stdout(Stdio::null()).stderr(fs::File::create(&errors)?).spawn()?;
    Ok(Run { child, errors })
}

/// Returns the file and the renamed ones, the oldest first.
fn files(newest: &Path) -> Vec<PathBuf> {
    let renamed = (1..).map(|number| PathBuf::from(format!("{}.{number}", newest.display())));
    let mut all: Vec<PathBuf> = renamed.take_while(|file| file.exists()).collect();
    all.reverse();
    all.push(newest.to_owned());
    all
}

#[test]
fn a_log_has_each_event_whole_whatever_becomes_of_the_agents() -> Result<()> {
    let (place, folder, said) = (Place::new()?, tempfile::tempdir()?, tempfile::tempdir()?);
    let file = folder.path().join("events");
    for end in [End::Killed, End::Killed, End::Stopped] {
        let mut agent = run(&place, &file, said.path())?;
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

#[test]
fn as_long_as_something_is_in_its_place_events_wait() -> Result<()> {
    let (place, folder, said) = (Place::new()?, tempfile::tempdir()?, tempfile::tempdir()?);
    let file = folder.path().join("events");
    let mut agent = run(&place, &file, said.path())?;
    agent.attached()?;
    fs::remove_file(&file)?;
    fs::create_dir(&file)?;
    let errors = agent.errors.clone();
    clock::poll("what is wrong", machine::patience(), || {
        make_namespaces(1)?;
        Ok(fs::read_to_string(&errors)?.contains("cannot write to").then_some(()))
    })?;
    make_namespaces(machine::share_of(20))?;
    fs::remove_dir(&file)?;
    clock::poll("what has waited", machine::patience(), || {
        let texts = files(&file).into_iter().filter_map(|file| fs::read_to_string(file).ok());
        let made: usize = texts.map(|text| text.matches("netns.created").count()).sum();
        Ok((made > machine::share_of(20)).then_some(()))
    })?;
    let status = agent.end(End::Stopped)?;
    ensure!(status.success(), "{status}: {}", fs::read_to_string(&errors)?);
    Ok(())
}

/// The writing thread has given up the rights with which root could write there.
#[test]
fn a_directory_that_is_not_roots_is_refused() -> Result<()> {
    let (place, folder, said) = (Place::new()?, tempfile::tempdir()?, tempfile::tempdir()?);
    chown(folder.path(), Some(Uid::from_raw(65534)), None)?;
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
    let mut agent = run(&place, &folder.path().join("events"), said.path())?;
    let (status, said) = (agent.child.wait()?, fs::read_to_string(&agent.errors)?);
    let told = said.lines().last().unwrap_or_default();
    ensure!(status.code() == Some(2) && told.contains("must belong to root"), "{status}: {said}");
    Ok(())
}
