//! The state is on a disk that fails. The agent runs on and says so once, and reports everything exactly
//! once.

mod disk;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::PathBuf,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::{
    clock, machine, program, skipped,
    stream::is_unheard,
    succession::{End, Place, Run, check_numbers},
};

use self::disk::{Dying, Pausing, drop_caches};
use crate::pinned::{make_namespaces, without_skipped_runs};

/// The number of network namespaces that are made at a time.
const NAMESPACES: usize = 10;
/// The files of the state that are written continuously.
const FILES: [&str; 2] = ["the engine's state", "the history of boots"];

fn said(run: &Run) -> Result<String> {
    Ok(fs::read_to_string(&run.errors)?)
}

/// Waits until the agent has said this about each of [`FILES`]. The agent tries again after half a minute.
fn until_said(run: &Run, what: &str) -> Result<()> {
    let limit = machine::patience() + Duration::from_secs(30);
    let told = clock::poll(what, limit, || {
        make_namespaces(1)?;
        thread::sleep(Duration::from_millis(90));
        let said = said(run)?;
        Ok(FILES.iter().all(|file| said.contains(&format!("{file} {what}"))).then_some(()))
    });
    told.with_context(|| said(run).unwrap_or_default())
}

/// Returns how many namespaces of this process the events report, each of them once.
fn own_namespaces(events: &[Value]) -> Result<usize> {
    let mut told: BTreeMap<(&str, u64), usize> = BTreeMap::new();
    for event in events.iter().filter(|event| event["event"] == "netns.created") {
        if event["process"]["pid"] == std::process::id() {
            let at = event["boot_ns"].as_str().context("no time")?;
            *told.entry((at, event["netns"]["inode"].as_u64().context("no inode")?)).or_default() += 1;
        }
    }
    let twice: Vec<_> = told.iter().filter(|(_, count)| **count > 1).collect();
    ensure!(twice.is_empty(), "told more than once: {twice:?}");
    Ok(told.len())
}

/// Runs an agent to its normal end, and returns all events until then.
fn run_to_end(place: &mut Place, arguments: &[&str]) -> Result<Vec<Value>> {
    let mut last = place.run(arguments)?;
    last.attached()?;
    let status = last.end(End::Stopped)?;
    ensure!(status.success(), "{status}\n{}", place.errors());
    place.events()
}

fn gaps(events: &[Value]) -> Vec<&Value> {
    events.iter().filter(|event| event["event"] == "gap" && !is_unheard(event)).collect()
}

/// The kernel accepts a write and may lose it later. Without a sync an agent would not know.
#[test]
fn what_a_disk_lost_is_written_again_once_it_works() -> Result<()> {
    without_skipped_runs(|| {
        let mut place = Place::new()?;
        let disk = Pausing::mount(&place.state())?;
        let mut first = place.run(&[])?;
        first.attached()?;
        make_namespaces(NAMESPACES)?;
        disk.fail()?;
        until_said(&first, "cannot be kept")?;
        disk.work()?;
        until_said(&first, "can be kept")?;
        let said = said(&first)?;
        // Successful writes may also be only in memory.
        drop_caches()?;
        make_namespaces(NAMESPACES)?;
        first.end(End::Killed)?;
        let mut last = place.run(&[])?;
        last.attached()?;
        let status = last.end(End::Stopped)?;
        ensure!(status.success(), "{status}\n{}", place.errors());
        for file in FILES {
            let lines = said.lines().filter(|line| line.contains(&format!("{file} cannot be kept")));
            let lines: Vec<&str> = lines.collect();
            ensure!(lines.len() == 1 && lines[0].contains("; the disk fails, and "), "{lines:?}");
        }
        let all = place.events()?;
        if skipped::is_told(&all) {
            return Ok(false);
        }
        ensure!(gaps(&all).is_empty(), "{:#?}\n{}", gaps(&all), place.errors());
        ensure!(!place.errors().contains("cannot be read"), "{}", place.errors());
        let (events, _) = check_numbers(all).with_context(|| place.errors())?;
        ensure!(own_namespaces(&events)? >= 2 * NAMESPACES, "{}", place.shown());
        Ok(true)
    })
}

/// Agents come and go on a dead disk. The first agent with the repaired disk continues with the state on it,
/// and reports since when it knows nothing.
#[test]
fn a_disk_that_dies_stops_no_agent() -> Result<()> {
    let mut place = Place::new()?;
    let mut disk = Dying::mount(&place.state())?;
    let mut first = place.run(&[])?;
    first.attached()?;
    make_namespaces(NAMESPACES)?;
    let told = |place: &Place, count: usize| {
        clock::poll("the namespaces", machine::patience(), || {
            Ok((own_namespaces(&place.events()?)? >= count).then_some(()))
        })
    };
    told(&place, NAMESPACES)?;
    disk.die()?;
    until_said(&first, "cannot be kept")?;
    drop_caches()?;
    let before = own_namespaces(&place.events()?)?;
    make_namespaces(NAMESPACES)?;
    told(&place, before + NAMESPACES)?;
    first.end(End::Killed)?;

    let mut second = place.run(&[])?;
    second.attached()?;
    let before = own_namespaces(&place.events()?)?;
    make_namespaces(NAMESPACES)?;
    told(&place, before + NAMESPACES)?;
    let errors = second.errors.clone();
    let status = second.end(End::Stopped)?;
    let said = fs::read_to_string(&errors)?;
    ensure!(status.success(), "{status}: {said}");
    let unread = |line: &&str| line.contains("the engine's state in ") && line.contains("cannot be read");
    ensure!(said.lines().filter(unread).count() == 1, "{said}");
    ensure!(!said.contains("it was removed"), "{said}");
    // This agent knew nothing of the first one's state.
    let lost = |gap: &&Value| gap["gap"]["what"] == "state" && gap["gap"]["lasted_ns"].is_string();
    let events = place.events()?;
    ensure!(gaps(&events).iter().filter(|gap| lost(gap)).count() == 1, "{:#?}\n{said}", gaps(&events));

    disk.repair()?;
    let mut last = place.run(&[])?;
    last.attached()?;
    let before = place.events()?.len();
    make_namespaces(NAMESPACES)?;
    let status = last.end(End::Stopped)?;
    ensure!(status.success(), "{status}\n{}", place.errors());
    // An agent without the state continues the sequence numbers, because the hooks have the last one. The
    // state on the disk is older than the last reported event, and of no use.
    let (events, _) = check_numbers(place.events()?).with_context(|| place.errors())?;
    own_namespaces(&events)?;
    let gaps = gaps(&events);
    ensure!(gaps.iter().filter(|gap| lost(gap)).count() == 2, "{before} {gaps:#?}\n{}", place.errors());
    Ok(())
}

