//! Boots from recordings: the same rows on any machine.

use std::path::{Path, PathBuf};

use super::Row;
use crate::{
    cli::{
        replay::{open, unreadable},
        say,
    },
    engine::{
        Engine,
        boot::{Alive, Before, BootRead},
        time::Timestamp,
    },
    recording::{Call, Header, ReadError, Reader},
};

/// A row for each file; false: one of them was cut off.
pub(super) fn rows(files: &[PathBuf]) -> anyhow::Result<(Vec<Row>, bool)> {
    let mut rows: Vec<Row> = Vec::new();
    let (mut is_whole, mut last) = (true, None);
    for file in files {
        let (header, engine, now, whole) = read(file)?;
        is_whole &= whole;
        let mut recovery = engine.recovery().clone();
        let boot = recovery.boot.get_or_insert_with(|| BootRead {
            boot_id: header.boot_id.clone(),
            kernel: header.kernel.clone(),
            boot_wall_ns: header.boot_wall_ns,
            before: Before::default(),
        });
        // What was kept on the node goes before what the recording before it tells.
        if boot.before == Before::default() {
            boot.before = Before::of(rows.last().map(|row| &row.recovery), last.take());
        }
        last = Some(Alive {
            boot_id: boot.boot_id.clone(),
            wall_ns: boot.boot_wall_ns.saturating_add_unsigned(now.0),
            pods: engine.standing(),
        });
        rows.push(Row::new(header.node, recovery, now));
    }
    Ok((rows, is_whole))
}

/// The engine as it is at the end, and when that is. What is whole of a recording that was cut off counts.
fn read(file: &Path) -> anyhow::Result<(Header, Engine, Timestamp, bool)> {
    let mut reader = Reader::open(open(file)?).map_err(|error| unreadable(file, &error))?;
    let header = reader.header().clone();
    let mut engine = Engine::new(header.settings.clone());
    let (mut now, mut is_whole) = (Timestamp::ZERO, true);
    loop {
        match reader.next_call() {
            Ok(Some(Call::Observe(seen))) => {
                now = now.max(seen.at);
                engine.observe(seen);
            }
            Ok(Some(Call::Advance(at))) => {
                now = now.max(at);
                engine.advance(at);
            }
            Ok(None) => break,
            Err(error @ ReadError::CutOff { .. }) => {
                say(&unreadable(file, &error).to_string());
                is_whole = false;
                break;
            }
            Err(error) => return Err(unreadable(file, &error)),
        }
        while engine.poll().is_some() {}
    }
    engine.advance(now);
    Ok((header, engine, now, is_whole))
}
