//! The history of a node's boots on disk: `boots.jsonl`, with a line for each change of what is known of a
//! boot, of which the last line counts; and `heartbeat.json`, which is replaced as a whole.
//!
//! A line is `{"sum":"SUM","boot":BODY}`, with the FNV-1a hash of the body's bytes in 16 hex digits. A line
//! that power loss has damaged is recognized by its sum and skipped.
//!
//! **Invariant:** whatever the bytes are, every whole line in them is read.

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::{DisplayFromStr, serde_as};

use super::fixup;
use crate::model::{
    hash::fnv,
    recovery::{Recovery, RunningPods},
    time::Timestamp,
};

/// The version of the format. Members may be added within one version; removing or changing a member raises
/// it.
pub(crate) const SCHEMA: u32 = 2;

/// What is kept of one boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The version of the agent.
    pub made_by: String,
    pub node: String,
    pub recovery: Recovery,
}

/// The last sign of life.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    pub boot_id: String,
    #[serde_as(as = "DisplayFromStr")]
    pub boot_wall_ns: i64,
    pub at: Timestamp,
    /// The agent ended in order, since it was asked to.
    pub ended: bool,
    /// The pods that ran at that time.
    #[serde(flatten)]
    pub running: RunningPods,
}

/// The contents of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// One for each boot, in the order of their first lines.
    pub records: Vec<Record>,
    /// The numbers (from 1) of the lines that were skipped, each with the reason.
    pub skipped: Vec<(usize, Why)>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// The last line, without its line end.
    #[error("was cut off while it was written")]
    Torn,
    #[error("is not as it was written")]
    Damaged,
    #[error("is in format {0} of a newer sandprobe")]
    Newer(u32),
}

/// A value with the version of its format; `T` is borrowed when it is written.
#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    schema: u32,
    #[serde(flatten)]
    it: T,
}

/// The member with the format's version.
#[derive(Deserialize)]
struct Mark {
    schema: u32,
}

/// The most bytes of boots that are kept, whatever their number.
const TOTAL: usize = 4 << 20;
/// The number of boots that are kept whatever their size.
const LEAST: usize = 2;

/// The text before the sum, between the sum and the body, and after the body.
const HEAD: &str = "{\"sum\":\"";
const NECK: &str = "\",\"boot\":";
const TAIL: &str = "}";
const SUM: usize = 16;

impl Record {
    /// Returns the boot's id; empty if it is not known.
    #[must_use]
    pub fn boot_id(&self) -> &str {
        self.recovery.boot.as_ref().map_or("", |boot| &boot.boot_id)
    }
}

impl Heartbeat {
    /// Returns the wall time, ns since the epoch.
    #[must_use]
    pub fn wall_ns(&self) -> i64 {
        self.boot_wall_ns.saturating_add_unsigned(self.at.0)
    }
}

impl History {
    #[must_use]
    pub fn read(bytes: &[u8]) -> Self {
        let mut history = Self::default();
        for (number, line) in lines(bytes) {
            match parse(line.bytes) {
                Ok(record) => match history.records.iter_mut().find(|it| it.boot_id() == record.boot_id()) {
                    Some(known) => *known = record,
                    None => history.records.push(record),
                },
                Err(Why::Damaged) if !line.ended => history.skipped.push((number, Why::Torn)),
                Err(why) => history.skipped.push((number, why)),
            }
        }
        history
    }

    /// Returns the record of this boot.
    #[must_use]
    pub fn of(&self, boot_id: &str) -> Option<&Record> {
        self.records.iter().find(|record| record.boot_id() == boot_id)
    }

    /// Returns the record of the boot before this one.
    #[must_use]
    pub fn before(&self, boot_id: &str) -> Option<&Record> {
        let until = self.records.iter().position(|record| record.boot_id() == boot_id);
        let until = until.unwrap_or(self.records.len());
        self.records.get(until.checked_sub(1)?)
    }
}