/// The hooks show that there was an agent, but its state is gone.
#[test]
fn a_state_that_is_gone_or_damaged_is_told_as_a_gap() -> Result<()> {
    without_skipped_runs(|| {
        let damages: [fn(PathBuf) -> io::Result<()>; 2] =
            [fs::remove_file, |state| fs::write(state, "no state\n")];
        for damage in damages {
            let mut place = Place::new()?;
            let mut first = place.run(&[])?;
            first.attached()?;
            make_namespaces(NAMESPACES)?;
            clock::poll("the namespaces", machine::patience(), || {
                Ok((own_namespaces(&place.events()?)? >= NAMESPACES).then_some(()))
            })?;
            first.end(End::Killed)?;
            damage(place.state().join("engine.jsonl"))?;
            make_namespaces(NAMESPACES)?;
            let all = run_to_end(&mut place, &[])?;
            if skipped::is_told(&all) {
                return Ok(false);
            }
            let told: Vec<_> = gaps(&all).into_iter().map(|event| &event["gap"]).collect();
            let is_so =
                |gap: &&Value| gap["what"] == "state" && gap["count"] == "0" && gap["lasted_ns"].is_string();
            ensure!(told.len() == 1 && told.iter().all(is_so), "{told:#?}\n{}", place.errors());
            // Events from the time without an agent are reported all the same.
            let (events, _) = check_numbers(all).with_context(|| place.errors())?;
            ensure!(own_namespaces(&events)? >= 2 * NAMESPACES, "{}", place.shown());
        }
        Ok(true)
    })
}

/// The chart and the unit print only findings and gaps. An agent that printed nothing has reported everything
/// through its server.
#[test]
fn a_state_that_is_gone_is_told_where_nothing_else_was_printed() -> Result<()> {
    const ONLY_GAPS: [&str; 1] = ["--event=gap"];
    without_skipped_runs(|| {
        let mut place = Place::new()?;
        let mut first = place.run(&ONLY_GAPS)?;
        first.attached()?;
        make_namespaces(NAMESPACES)?;
        first.end(End::Stopped)?;
        fs::remove_file(place.state().join("engine.jsonl"))?;
        let all = run_to_end(&mut place, &ONLY_GAPS)?;
        if skipped::is_told(&all) {
            return Ok(false);
        }
        let gaps = gaps(&all);
        ensure!(gaps.len() == 1 && gaps[0]["gap"]["what"] == "state", "{gaps:#?}\n{}", place.errors());
        // The sequence numbers continue, though no line shows the last ones.
        let seq = gaps[0]["seq"].as_u64().context("no seq")?;
        ensure!(seq > u64::try_from(NAMESPACES)?, "{gaps:#?}");
        Ok(true)
    })
}

/// No file in the state directory can be read. Each reader names its file, and no file is replaced unread.
#[test]
fn files_that_cannot_be_read_are_named() -> Result<()> {
    let mut place = Place::new()?;
    let disk = Dying::mount(&place.state())?;
    let mut first = place.run(&[])?;
    first.attached()?;
    make_namespaces(NAMESPACES)?;
    first.end(End::Stopped)?;
    let opened: Vec<File> =
        fs::read_dir(place.state())?.map(|entry| Ok(File::open(entry?.path())?)).collect::<Result<_>>()?;
    disk.die()?;
    drop_caches()?;
    let mut second = place.run(&[])?;
    second.attached()?;
    make_namespaces(NAMESPACES)?;
    let errors = second.errors.clone();
    let status = second.end(End::Stopped)?;
    let said = fs::read_to_string(&errors)?;
    ensure!(status.success(), "{status}: {said}");
    for (file, what) in [("engine.jsonl", "cannot be read"), ("boots.jsonl", ""), ("heartbeat.json", "")] {
        let is_told = |line: &str| line.contains(file) && line.contains(what) && line.contains("os error 5");
        ensure!(said.lines().filter(|line| is_told(line)).count() == 1, "{file}: {said}");
    }
    for command in ["findings", "boot"] {
        let asked = std::process::Command::new(program::agent()?)
            .args([command, "--state-dir"])
            .arg(place.state())
            .output()?;
        let text = String::from_utf8_lossy(&asked.stderr);
        ensure!(asked.status.code() == Some(2) || asked.status.code() == Some(1), "{command}: {asked:?}");
        ensure!(text.contains("os error 5"), "{command}: {asked:?}");
    }
    drop(opened);
    Ok(())
}