/// Makes the line of a record.
pub fn line(record: &Record) -> serde_json::Result<Vec<u8>> {
    let body = serde_json::to_string(&Versioned { schema: SCHEMA, it: record })?;
    Ok(format!("{HEAD}{:016x}{NECK}{body}{TAIL}\n", fnv(body.as_bytes())).into_bytes())
}

/// Compacts a history: keeps the last line of each boot, the last `keep` boots, and lines that a newer
/// version wrote, but no unreadable lines. `None`: nothing would be removed.
#[must_use]
pub fn compact(bytes: &[u8], keep: usize) -> Option<Vec<u8>> {
    let mut kept: Vec<(Option<String>, &[u8])> = Vec::new();
    let mut is_less = false;
    for (_, line) in lines(bytes) {
        is_less |= !line.ended;
        match parse(line.bytes) {
            Ok(record) => {
                let id = Some(record.boot_id().to_owned());
                if let Some(known) = kept.iter_mut().find(|(known, _)| *known == id) {
                    known.1 = line.bytes;
                    is_less = true;
                } else {
                    kept.push((id, line.bytes));
                }
            }
            Err(Why::Newer(_)) => kept.push((None, line.bytes)),
            Err(Why::Torn | Why::Damaged) => is_less = true,
        }
    }
    let mut excess = kept.len().saturating_sub(keep);
    let mut size: usize = kept.iter().skip(excess).map(|(_, line)| line.len() + 1).sum();
    while size > TOTAL && kept.len() > excess + LEAST {
        size -= kept.get(excess).map_or(0, |(_, line)| line.len() + 1);
        excess += 1;
    }
    if excess == 0 && !is_less {
        return None;
    }
    let lines = kept.into_iter().skip(excess).flat_map(|(_, line)| [line, b"\n"]);
    Some(lines.collect::<Vec<_>>().concat())
}

pub fn heartbeat(beat: &Heartbeat) -> serde_json::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(&Versioned { schema: SCHEMA, it: beat })?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Reads a heartbeat. `None`: the bytes are not a heartbeat of this format.
#[must_use]
pub fn read_heartbeat(bytes: &[u8]) -> Option<Heartbeat> {
    let beat: Versioned<Heartbeat> = serde_json::from_slice(bytes).ok()?;
    (beat.schema <= SCHEMA).then_some(beat.it)
}

struct Line<'a> {
    bytes: &'a [u8],
    ended: bool,
}

/// Returns the lines that are not empty, with their numbers.
fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, Line<'_>)> {
    let pieces = bytes.split_inclusive(|byte| *byte == b'\n');
    (1..).zip(pieces).filter_map(|(number, piece)| {
        let bytes = piece.strip_suffix(b"\n");
        let line = Line { bytes: bytes.unwrap_or(piece), ended: bytes.is_some() };
        (!line.bytes.is_empty()).then_some((number, line))
    })
}

fn parse(line: &[u8]) -> Result<Record, Why> {
    let text = str::from_utf8(line).map_err(|_not_text| Why::Damaged)?;
    let body = body(text).ok_or(Why::Damaged)?;
    let Mark { schema } = serde_json::from_str(body).map_err(|_shapeless| Why::Damaged)?;
    if schema > SCHEMA {
        return Err(Why::Newer(schema));
    }
    let record: Versioned<Record> = if schema < SCHEMA {
        let mut value: Value = serde_json::from_str(body).map_err(|_shapeless| Why::Damaged)?;
        fixup::named_as_in_events(&mut value);
        serde_json::from_value(value).map_err(|_shapeless| Why::Damaged)?
    } else {
        serde_json::from_str(body).map_err(|_shapeless| Why::Damaged)?
    };
    Ok(record.it)
}

/// Returns the body, if the sum is that of the body.
fn body(line: &str) -> Option<&str> {
    let (said, rest) = line.strip_prefix(HEAD)?.split_at_checked(SUM)?;
    let body = rest.strip_prefix(NECK)?.strip_suffix(TAIL)?;
    (format!("{:016x}", fnv(body.as_bytes())) == said).then_some(body)
}
